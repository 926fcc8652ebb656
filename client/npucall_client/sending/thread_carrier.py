"""gRPC for callers that block: a message there and one back, or a stream; gRPC's threads send."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self

import grpc

from npucall_client.sending.senders import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npucall_client.sending.senders import Files, Message, Messages, Metadata, Unary

_STATE_SECONDS = 0.3
"""gRPC looks at the state of a channel five times a second while somebody wants to know it."""


def credentials_of(files: Files) -> grpc.ChannelCredentials:
    """What a channel with TLS needs."""
    return grpc.ssl_channel_credentials(files.ca, files.key, files.certificate)


def joined(message: Message) -> bytes:
    """The bytes of a message."""
    return message if isinstance(message, bytes) else b"".join(message)


class ThreadChannel:
    """See ``senders.Channel``."""

    def __init__(
        self, target: str, options: Sequence[tuple[str, str | int]], files: Files | None
    ) -> None:
        if files is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            self._channel = grpc.secure_channel(target, credentials_of(files), options)
        self._asked = -math.inf
        """When it was last asked for its state, on the clock of ``monotonic``."""

    def unary(self, path: str) -> Unary:
        method: Any = self._channel.unary_unary(path)  # type: ignore[call-arg]

        async def send(
            request: bytes, seconds: float, metadata: Metadata = None, *, waits: bool = False
        ) -> bytes:
            answer: bytes = method(
                request, timeout=seconds, metadata=metadata, wait_for_ready=waits
            )
            return answer

        return send

    def stream(  # noqa: PLR0913  # all that makes one
        self,
        path: str,
        messages: Messages,
        seconds: float | None,
        metadata: Metadata,
        *,
        waits: bool,
        ended: Callable[[], object],
    ) -> ThreadStream:
        sent = Driven(messages) if isinstance(messages, AsyncIterator) else map(joined, messages)
        return ThreadStream(self.call(path, sent, seconds, metadata, waits=waits, ended=ended))

    def call(  # noqa: PLR0913  # all that makes one
        self,
        path: str,
        messages: Iterator[bytes],
        seconds: float | None,
        metadata: Metadata,
        *,
        waits: bool,
        ended: Callable[[], object],
    ) -> Any:
        """Opens a method of streams: gRPC's own call. ``ended`` is called once it has ended."""
        method: Any = self._channel.stream_stream(path)  # type: ignore[call-arg]
        call = method(messages, timeout=seconds, metadata=metadata, wait_for_ready=waits)
        if not call.add_callback(ended):
            ended()
        return call

    def is_connected(self) -> bool:
        # gRPC answers in a thread of its own, which looks on for a moment.
        states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
        hear = states.put
        self._asked = time.monotonic()
        self._channel.subscribe(hear)
        try:
            return states.get(timeout=_STATE_SECONDS) is grpc.ChannelConnectivity.READY
        except queue.Empty:
            return False
        finally:
            self._channel.unsubscribe(hear)

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        """Cancels what is under way. gRPC's thread for the state must not find it closed."""
        time.sleep(max(0.0, self._asked + _STATE_SECONDS - time.monotonic()))
        self._channel.close()


class ThreadStream:
    """See ``senders.MessageStream``."""

    __slots__ = ("_call", "cancel")

    def __init__(self, call: Any) -> None:
        self._call = call
        self.cancel = call.cancel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            message: bytes = next(self._call)
        except StopIteration:
            raise StopAsyncIteration from None
        return message


class Driven:
    """An iterator over messages that waits for them in gRPC's thread."""

    def __init__(self, messages: AsyncIterator[bytes]) -> None:
        self._messages = messages

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return finished(self._messages.__anext__())  # type: ignore[arg-type]
        except StopAsyncIteration:
            raise StopIteration from None

"""The sender that blocks: threads wait, and gRPC's own threads send."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from npucall_client.sending.senders import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npucall_client.sending.senders import Files, Hear, Messages, Metadata, Unary, Work

T = TypeVar("T")


class ThreadEvent:
    """See ``senders.Event``."""

    __slots__ = ("_event", "clear", "is_set", "set")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set, self.clear, self.is_set = self._event.set, self._event.clear, self._event.is_set

    async def wait(self, seconds: float | None = None) -> bool:
        return self._event.wait(seconds)


class ThreadCondition:
    """See ``senders.Condition``."""

    __slots__ = ("_condition", "notify", "notify_all")

    def __init__(self, lock: threading.Lock) -> None:
        self._condition = threading.Condition(lock)
        self.notify, self.notify_all = self._condition.notify, self._condition.notify_all

    async def wait_for(self, predicate: Callable[[], Any], seconds: float | None = None) -> bool:
        return bool(self._condition.wait_for(predicate, seconds))

    async def wait(self, seconds: float | None = None) -> None:
        self._condition.wait(seconds)


class ThreadLock:
    """See ``senders.Lock``."""

    __slots__ = ("_lock", "release")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.release = self._lock.release

    async def acquire(self, seconds: float) -> bool:
        return self._lock.acquire(timeout=seconds)

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class ThreadTask:
    """A thread of its own, inside the span in which it was started. It keeps no process alive."""

    def __init__(self, work: Work, name: str) -> None:
        inside = contextvars.copy_context().run
        run = lambda: inside(lambda: finished(work()))  # noqa: E731
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    async def join(self, seconds: float | None = None) -> bool:
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()


class ThreadWorkers:
    """See ``senders.Workers``. Its threads start with the first work."""

    def __init__(self, most: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(most, name)

    def submit(self, work: Work) -> None:
        self._threads.submit(lambda: finished(work()))

    async def close(self) -> None:
        self._threads.shutdown()


class ThreadSender:
    """See ``senders.Sender``."""

    def event(self) -> ThreadEvent:
        return ThreadEvent()

    def lock(self) -> ThreadLock:
        return ThreadLock()

    def condition(self, lock: threading.Lock) -> ThreadCondition:
        return ThreadCondition(lock)

    def start(self, work: Work, name: str) -> ThreadTask:
        return ThreadTask(work, name)

    def workers(self, most: int, name: str) -> ThreadWorkers:
        return ThreadWorkers(most, name)

    async def beside(self, function: Callable[[], T]) -> T:
        return function()

    def channel(
        self, target: str, options: Sequence[tuple[str, str | int]], files: Files | None
    ) -> ThreadChannel:
        if files is None:
            return ThreadChannel(grpc.insecure_channel(target, options))
        credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.certificate)
        return ThreadChannel(grpc.secure_channel(target, credentials, options))


THREADS = ThreadSender()


class ThreadChannel:
    """See ``senders.Channel``."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary(self, path: str) -> Unary:
        method: Any = self._channel.unary_unary(path)  # type: ignore[call-arg]

        async def send(
            request: bytes,
            seconds: float,
            metadata: Metadata = None,
            *,
            waits: bool = False,
            hear: Hear | None = None,
        ) -> bytes:
            if hear is None:
                answer: bytes = method(
                    request, timeout=seconds, metadata=metadata, wait_for_ready=waits
                )
                return answer
            answer, call = method.with_call(
                request, timeout=seconds, metadata=metadata, wait_for_ready=waits
            )
            hear(call.initial_metadata())
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
        sent = Driven(messages) if isinstance(messages, AsyncIterator) else messages
        method: Any = self._channel.stream_stream(path)  # type: ignore[call-arg]
        call = method(sent, timeout=seconds, metadata=metadata, wait_for_ready=waits)
        if not call.add_callback(ended):
            ended()
        return ThreadStream(call)

    def is_connected(self) -> bool:
        # gRPC's public function answers later, in a thread that fails if the channel is closed
        # meanwhile.
        ready = grpc.ChannelConnectivity.READY.value[0]
        core: Any = self._channel._channel  # type: ignore[attr-defined]  # noqa: SLF001
        return bool(core.check_connectivity_state(False) == ready)  # noqa: FBT003  # do not connect

    async def close(self) -> None:
        self._channel.close()


class ThreadStream:
    """See ``senders.Stream``."""

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

"""gRPC for asyncio: ``grpc.aio`` for a message there and one back, gRPC's threads for streams.

``grpc.aio`` hides the server's error if a stream ends while it is still written.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio

from npucall_client.sending.thread_carrier import ThreadChannel, credentials_of, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from npucall_client.sending.senders import Files, Messages, Metadata, Unary

_AHEAD = 4
"""Messages of a stream that may have come before their reader wants them."""


class LoopChannel:
    """See ``senders.Channel``."""

    def __init__(
        self, target: str, options: Sequence[tuple[str, str | int]], files: Files | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._made = target, options, files
        if files is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials_of(files), options)
        self._streams: ThreadChannel | None = None

    def unary(self, path: str) -> Unary:
        method: Any = self._channel.unary_unary(path)  # type: ignore[call-arg]

        async def send(
            request: bytes, seconds: float, metadata: Metadata = None, *, waits: bool = False
        ) -> bytes:
            try:
                call = method(request, timeout=seconds, metadata=metadata, wait_for_ready=waits)
                answer: bytes = await call
            except asyncio.CancelledError:
                _raise_if_asked()
                raise _closed() from None
            except grpc.aio.UsageError as error:
                raise ValueError(str(error)) from error
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
    ) -> LoopStream:
        if self._streams is None:
            self._streams = ThreadChannel(*self._made)
        if not isinstance(messages, AsyncIterator):
            sent = map(joined, messages)
            call = self._streams.call(path, sent, seconds, metadata, waits=waits, ended=ended)
            return LoopStream(call, self._loop)
        sending = _Sending(messages, self._loop)

        def over() -> None:
            sending.stop()
            ended()

        call = self._streams.call(path, sending, seconds, metadata, waits=waits, ended=over)
        return LoopStream(call, self._loop)

    def is_connected(self) -> bool:
        if self._channel.get_state() is grpc.ChannelConnectivity.READY:
            return True
        return self._streams is not None and self._streams.is_connected()

    async def close(self) -> None:
        await self._channel.close(None)
        if self._streams is not None:
            await asyncio.to_thread(self._streams.close_now)


class _Sending:
    """The messages of a stream for gRPC's thread; they are waited for on the loop."""

    def __init__(self, messages: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._messages, self._loop = messages, loop
        self._next: concurrent.futures.Future[bytes | None] | None = None
        self._over = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        message = None if self._over else self._made(self._one())
        if message is None:
            raise StopIteration
        return message

    def _made(self, making: Coroutine[Any, Any, bytes | None]) -> bytes | None:
        try:
            self._next = asyncio.run_coroutine_threadsafe(making, self._loop)
        except RuntimeError:  # the loop is closed
            making.close()
            return None
        if self._over:
            self._next.cancel()
        try:
            return self._next.result()
        except concurrent.futures.CancelledError:
            return None

    async def _one(self) -> bytes | None:
        return await anext(self._messages, None)

    def stop(self) -> None:
        """The stream is over: nobody waits for more to send."""
        self._over = True
        if self._next is not None:
            self._next.cancel()


class LoopStream:
    """See ``senders.MessageStream``. A thread hears what comes, and hands it to the loop."""

    def __init__(self, call: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._call, self._loop = call, loop
        self._room = threading.Semaphore(_AHEAD)
        self._come: deque[bytes | Exception] = deque()
        self._arrived = asyncio.Event()
        self._is_cancelled = False
        threading.Thread(target=self._hear, name="npucall-stream", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._come:
            self._arrived.clear()
            await self._arrived.wait()
        each = self._come.popleft()
        if isinstance(each, bytes):
            self._room.release()
            return each
        self._come.append(StopAsyncIteration())  # for who asks once more
        try:
            raise each
        finally:
            del each  # its traceback would keep it

    def cancel(self) -> None:
        self._is_cancelled = True
        self._room.release()
        self._call.cancel()

    def _hear(self) -> None:
        end: Exception = StopAsyncIteration()
        try:
            for message in self._call:
                self._room.acquire()
                if self._is_cancelled or not self._hand(message):
                    break
        except grpc.RpcError as error:
            error.__traceback__ = None  # it is the call itself, which this frame would keep
            end = error
        self._hand(end)

    def _hand(self, each: bytes | Exception) -> bool:
        """Gives it to the loop; False if that is closed."""
        try:
            self._loop.call_soon_threadsafe(self._take, each)
        except RuntimeError:
            self._call.cancel()
            return False
        return True

    def _take(self, each: bytes | Exception) -> None:
        self._come.append(each)
        self._arrived.set()


def _raise_if_asked() -> None:
    """Raises the CancelledError again if the task was cancelled, and not only gRPC's own call."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise  # noqa: PLE0704  # what is being handled


def _closed() -> grpc.aio.AioRpcError:
    """The error that gRPC raises in the other sender for a call that was cancelled here."""
    nothing = grpc.aio.Metadata()
    told = "the call was cancelled here, or its channel closed"
    return grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing, told, None)

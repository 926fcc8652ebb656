"""The sender for asyncio: an event loop waits, and ``grpc.aio`` sends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from npucall_client.sending.senders import Files, Hear, Messages, Metadata, Unary, Work

T = TypeVar("T")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LoopEvent:
    """See ``senders.Event``. It happens on its loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set, self.clear, self.is_set = self._event.set, self._event.clear, self._event.is_set

    async def wait(self, seconds: float | None = None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._event.wait()
        except TimeoutError:
            return self._event.is_set()


class LoopCondition:
    """See ``senders.Condition``. May be notified by other threads too."""

    def __init__(self, lock: threading.Lock, loop: asyncio.AbstractEventLoop) -> None:
        self._lock, self._loop = lock, loop
        self._thread = threading.get_ident()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def notify(self, count: int = 1) -> None:
        if threading.get_ident() == self._thread:
            self._wake(count)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, count)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            _resolve(self._waiting.popleft())

    async def wait_for(self, predicate: Callable[[], Any], seconds: float | None = None) -> bool:
        ends = None if seconds is None else time.monotonic() + seconds
        while not predicate():
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left <= 0:
                return False
            await self.wait(left)
        return True

    async def wait(self, seconds: float | None = None) -> None:
        notified = self._loop.create_future()
        self._waiting.append(notified)
        late = None if seconds is None else self._loop.call_later(seconds, _resolve, notified)
        self._lock.release()
        try:
            await notified
        except asyncio.CancelledError:
            if not notified.cancelled():
                self._wake(1)  # it was for somebody who still waits
            raise
        finally:
            self._lock.acquire()
            if late is not None:
                late.cancel()
            if notified in self._waiting:
                self._waiting.remove(notified)


class LoopLock:
    """See ``senders.Lock``."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.release = self._lock.release

    async def acquire(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._lock.acquire()
        except TimeoutError:
            return False

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class LoopTask:
    """A task, which is kept as long as it goes on."""

    def __init__(self, sender: LoopSender, work: Coroutine[Any, Any, Any], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work, name=name)
        sender.tasks.add(self._task)
        self._task.add_done_callback(sender.tasks.discard)

    async def join(self, seconds: float | None = None) -> bool:
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task], timeout=seconds)
        return self._task.done()


class LoopWorkers:
    """See ``senders.Workers``."""

    def __init__(self, sender: LoopSender, most: int, name: str) -> None:
        self._sender, self._name = sender, name
        self._room = asyncio.Semaphore(most)
        self._tasks: set[LoopTask] = set()

    def submit(self, work: Work) -> None:
        async def run() -> None:
            try:
                async with self._room:
                    await work()
            finally:
                self._tasks.discard(task)

        task = LoopTask(self._sender, run(), self._name)
        self._tasks.add(task)

    async def close(self) -> None:
        for task in list(self._tasks):
            await task.join()


class LoopSender:
    """See ``senders.Sender``. Made on the loop where it is used; of one client."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[Any]] = set()
        """All tasks in the background."""

    def event(self) -> LoopEvent:
        return LoopEvent()

    def lock(self) -> LoopLock:
        return LoopLock()

    def condition(self, lock: threading.Lock) -> LoopCondition:
        return LoopCondition(lock, self._loop)

    def start(self, work: Work, name: str) -> LoopTask:
        return LoopTask(self, work(), name)

    def workers(self, most: int, name: str) -> LoopWorkers:
        return LoopWorkers(self, most, name)

    async def beside(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(function)

    def channel(
        self, target: str, options: Sequence[tuple[str, str | int]], files: Files | None
    ) -> LoopChannel:
        if files is None:
            return LoopChannel(grpc.aio.insecure_channel(target, options))
        credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.certificate)
        return LoopChannel(grpc.aio.secure_channel(target, credentials, options))


class LoopChannel:
    """See ``senders.Channel``."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()

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
            try:
                call = method(request, timeout=seconds, metadata=metadata, wait_for_ready=waits)
                answer: bytes = await call
            except asyncio.CancelledError:
                raise_if_asked()
                raise _closed() from None
            except grpc.aio.UsageError as error:
                raise ValueError(str(error)) from error
            if hear is not None:
                hear(await call.initial_metadata())
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
        method: Any = self._channel.stream_stream(path)  # type: ignore[call-arg]
        try:
            call = method(timeout=seconds, metadata=metadata, wait_for_ready=waits)
        except grpc.aio.UsageError as error:
            raise ValueError(str(error)) from error
        sending = self._loop.create_task(_send(call, messages), name="npucall-sending")
        call.add_done_callback(lambda _: sending.cancel())
        call.add_done_callback(lambda _: ended())
        return LoopStream(call, sending)

    def is_connected(self) -> bool:
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        await self._channel.close(None)


async def _send(call: Any, messages: Messages) -> None:
    """Sends the messages of a stream, so that its reader gets the server's error if it ends.

    ``grpc.aio`` itself does not do that: if the server ends a stream that is still written, its
    sending fails, and it always reports this failure instead of the server's error.
    """
    core = call._cython_call  # noqa: SLF001
    try:
        await call.wait_for_connection()
        if isinstance(messages, AsyncIterator):
            async for message in messages:
                await core.send_serialized_message(message)
        else:
            for message in messages:
                await core.send_serialized_message(message)
        await call.done_writing()
    except (grpc.aio.AioRpcError, grpc.aio.InternalError):
        pass
    except BaseException:
        call.cancel()
        raise


class LoopStream:
    """See ``senders.Stream``."""

    __slots__ = ("_messages", "_sending", "cancel")

    def __init__(self, call: Any, sending: asyncio.Task[None]) -> None:
        self._messages = call.__aiter__()
        self._sending = sending
        """Kept here, since a loop keeps only weak references to tasks."""
        self.cancel = call.cancel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            message: bytes = await self._messages.__anext__()
        except asyncio.CancelledError:
            raise_if_asked()
            raise _closed() from None
        return message


def raise_if_asked() -> None:
    """Raises the CancelledError again if the task was cancelled, and not only gRPC's own call."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise  # noqa: PLE0704  # what is being handled


def _closed() -> grpc.aio.AioRpcError:
    """The error that gRPC raises in the other sender for a call that was cancelled here."""
    nothing = grpc.aio.Metadata()
    told = "the call was cancelled here, or its channel closed"
    return grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing, told, None)

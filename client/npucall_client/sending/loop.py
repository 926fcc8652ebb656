"""The sender for asyncio: an event loop waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from npucall_client.sending.frames.loop_socket import LoopSocket
from npucall_client.sending.loop_carrier import LoopChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from npucall_client.sending.frames.frame_connection import FrameSocket
    from npucall_client.sending.frames.frame_places import FramesPlace
    from npucall_client.sending.senders import Files, Work

T = TypeVar("T")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LoopEvent:
    """See ``senders.Signal``. It happens on its loop."""

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
        return LoopChannel(target, options, files)

    async def frame_socket(self, place: FramesPlace, ends: float) -> FrameSocket:
        return await LoopSocket.opened(place, ends)

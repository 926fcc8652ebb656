"""The sender that blocks: threads wait."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from npucall_client.sending.frames.thread_socket import ThreadSocket
from npucall_client.sending.senders import finished
from npucall_client.sending.thread_carrier import ThreadChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npucall_client.sending.frames.frame_connection import FrameSocket
    from npucall_client.sending.frames.frame_places import FramesPlace
    from npucall_client.sending.senders import Files, Work

T = TypeVar("T")


class ThreadEvent:
    """See ``senders.Signal``."""

    __slots__ = ("_event", "clear", "is_set", "set")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set, self.clear, self.is_set = self._event.set, self._event.clear, self._event.is_set

    async def wait(self, seconds: float | None = None) -> bool:
        return self._event.wait(seconds)


class ThreadCondition:
    """See ``senders.Condition``."""

    __slots__ = ("_condition", "_waiting")

    def __init__(self, lock: threading.Lock) -> None:
        self._condition = threading.Condition(lock)
        self._waiting = 0
        """How many wait: most often nobody does, and then there is nothing to do."""

    def notify(self, count: int = 1) -> None:
        if self._waiting:
            self._condition.notify(count)

    def notify_all(self) -> None:
        if self._waiting:
            self._condition.notify_all()

    async def wait_for(self, predicate: Callable[[], Any], seconds: float | None = None) -> bool:
        self._waiting += 1
        try:
            return bool(self._condition.wait_for(predicate, seconds))
        finally:
            self._waiting -= 1

    async def wait(self, seconds: float | None = None) -> None:
        self._waiting += 1
        try:
            self._condition.wait(seconds)
        finally:
            self._waiting -= 1


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
        return ThreadChannel(target, options, files)

    async def frame_socket(self, place: FramesPlace, ends: float) -> FrameSocket:
        return ThreadSocket.opened(place, ends)


THREADS = ThreadSender()

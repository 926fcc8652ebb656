"""Threads for calls: few of them at work at a time, and always those that worked last.

Calls hold the interpreter's lock for most of their short time, so more threads at work do not give
more calls; they wake each other, and each wait for the lock is a change of threads. A thread that
worked last has its memory near the core. A pool of the standard library wakes a thread for each
call, the one that has been idle longest.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

AT_ONCE = max(2, (os.cpu_count() or 1) // 4)
"""Threads at short tasks: one has the interpreter's lock, another one computes without."""
_SHORT_SECONDS = 0.001
"""Whoever has been at a task for longer waits for something, or computes without the lock."""


class Threads(Executor):
    """At most ``most`` threads, of which ``at_once`` have been at their task for a short time.

    Tasks begin in the order in which they come. One that has to wait does so no longer than others
    are at work for a short time: what waits, for bytes or for a device, keeps no other task waiting
    as long as there are threads.
    """

    def __init__(self, most: int, name: str, at_once: int = AT_ONCE) -> None:
        self._most, self._name, self._at_once = most, name, at_once
        self._lock = threading.Lock()
        self._tasks: deque[Callable[[], None]] = deque()
        self._threads: list[_Thread] = []
        self._idle: list[_Thread] = []
        self._counted: set[_Thread] = set()
        """Threads at work, but for those who have been so for longer."""
        self._backlog = threading.Semaphore(0)
        self._watched = False
        self._closed = False
        threading.Thread(target=self._watch, name=f"{name}-watch", daemon=True).start()

    def submit(self, task: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Has a thread do a task, which may wait for a thread. Raises RuntimeError once closed."""
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("threads: closed")
            self._tasks.append(partial(_settle, future, partial(task, *args, **kwargs)))
            self._hand_out()
            if self._tasks and not self._watched:
                self._watched = True
                self._backlog.release()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # the base class's
        """No more tasks are taken; those that are there will be done."""
        del cancel_futures
        with self._lock:
            self._closed = True
            if not self._tasks:
                self._dismiss()
            self._backlog.release()
        for thread in self._threads if wait else ():
            thread.join()

    def _hand_out(self) -> None:
        """Gives tasks to threads; called with the lock."""
        while self._tasks and len(self._counted) < self._at_once:
            if not self._idle and len(self._threads) >= self._most:
                return
            thread = self._idle.pop() if self._idle else None
            task = self._tasks.popleft()
            if thread is None:
                thread = _Thread(self._work, f"{self._name}_{len(self._threads)}")
                self._count(thread, task)
                try:
                    thread.start()
                except RuntimeError:
                    self._counted.discard(thread)
                    if not self._threads:
                        raise
                    self._tasks.appendleft(task)
                    return
                self._threads.append(thread)
            else:
                self._count(thread, task)
                thread.wake.release()

    def _count(self, thread: _Thread, task: Callable[[], None]) -> None:
        thread.task, thread.since = task, time.monotonic()
        self._counted.add(thread)

    def _work(self, thread: _Thread) -> None:
        while (task := thread.task) is not None:
            with suppress(BaseException):  # a callback's; the task's own is the future's
                task()
            del task
            thread.task = None
            with self._lock:
                self._counted.discard(thread)
                if self._tasks and len(self._counted) < self._at_once:
                    self._count(thread, self._tasks.popleft())
                    continue
                if self._closed and not self._tasks:
                    self._dismiss()
                    return
                self._idle.append(thread)
            thread.wake.acquire()

    def _dismiss(self) -> None:
        """Ends the idle threads; called with the lock."""
        while self._idle:
            self._idle.pop().wake.release()

    def _watch(self) -> None:
        """As long as tasks wait, no longer counts those who take long."""
        while True:
            self._backlog.acquire()
            while self._watched:
                time.sleep(_SHORT_SECONDS)
                with self._lock:
                    limit = time.monotonic() - _SHORT_SECONDS
                    self._counted -= {one for one in self._counted if one.since <= limit}
                    self._hand_out()
                    self._watched = bool(self._tasks)
            with self._lock:
                if self._closed and not self._watched:
                    return


class _Thread(threading.Thread):
    """A thread, the task that it was given, and since when it is at it."""

    def __init__(self, work: Callable[[_Thread], None], name: str) -> None:
        super().__init__(target=work, args=(self,), name=name, daemon=True)
        self.task: Callable[[], None] | None = None
        self.since = 0.0
        self.wake = threading.Lock()
        self.wake.acquire()


def _settle(future: Future[R], task: Callable[[], R]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = task()
    except BaseException as error:  # noqa: BLE001  # whoever asks the future is told
        future.set_exception(error)
        del future, task  # the error has this frame, and the future the error
    else:
        future.set_result(result)

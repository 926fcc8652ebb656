"""Threads for calls. Few work at a time, and always those that worked last.

Each hop to another thread costs a small call time [src:thread-hop].
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
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec

P = ParamSpec("P")

AT_ONCE = max(2, (os.cpu_count() or 1) // 4)
"""Threads at short tasks: one has the interpreter's lock, another one computes without."""
_SHORT_SECONDS = 0.001
"""A thread that takes longer for a task waits for something, or computes without the lock."""


_DONE: Future[None] = Future()
_DONE.set_result(None)
_alive = suppress(BaseException)
"""A thread lives on whatever its task raises."""


class TaskLine:
    """Tasks that begin one after the other, all in one thread while each is short.

    Tasks after a long one go on in another thread.
    """

    def __init__(self) -> None:
        self.tasks: deque[Callable[[], object]] = deque()
        """Those that have not begun."""
        self.waits = False
        """Whether it waits for a thread."""
        self.thread: _Thread | None = None
        """Which is at a task of it that is short until now."""


class Threads(Executor):
    """At most ``most`` threads, of which ``at_once`` have been at their task for a short time.

    Tasks begin in the order in which they come. A task only waits for tasks that are short. A task
    that waits long, for bytes or for a device, does not delay others while there are threads.
    """

    def __init__(self, most: int, name: str, at_once: int = AT_ONCE) -> None:
        self._most, self._name, self._at_once = most, name, at_once
        self._lock = threading.Lock()
        self._waiting: deque[TaskLine] = deque()
        self._threads: list[_Thread] = []
        self._idle: list[_Thread] = []
        self._counted: set[_Thread] = set()
        """Threads at work, but for those who have been so for longer."""
        self._backlog = threading.Semaphore(0)
        self._watched = False
        self._closed = False
        threading.Thread(target=self._watch, name=f"{name}-watch", daemon=True).start()

    def submit(self, task: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """``start`` for gRPC, which counts its calls by the futures. We limit them ourselves.

        So each call gets the same future, which is done.
        """
        self.start(partial(task, *args, **kwargs))
        return _DONE

    def start(self, task: Callable[[], object], line: TaskLine | None = None) -> None:
        """Has a thread do a task. If it has a line, it runs after the line's others.

        Raises RuntimeError once closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("threads: closed")
            at_work = self._counted
            if line is None and self._idle and not self._waiting and len(at_work) < self._at_once:
                thread = self._idle.pop()
                thread.task, thread.since = task, time.monotonic()
                at_work.add(thread)
                thread.wake.release()
                return
            line = line or TaskLine()
            line.tasks.append(task)
            if line.thread is None and not line.waits:
                line.waits = True
                self._waiting.append(line)
                self._hand_out()
            if line.tasks and not self._watched:
                self._watched = True
                self._backlog.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # the base class's
        """Takes no more tasks. The tasks that are there will be done."""
        del cancel_futures
        with self._lock:
            self._closed = True
            if not self._waiting:
                self._dismiss()
            self._backlog.release()
        for thread in self._threads if wait else ():
            thread.join()

    def _hand_out(self) -> None:
        """Gives tasks to threads; called with the lock."""
        while self._waiting and len(self._counted) < self._at_once:
            if not self._idle and len(self._threads) >= self._most:
                return
            if self._idle:
                thread = self._idle.pop()
                self._give(thread, self._waiting.popleft())
                thread.wake.release()
                continue
            thread = _Thread(self._work, f"{self._name}_{len(self._threads)}")
            line = self._waiting.popleft()
            self._give(thread, line)
            try:
                thread.start()
            except RuntimeError:
                self._counted.discard(thread)
                if not self._threads:
                    raise
                self._take_back(thread, line)
                return
            self._threads.append(thread)

    def _give(self, thread: _Thread, line: TaskLine) -> None:
        """Has a thread begin the next task of a line."""
        line.waits, line.thread = False, thread
        thread.line, thread.task, thread.since = line, line.tasks.popleft(), time.monotonic()
        self._counted.add(thread)

    def _take_back(self, thread: _Thread, line: TaskLine) -> None:
        """The thread cannot be started: its task waits for another one."""
        assert thread.task is not None  # noqa: S101  # it has not begun
        line.tasks.appendleft(thread.task)
        line.waits, line.thread = True, None
        self._waiting.appendleft(line)

    def _work(self, thread: _Thread) -> None:
        while (task := thread.task) is not None:
            with _alive:
                task()
            del task
            thread.task = None
            with self._lock:
                self._counted.discard(thread)
                if (self._waiting or thread.line is not None) and self._goes_on(thread):
                    continue
                if self._closed and not self._waiting:
                    self._dismiss()
                    return
                self._idle.append(thread)
            thread.wake.acquire()

    def _goes_on(self, thread: _Thread) -> bool:
        """Has a thread that has done its task begin the next one; called with the lock."""
        line = thread.line
        thread.line = None
        if line is not None and line.thread is thread:
            line.thread = None
            if line.tasks:
                self._give(thread, line)
                return True
        if self._waiting and len(self._counted) < self._at_once:
            self._give(thread, self._waiting.popleft())
            return True
        return False

    def _dismiss(self) -> None:
        """Ends the idle threads; called with the lock."""
        while self._idle:
            self._idle.pop().wake.release()

    def _watch(self) -> None:
        """While tasks wait, stops counting threads that take long."""
        while True:
            self._backlog.acquire()
            while self._watched:
                time.sleep(_SHORT_SECONDS)
                with self._lock:
                    self._leave_out_those_who_take_long()
                    self._hand_out()
                    behind = any(each.line and each.line.tasks for each in self._counted)
                    self._watched = bool(self._waiting) or behind
            with self._lock:
                if self._closed and not self._watched:
                    return

    def _leave_out_those_who_take_long(self) -> None:
        """The tasks after theirs are next. Called with the lock."""
        limit = time.monotonic() - _SHORT_SECONDS
        for thread in [one for one in self._counted if one.since <= limit]:
            self._counted.discard(thread)
            line, thread.line = thread.line, None
            if line is not None:
                line.thread = None
                if line.tasks:
                    line.waits = True
                    self._waiting.appendleft(line)


class _Thread(threading.Thread):
    """A thread, the task that it was given, and since when it is at it."""

    def __init__(self, work: Callable[[_Thread], None], name: str) -> None:
        super().__init__(target=work, args=(self,), name=name, daemon=True)
        self.line: TaskLine | None = None
        """Whose task it is at, while that is short."""
        self.task: Callable[[], object] | None = None
        self.since = 0.0
        self.wake = threading.Lock()
        self.wake.acquire()

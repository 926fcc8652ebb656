"""The thread of a lane. It lives long, since drivers cache things per thread.

CANN caches first phases so [src:phase-one-cache]. The thread blocks in C while the device works.
ctypes releases the GIL meanwhile, so that copies and runs of other lanes go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from npucall.errors import NpucallError
from npucall_server.devices.native_threads import NativeThread

T = TypeVar("T")
L = TypeVar("L", bound="InThread")


class InThread(Protocol):
    """Something that one thread opens, uses and closes."""

    @property
    def broken(self) -> NpucallError | None:
        """Why the device will not work again in this process."""

    @property
    def spent(self) -> bool:
        """Whether it must be closed, and opened again in another thread."""

    def close(self) -> None:
        """Gives everything back."""


class AnyLane(InThread, Protocol):
    """Runs one call at a time. The call cannot read what calls of another owner left there."""

    def empty(self) -> None:
        """Gives back everything that is kept for later calls."""


class LaneThread(Generic[L]):
    """Does one piece of work after the other, in a thread that has a lane open.

    Calls ``on_broken``, in that thread, when the device will not work again in this process.
    """

    def __init__(
        self, open_lane: Callable[[], L], on_broken: Callable[[NpucallError], None]
    ) -> None:
        self._on_broken = on_broken
        self._opening: _Work[Any] = _Work(lambda _: open_lane())
        self._work: SimpleQueue[_Work[L]] = SimpleQueue()
        self._waited_for: set[_Work[Any]] = set()
        self._given_up: NpucallError | None = None
        self._native: NativeThread | None = None
        self.busy_since: float | None = None
        """``time.monotonic()`` when the current work began. Opening and closing are work too."""
        self.spent = False
        """Whether the lane was spent after its last piece of work."""

    def open(self) -> None:
        """Opens the lane in a new thread. If opening fails, raises its error; the thread ends."""
        self.busy_since = time.monotonic()
        threading.Thread(target=self._serve, name="npucall-lane", daemon=True).start()
        self._wait(self._opening)

    def do(self, function: Callable[[L], T]) -> T:
        """Runs a function with the lane, in the lane's thread. The calling thread waits."""
        result: T = self._wait(self._queued(_Work(function)))
        return result

    def close(self) -> None:
        """Closes the lane; raises its error if that fails. The thread ends a little later."""
        self._wait(self._queued(_Work(lambda lane: lane.close(), is_last=True)))

    @property
    def native(self) -> NativeThread | None:
        """The system's thread; None until it runs."""
        return self._native

    def give_up(self, error: NpucallError) -> None:
        """Raises this in all threads that wait for the lane's thread, now or later: it hangs."""
        self._given_up = error
        for work in list(self._waited_for):
            work.give_up(error)

    def _queued(self, work: _Work[L]) -> _Work[L]:
        self._work.put(work)
        return work

    def _wait(self, work: _Work[Any]) -> Any:
        self._waited_for.add(work)
        if self._given_up is not None:
            work.give_up(self._given_up)
        try:
            return work.wait()
        finally:
            self._waited_for.discard(work)

    def _serve(self) -> None:
        self._native = NativeThread()
        lane, error = self._opening.do(None)
        self.busy_since = None
        self._opening.answer(None, error)
        while lane is not None and self._serve_one(lane):
            pass

    def _serve_one(self, lane: L) -> bool:
        """Does the next work; whether more can come. Keeps no reference to the work's objects."""
        work = self._work.get()
        was_broken = lane.broken is not None
        self.busy_since = time.monotonic()
        result, error = work.do(lane)
        self.busy_since, self.spent = None, lane.spent
        if lane.broken is not None and not was_broken:
            # Before the answer: the next call may come directly after it.
            self._on_broken(lane.broken)
        work.answer(result, error)
        return not work.is_last


class _Work(Generic[L]):
    """A piece of work on its way through the thread."""

    def __init__(self, function: Callable[[L], Any], *, is_last: bool = False) -> None:
        self._function, self.is_last = function, is_last
        self._is_given_up = False
        self._done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def do(self, lane: L) -> tuple[Any, BaseException | None]:
        if self._is_given_up:  # before it began: nobody waits for it any more
            return None, None
        try:
            return self._function(lane), None
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            return None, error

    def give_up(self, error: NpucallError) -> None:
        """Raises this in the thread that waits. Work that has not begun will not begin."""
        self._is_given_up = True
        self.answer(None, error)

    def answer(self, result: Any, error: BaseException | None) -> None:
        """The first answer counts."""
        self._done.put((result, error))

    def wait(self) -> Any:
        result, error = self._done.get()
        if error is not None:
            raise error
        return result

"""A lane or planner in a thread; when it is spent, it is opened again in another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from npucall.errors import NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.lane_thread import InThread, LaneThread
from npucall_server.devices.native_threads import EndingThreads

T = TypeVar("T")
L = TypeVar("L", bound="InThread")


class Renewed(Generic[L]):
    """A lane, or a planner, in a thread. One caller at a time uses it.

    A spent one is closed at once, so that others can use its memory. The next use opens a new one.
    ``ending`` gets the threads that are no longer used; this class does not wait for them. Calls
    ``lost``, in any thread, when the device will not work again in this process.
    """

    def __init__(
        self,
        open_lane: Callable[[], L],
        lost: Callable[[NpucallError], None],
        ending: EndingThreads,
    ) -> None:
        self._open_lane, self._lost, self._ending = open_lane, lost, ending
        self._thread: LaneThread[L] | None = None

    @property
    def busy_since(self) -> float | None:
        """``time.monotonic()`` when the current work began. Opening and closing are work too."""
        thread = self._thread
        return None if thread is None else thread.busy_since

    def give_up(self, error: NpucallError) -> None:
        """Raises this in the thread that waits for the current work, which will never end."""
        if (thread := self._thread) is not None:
            thread.give_up(error)

    def open(self) -> LaneThread[L]:
        """Opens it. If that fails, raises the error, and the next use tries again."""
        self._thread = thread = LaneThread(self._open_lane, self._lost)
        try:
            thread.open()
        except BaseException:
            self._leave(thread)
            raise
        return thread

    def do(self, work: Callable[[L], T]) -> T:
        """Runs a function with it, in its thread. The calling thread waits."""
        thread = self._thread or self._open_again()
        try:
            return thread.do(work)
        finally:
            if thread.spent:
                self._close_spent()

    def close(self) -> None:
        """Closes it if it is open; raises the error if that fails."""
        if (thread := self._thread) is not None:
            try:
                thread.close()
            finally:
                self._leave(thread)

    def _open_again(self) -> LaneThread[L]:
        try:
            return self.open()
        except BrokenDeviceError as error:
            self._lost(error)
            raise

    def _close_spent(self) -> None:
        """Ignores errors, since the next use shows them; but a broken device is reported."""
        try:
            self.close()
        except BrokenDeviceError as error:
            self._lost(error)
        except NpucallError:
            return

    def _leave(self, thread: LaneThread[L]) -> None:
        self._thread = None
        if thread.native is not None:
            self._ending.add(thread.native)

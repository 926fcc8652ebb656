"""The lanes of a device. Each call goes to a free lane, so as many calls as lanes can run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, LifoQueue
from typing import Generic, TypeVar

from npucall.errors import NpucallError, OutOfMemoryError
from npucall_server.devices.cleanup import Cleanup
from npucall_server.devices.lane_thread import AnyLane
from npucall_server.devices.native_threads import EndingThreads
from npucall_server.devices.renewed import Renewed
from npucall_server.devices.watchdog import Watchdog

T = TypeVar("T")
L = TypeVar("L", bound="AnyLane")


def with_room(work: Callable[[], T], make_room: Callable[[], object]) -> T:
    """Calls ``work``. If memory runs out, calls ``make_room``, and then ``work`` once more."""
    try:
        return work()
    except OutOfMemoryError:
        make_room()
        return work()


class Lanes(Generic[L]):
    """Opens ``count`` lanes, each in a thread of its own. A turn of the executor is one lane.

    If a call has spent a lane, a new lane replaces it before the call is tried again. Calls
    ``lost``, in any thread, when a lane broke the device, or when a lane has worked on a call for
    longer than ``device_timeout`` seconds. ``ending`` gets the threads that were told to end.
    """

    def __init__(
        self,
        open_lane: Callable[[], L],
        count: int,
        device_timeout: float,
        lost: Callable[[NpucallError], None],
        ending: EndingThreads | None = None,
    ) -> None:
        ending = ending or EndingThreads()
        lanes = [Renewed(open_lane, lost, ending) for _ in range(count)]
        self._free: LifoQueue[Renewed[L]] = LifoQueue()  # the last used lane has the fullest caches
        with Cleanup() as opening:
            opening.callback(Watchdog(lanes, device_timeout, lost).close)
            for lane in lanes:
                lane.open()
                opening.callback(lane.close)
                self._free.put(lane)
            self._open = opening.pop_all()

    def do(self, work: Callable[[L], T]) -> T:
        """Runs a function on a free lane, perhaps twice. The calling thread waits."""
        lane = self._free.get()
        try:
            return with_room(lambda: lane.do(work), lambda: self._empty_pools(lane))
        finally:
            self._free.put(lane)

    def empty_idle(self) -> None:
        """Gives back what idle lanes keep."""
        with suppress(Empty):
            lane = self._free.get_nowait()
            try:
                self._empty_pools(lane)
            finally:
                self._free.put(lane)

    def close(self) -> None:
        """Closes the lanes. No call may be running. Their threads end a little later."""
        self._open.close()

    def _empty_pools(self, lane: Renewed[L]) -> None:
        """Gives back what this lane and the idle ones keep. Busy lanes keep what they use."""
        idle = []
        with suppress(Empty):
            while True:
                idle.append(self._free.get_nowait())
        try:
            for each in (*idle, lane):
                with suppress(NpucallError):  # the next try says what is wrong
                    each.do(lambda open_lane: open_lane.empty())
        finally:
            for each in idle:
                self._free.put(each)

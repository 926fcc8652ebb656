"""The lanes of a device: it runs as many calls at a time, and gives each to a free one."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, LifoQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from npucall.compute.evaluate import NO_TARGETS
from npucall.errors import NpucallError, OutOfMemoryError
from npucall_server.devices.cleanup import Cleanup
from npucall_server.devices.lane_thread import LaneThread
from npucall_server.devices.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_server.devices.base import Ran
    from npucall_server.devices.lane_thread import Lane

T = TypeVar("T")
L = TypeVar("L", bound="Lane")


class Lanes(Generic[L]):
    """Opens ``count`` lanes, each in a thread of its own. A turn of the executor is one of them.

    ``lost`` hears, in any thread, that a lane broke the device, or that one has worked on a call
    for longer than ``device_timeout`` seconds.
    """

    def __init__(
        self,
        open_lane: Callable[[], L],
        count: int,
        device_timeout: float,
        lost: Callable[[NpucallError], None],
    ) -> None:
        self._free: LifoQueue[LaneThread[L]] = LifoQueue()  # the one used last knows most
        with Cleanup() as opening:
            threads: list[LaneThread[L]] = []
            for _ in range(count):
                threads.append(LaneThread(open_lane, lost))
                opening.callback(threads[-1].close)
                self._free.put(threads[-1])
            opening.callback(Watchdog(threads, device_timeout, lost).close)
            self._open = opening.pop_all()

    def plan(self, call: Prepared) -> int:
        """``Lane.plan`` on a free lane; the calling thread waits."""
        return self._on_a_lane(lambda lane: lane.plan(call))

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Buffer],
        check: Callable[[], None],
        targets: Mapping[str, Buffer] = NO_TARGETS,
        owner: str = "",
    ) -> Ran:
        """``Lane.run`` on a free lane; the calling thread waits."""
        return self._on_a_lane(lambda lane: lane.run(call, storages, check, targets, owner))

    def do(self, work: Callable[[L], T]) -> T:
        """Anything on a free lane, which may be asked to do it a second time; this thread waits."""
        return self._on_a_lane(lambda lane: lane.do(work))

    def empty_idle(self) -> None:
        """Gives back what lanes keep that have nothing to do."""
        with suppress(Empty):
            lane = self._free.get_nowait()
            try:
                self._empty_pools(lane)
            finally:
                self._free.put(lane)

    def close(self) -> None:
        """Closes the lanes, once no call is left."""
        self._open.close()

    def _on_a_lane(self, work: Callable[[LaneThread[L]], T]) -> T:
        lane = self._free.get()
        try:
            return work(lane)
        except OutOfMemoryError:
            self._empty_pools(lane)
            return work(lane)
        finally:
            self._free.put(lane)

    def _empty_pools(self, lane: LaneThread[L]) -> None:
        """Gives back what this lane and the idle ones keep; those that work keep what they use."""
        idle = []
        with suppress(Empty):
            while True:
                idle.append(self._free.get_nowait())
        try:
            for each in (lane, *idle):
                with suppress(NpucallError):  # the next try says what is wrong
                    each.empty()
        finally:
            for each in idle:
                self._free.put(each)

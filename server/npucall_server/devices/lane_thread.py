"""The thread of a lane: long-lived, since drivers keep what they know per thread.

CANN does so with first phases. The thread blocks in C while the device works; ctypes releases the
GIL, so that copies and runs of other lanes go on.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from npucall.compute.evaluate import NO_TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall.declare.prepare import Prepared
    from npucall.errors import NpucallError
    from npucall.tensors import Buffer
    from npucall_server.devices.base import Ran

T = TypeVar("T")
L = TypeVar("L", bound="Lane")


class Lane(Protocol):
    """Runs one call at a time. Opened, used and closed in one thread."""

    @property
    def broken(self) -> NpucallError | None:
        """Why the device will not work again in this process."""

    def plan(self, call: Prepared) -> int:
        """Bytes of workspace that a call needs."""

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Buffer],
        check: Callable[[], None],
        targets: Mapping[str, Buffer] = NO_TARGETS,
        owner: str = "",
    ) -> Ran:
        """Runs a call; when it ends, however it ends, nothing of it is under way any more.

        ``check`` is called as long as the call can still be stopped; what it raises ends the call.
        Of what calls of another ``owner`` left in the lane's memory, this one's finds nothing.
        """

    def empty(self) -> None:
        """Gives back all that is kept for the next calls."""

    def close(self) -> None:
        """Gives everything back."""


class LaneThread(Generic[L]):
    """Does one piece of work after the other in a thread that has a lane open.

    ``on_broken`` hears, in that thread, when the device will not work again in this process.
    """

    def __init__(
        self, open_lane: Callable[[], L], on_broken: Callable[[NpucallError], None]
    ) -> None:
        self._open_lane, self._on_broken = open_lane, on_broken
        self._work: SimpleQueue[_Work[L] | None] = SimpleQueue()
        self._outcome: SimpleQueue[Exception | None] = SimpleQueue()
        """Whether the lane opened, then whether it closed."""
        self._under_way: _Work[L] | None = None
        self.busy_since: float | None = None
        """``time.monotonic()`` when the work under way began."""
        self._thread = threading.Thread(target=self._serve, name="npucall-lane", daemon=True)
        self._thread.start()
        self._raise_outcome()

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Buffer],
        check: Callable[[], None],
        targets: Mapping[str, Buffer] = NO_TARGETS,
        owner: str = "",
    ) -> Ran:
        """``Lane.run``; the calling thread waits."""
        return self.do(lambda lane: lane.run(call, storages, check, targets, owner))

    def plan(self, call: Prepared) -> int:
        """``Lane.plan``; the calling thread waits."""
        return self.do(lambda lane: lane.plan(call))

    def empty(self) -> None:
        """``Lane.empty``; the calling thread waits."""
        self.do(lambda lane: lane.empty())

    def give_up(self, error: NpucallError) -> None:
        """Raises this where somebody waits for the work under way, which will never end."""
        work = self._under_way
        if work is not None:
            work.answer(None, error)

    def close(self) -> None:
        """Closes the lane and ends the thread."""
        self._work.put(None)
        self._thread.join()
        self._raise_outcome()

    def do(self, function: Callable[[L], T]) -> T:
        """Anything with the lane in its thread; the calling thread waits."""
        work = _Work(function)
        self._work.put(work)
        result: T = work.wait()
        return result

    def _raise_outcome(self) -> None:
        if (error := self._outcome.get()) is not None:
            raise error

    def _serve(self) -> None:
        try:
            lane = self._open_lane()
        except Exception as error:  # noqa: BLE001  # raised where the lane is opened
            self._outcome.put(error)
            return
        self._outcome.put(None)
        while self._serve_one(lane):
            pass
        self._close(lane)

    def _serve_one(self, lane: L) -> bool:
        """Whether there was work; what belongs to it is let go of when this returns."""
        work = self._work.get()
        if work is None:
            return False
        was_broken = lane.broken is not None
        self._under_way, self.busy_since = work, time.monotonic()
        result, error = work.do(lane)
        self._under_way, self.busy_since = None, None
        if lane.broken is not None and not was_broken:
            # Before the answer, behind which the next call would come.
            self._on_broken(lane.broken)
        work.answer(result, error)
        return True

    def _close(self, lane: Lane) -> None:
        try:
            lane.close()
        except Exception as error:  # noqa: BLE001  # raised where the lane is closed
            self._outcome.put(error)
        else:
            self._outcome.put(None)


class _Work(Generic[L]):
    """A piece of work on its way through the thread."""

    def __init__(self, function: Callable[[L], Any]) -> None:
        self._function = function
        self._done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def do(self, lane: L) -> tuple[Any, BaseException | None]:
        try:
            return self._function(lane), None
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            return None, error

    def answer(self, result: Any, error: BaseException | None) -> None:
        """The first answer counts."""
        self._done.put((result, error))

    def wait(self) -> Any:
        result, error = self._done.get()
        if error is not None:
            raise error
        return result

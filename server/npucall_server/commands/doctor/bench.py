"""Lanes on which the doctor tries calls: as in a server, but their memory is poisoned before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from npucall import memory
from npucall.declare.samples import sample_storages
from npucall_server.commands.doctor.compare import difference, is_untouched
from npucall_server.devices.cann.lane import Lane, LaneLimits
from npucall_server.devices.cann.resident import HandleMemory
from npucall_server.devices.lane_thread import LaneThread
from npucall_server.devices.native_threads import EndingThreads
from npucall_server.devices.watchdog import Visitors

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall.errors import NpucallError
    from npucall.products import Product
    from npucall.tensors import Buffer
    from npucall_server.commands.doctor.finding import Finding, Section
    from npucall_server.commands.doctor.kinds import Trial
    from npucall_server.devices.base import Phases
    from npucall_server.devices.cann.host import HostCatalogue
    from npucall_server.devices.cann.operators import OpApi
    from npucall_server.devices.cann.runtime import DeviceContext
    from npucall_server.devices.lane_thread import InThread

LIMITS = LaneLimits(30.0, 1 << 20, 1 << 30, 64, busy_wait=False)
"""The defaults of a server, but with less memory."""
Step = Callable[["Bench"], "Iterator[Section | Finding]"]
L = TypeVar("L", bound="InThread")


class Outcome(NamedTuple):
    """The result of a call."""

    wrong: str
    """What is wrong with its numbers; empty if nothing is."""
    launched_nothing: bool
    """Whether its outputs have not changed."""
    phases: Phases | None


@dataclass
class Bench:
    """An open device, and the results of the trials on it."""

    context: DeviceContext
    operators: OpApi
    catalogue: HostCatalogue
    product: Product
    trials: list[Trial]
    lane: Lane = field(init=False)
    """The lane of this thread. It runs calls as a server's lane does, and plans nothing."""
    notes: list[str] = field(default_factory=list)
    """The notes of the lanes."""
    broken: list[NpucallError] = field(default_factory=list)
    """Why the device will not work again, as other lanes than ``lane`` said."""
    some_are_right: bool = False
    """Whether a call has given the numbers of the reference."""
    phases: list[tuple[Phases, Phases]] = field(default_factory=list)
    """The phases of the first and second run of each call whose numbers were right."""
    ending: EndingThreads = field(default_factory=EndingThreads)
    """Threads that were told to end. They must end before the device is given back."""

    def __post_init__(self) -> None:
        self.lane = self.open_lane()

    def open_lane(self, **limits: Any) -> Lane:
        """Opens a lane in the calling thread. ``limits``: fields of ``LaneLimits``."""
        return Lane(self.context, self.operators, LIMITS._replace(**limits), self.notes.append)

    def handles(self) -> HandleMemory:
        """Memory for handles. If memory runs out, nothing is freed to make room."""
        return HandleMemory(self.context, Visitors(), self.broken.append, lambda: None)

    @contextmanager
    def in_thread(self, opened: Callable[[], L]) -> Iterator[LaneThread[L]]:
        """Opens, uses and closes something in a thread of its own."""
        thread = LaneThread(opened, self.broken.append)
        thread.open()
        try:
            yield thread
        finally:
            if not self.is_broken:
                thread.close()
                if thread.native is not None:
                    self.ending.add(thread.native)

    @property
    def is_broken(self) -> bool:
        """Whether the device will not work again in this process."""
        return bool(self.broken) or self.lane.broken is not None


def check(lane: Lane, call: Prepared, seed: int) -> Outcome:
    """Runs a call and compares it with the reference. Raises errors of the device."""
    storages: dict[str, Buffer] = {**sample_storages(call, seed)}
    ran = lane.run(call, storages, lambda: None)
    outputs: Any = ran.outputs  # no output is in a handle
    wrong = difference(call, storages, outputs)
    launched_nothing = bool(wrong) and is_untouched(call, storages, outputs)
    if launched_nothing:
        wrong = "nothing has run, though every function answered success: outputs are as before"
    return Outcome(wrong, launched_nothing, ran.phases)


@contextmanager
def poisoned() -> Iterator[None]:
    """Fills outputs with a pattern before each run, to notice a launch that runs nothing."""
    before = memory.is_poisoned()
    memory.poison()
    try:
        yield
    finally:
        memory.poison(before)

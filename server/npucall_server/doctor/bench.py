"""Where the doctor tries calls: lanes as a server has them, whose memory is poisoned before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from npucall import buffers
from npucall.declare.samples import sample_storages
from npucall_server.devices.cann.lane import Lane, LaneLimits
from npucall_server.devices.cann.resident import HandleMemory
from npucall_server.devices.lane_thread import LaneThread
from npucall_server.devices.native_threads import EndingThreads
from npucall_server.devices.watchdog import Visitors
from npucall_server.doctor.compare import difference, is_untouched

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall.errors import NpucallError
    from npucall.products import Product
    from npucall.tensors import Buffer
    from npucall_server.devices.base import Phases
    from npucall_server.devices.cann.host import HostCatalogue
    from npucall_server.devices.cann.operators import OpApi
    from npucall_server.devices.cann.runtime import DeviceContext
    from npucall_server.devices.lane_thread import InThread
    from npucall_server.doctor.finding import Finding, Section
    from npucall_server.doctor.kinds import Trial

LIMITS = LaneLimits(30.0, 1 << 20, 1 << 30, 64, busy_wait=False)
"""As a server has them by default, but for smaller memory."""
Step = Callable[["Bench"], "Iterator[Section | Finding]"]
L = TypeVar("L", bound="InThread")


class Outcome(NamedTuple):
    """What a call gave."""

    wrong: str
    """What is wrong with its numbers; empty if nothing is."""
    launched_nothing: bool
    """Whether its outputs are what they were before."""
    phases: Phases | None


@dataclass
class Bench:
    """A device that is open, and what is tried on it."""

    context: DeviceContext
    operators: OpApi
    catalogue: HostCatalogue
    product: Product
    trials: list[Trial]
    lane: Lane = field(init=False)
    """Of this thread. It runs calls as a serving lane does; nothing is planned here."""
    notes: list[str] = field(default_factory=list)
    """What lanes say."""
    broken: list[NpucallError] = field(default_factory=list)
    """Why the device will not work again, by other lanes than that one."""
    some_are_right: bool = False
    """Whether a call has given the numbers of the reference."""
    phases: list[tuple[Phases, Phases]] = field(default_factory=list)
    """Of the first and second run of each call that was right."""
    ending: EndingThreads = field(default_factory=EndingThreads)
    """Threads that have been told to end: the device must not be given back before they have."""

    def __post_init__(self) -> None:
        self.lane = self.open_lane()

    def open_lane(self, **limits: Any) -> Lane:
        """A lane of the calling thread; ``limits``: fields of ``LaneLimits``."""
        return Lane(self.context, self.operators, LIMITS._replace(**limits), self.notes.append)

    def handles(self) -> HandleMemory:
        """Memory for handles; nothing that is kept makes room for it."""
        return HandleMemory(self.context, Visitors(), self.broken.append, lambda: None)

    @contextmanager
    def in_thread(self, opened: Callable[[], L]) -> Iterator[LaneThread[L]]:
        """Something that is opened, used and closed in a thread of its own."""
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
    """Runs a call and compares it with the reference. Raises what the device does."""
    storages: dict[str, Buffer] = {**sample_storages(call, seed)}
    ran = lane.run(call, storages, lambda: None)
    outputs: Any = ran.outputs  # nothing is resident
    wrong = difference(call, storages, outputs)
    launched_nothing = bool(wrong) and is_untouched(call, storages, outputs)
    if launched_nothing:
        wrong = "nothing has run, though every function answered success: outputs are as before"
    return Outcome(wrong, launched_nothing, ran.phases)


@contextmanager
def poisoned() -> Iterator[None]:
    """Outputs are filled with a pattern before each run, so that a launch of nothing shows."""
    before = buffers.is_poisoned()
    buffers.poison()
    try:
        yield
    finally:
        buffers.poison(before)

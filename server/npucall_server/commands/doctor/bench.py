"""Lanes on which the doctor tries calls: as in a server, but their memory is poisoned before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from npucall import memory
from npucall.compute import evaluate
from npucall.declare.samples import sample_storages
from npucall.dtypes import BF16, FLOAT16, DType
from npucall_server.devices.base import Phases, Step
from npucall_server.devices.cann.lane import Lane, LaneLimits
from npucall_server.devices.cann.program import ProgramRun
from npucall_server.devices.cann.resident import HandleMemory
from npucall_server.devices.lane_thread import InThread, LaneThread
from npucall_server.devices.native_threads import EndingThreads
from npucall_server.devices.unwritten import begun
from npucall_server.devices.watchdog import Visitors

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall.errors import NpucallError
    from npucall.products import Product
    from npucall.tensors import Buffer
    from npucall_server.commands.doctor.kinds import Trial
    from npucall_server.devices.cann.host import HostCatalogue
    from npucall_server.devices.cann.operators import OpApi
    from npucall_server.devices.cann.runtime import DeviceContext

Trying = Callable[["Bench"], Any]
"""Yields sections and findings. If its result is False, no other step is tried."""
L = TypeVar("L", bound="InThread")

_LIMITS = LaneLimits(30.0, 1 << 20, 1 << 30, 64, busy_wait=False)
"""The defaults of a server, but with less memory."""
_TOLERANCES: dict[DType, float] = {FLOAT16: 4e-3, BF16: 3e-2}
_OTHERS = 1e-5
"""Allowed difference, relative to the largest number: some roundings. The conformance suite judges
the precision; this only finds results that are completely wrong."""
_SHOWN = 4
NOTHING = "nothing has run, though every function answered success: outputs are as before"


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
    ending: EndingThreads = field(default_factory=EndingThreads)
    """Threads that were told to end. They must end before the device is given back."""

    def __post_init__(self) -> None:
        self.lane = self.open_lane()

    def open_lane(self, **limits: Any) -> Lane:
        """Opens a lane in the calling thread. ``limits``: fields of ``LaneLimits``."""
        return Lane(self.context, self.operators, _LIMITS._replace(**limits), self.notes.append)

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


def run(lane: Lane, steps: Sequence[Step]) -> ProgramRun:
    """Runs a call, or a program, to its end. Raises errors of the device."""
    program = ProgramRun(steps, owner="")
    while not lane.go_on(program, lambda: None):
        pass
    return program


def check(lane: Lane, call: Prepared, seed: int) -> tuple[str, Phases | None]:
    """Runs a call; answers what is wrong with its numbers, and its phases.

    What is wrong is ``NOTHING`` if no output has changed, and empty if they agree with the
    reference. Raises errors of the device.
    """
    storages: dict[str, Buffer] = {**sample_storages(call, seed)}
    ran = run(lane, [Step(call, storages)])
    (outputs,) = ran.outputs()
    wrong = difference(call, storages, outputs)
    return NOTHING if wrong and is_untouched(call, storages, outputs) else wrong, ran.phases


def difference(
    call: Prepared, storages: Mapping[str, Buffer], given: Sequence[Buffer], roundings: int = 1
) -> str:
    """What is wrong with the outputs, in words; empty if they agree with the reference.

    ``roundings``: how many calls led to the outputs, each on the result of the one before.
    """
    expected = evaluate.run(call, storages)
    for (name, spec), found, right in zip(call.outputs.items(), given, expected, strict=True):
        one, other = (np.frombuffer(each, spec.dtype.numpy) for each in (found, right))
        wrong = np.flatnonzero(~_near(one, other, spec.dtype, roundings))
        if wrong.size:
            shown = (_listed(numbers[wrong[:_SHOWN]]) for numbers in (other, one))
            said = f"{name}: {wrong.size} of {one.size} numbers are wrong"
            return "{}: expected {}, found {}".format(said, *shown)
    return ""


def is_untouched(call: Prepared, storages: Mapping[str, Buffer], given: Sequence[Buffer]) -> bool:
    """Whether no output changed in the launch: it still has sent bytes, zeros, or the pattern."""
    before = begun(call, storages)

    def is_as_before(name: str, found: Buffer) -> bool:
        byte = 0 if name in call.unwritten else memory.PATTERN
        return bytes(found) == bytes(before.get(name, bytes([byte]) * len(found)))

    return all(map(is_as_before, call.outputs, given))


def _near(found: Any, expected: Any, dtype: DType, roundings: int) -> Any:
    if dtype.kind not in ("float", "complex"):
        return found == expected
    wide = np.complex128 if dtype.kind == "complex" else np.float64
    one, other = found.astype(wide), expected.astype(wide)
    size = float(np.abs(other[np.isfinite(other)]).max(initial=0.0))
    tolerance = roundings * _TOLERANCES.get(dtype, _OTHERS) * size
    with np.errstate(invalid="ignore"):
        return np.isclose(one, other, rtol=0, atol=tolerance, equal_nan=True)


def _listed(numbers: Any) -> str:
    return ", ".join(str(n) if isinstance(n, int) else f"{n:.6g}" for n in numbers.tolist())

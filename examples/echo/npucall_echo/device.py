"""The device ``echo:N``: whatever the operator, each output is its first input.

It shows what a second kind of device consists of; a test opens it, and calls it over a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.operators import CATALOGUE
from npucall.places import StepOutput
from npucall.products import DEFAULT_SOC, product_of
from npucall.programs import at_step
from npucall_server.devices.base import Phases, Ran
from npucall_server.devices.host_memory import HostResident, as_asked, in_host_memory, memory_of
from npucall_server.devices.lane_pool import Lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import DType
    from npucall.errors import NpucallError
    from npucall.tensors import Buffer
    from npucall_server.devices.base import DeviceTurn, Pieces, Step
    from npucall_server.settings.server import ServerSettings


def open_echo(settings: ServerSettings, note: Callable[[str], None]) -> EchoDevice:
    """The entry point: what ``--device echo:N`` opens."""
    note(f"{settings.device} is open")
    return EchoDevice(settings)


class EchoDevice:
    """Takes calls on lanes, as an NPU does."""

    soc = DEFAULT_SOC
    product = product_of(DEFAULT_SOC)
    catalogue = CATALOGUE
    default_variant = "documented"

    def __init__(self, settings: ServerSettings) -> None:
        self.name, self.lanes = settings.device, settings.lanes
        self._lost: Callable[[NpucallError], None] = lambda _: None
        self._lanes = Lanes(EchoLane, settings.lanes, settings.device_timeout, self._report_lost)

    def unavailable_because(self, operator: object) -> str:
        del operator
        return ""

    def plan(self, call: Prepared, turn: DeviceTurn) -> int:
        with turn():
            return self._lanes.do(lambda lane: lane.plan(call))

    runs_in_calling_thread = False
    """Its lanes have threads of their own."""

    def run(self, steps: Sequence[Step], turn: DeviceTurn, pieces: Pieces | None = None) -> Ran:
        """Each step is a call on a lane, and takes its own turn."""
        del pieces
        results: dict[object, Any] = {}
        answers: list[list[Any]] = []
        for number, step in enumerate(steps):
            storages = {
                name: results.get(source, source) if isinstance(source, StepOutput) else source
                for name, source in in_host_memory(step.storages).items()
            }
            with at_step(number, of=len(steps)), turn():
                outputs = self._run(step.call, storages, turn, memory_of(step.targets))
            for name, output in zip(step.call.outputs, outputs, strict=True):
                results[StepOutput(number, name)] = output
            answers.append(as_asked(step.call, outputs, step.targets, step.discarded))
        return Ran(answers, Phases(1, 2, 3, 4))

    def takes_pieces(self, call: Prepared) -> bool:
        """It takes its inputs whole."""
        del call
        return False

    def program_bytes(self, steps: Sequence[Step]) -> int:
        """All outputs: each stays until the program has ended."""
        return sum(step.call.replied_bytes for step in steps)

    def allocate(self, nbytes: int, dtype: DType | None = None) -> HostResident:
        del dtype
        return HostResident(nbytes)

    memory_for_handles = 0
    """They hold host memory."""

    def working_bytes(self, call: Prepared) -> int:
        """Nothing beside the answer."""
        del call
        return 0

    def facts(self) -> None:
        """It is no hardware."""

    def watch(self, lost: Callable[[NpucallError], None]) -> None:
        self._lost = lost

    def close(self) -> None:
        self._lanes.close()

    def _run(
        self,
        call: Prepared,
        storages: Mapping[str, Any],
        turn: DeviceTurn,
        targets: Mapping[str, Buffer],
    ) -> list[Buffer]:
        return self._lanes.do(lambda lane: lane.run(call, storages, turn.check, targets))

    def _report_lost(self, error: NpucallError) -> None:
        self._lost(error)


class EchoLane:
    """One memory, into which the first input is copied, and from which outputs are."""

    broken = None
    spent = False

    def __init__(self) -> None:
        self._memory = bytearray()

    def plan(self, call: Prepared) -> int:
        sizes = *call.stored_bytes, *(spec.storage_bytes for spec in call.outputs.values())
        return sum(-(-size // 64) * 64 for size in sizes)

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Any],
        check: Callable[[], None],
        targets: Mapping[str, Buffer],
    ) -> list[Buffer]:
        self._memory[:] = storages[call.stored[0]]
        check()
        outputs: dict[str, Buffer] = dict(targets)
        for name, spec in call.outputs.items():
            length = spec.storage_bytes
            output = memoryview(outputs.setdefault(name, bytearray(length)))
            output[:] = self._memory[:length]
        return [outputs[name] for name in call.outputs]

    def empty(self) -> None:
        self._memory = bytearray()

    def close(self) -> None:
        self.empty()

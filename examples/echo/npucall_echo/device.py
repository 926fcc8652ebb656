"""The device ``echo:N``: whatever the operator, each output is its first input.

It shows what a second kind of device consists of; a test opens it, and calls it over a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.compute.evaluate import NO_TARGETS
from npucall.compute.steps import peak_bytes
from npucall.operators import CATALOGUE
from npucall.products import DEFAULT_SOC, product_of
from npucall_server.devices.base import Phases, Ran
from npucall_server.devices.host_memory import HostResident
from npucall_server.devices.lane_pool import Lanes
from npucall_server.devices.memory_map import memory_map_of
from npucall_server.devices.one_by_one import run_steps

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
        del pieces
        return run_steps(self._run, steps, turn)

    def takes_pieces(self, call: Prepared) -> bool:
        """It takes its inputs whole."""
        del call
        return False

    def program_bytes(self, steps: Sequence[Step]) -> int:
        return peak_bytes(steps)

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
        storages: Mapping[str, Buffer],
        turn: DeviceTurn,
        targets: Mapping[str, Buffer],
    ) -> Ran:
        with turn():
            return self._lanes.run(call, storages, turn.check, targets, turn.owner)

    def _report_lost(self, error: NpucallError) -> None:
        self._lost(error)


class EchoLane:
    """One memory, into which inputs are copied, and from which outputs are."""

    broken = None
    spent = False

    def __init__(self) -> None:
        self._memory = bytearray()

    def plan(self, call: Prepared) -> int:
        return memory_map_of(call, _bytes_taken).size

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Buffer],
        check: Callable[[], None],
        targets: Mapping[str, Buffer] = NO_TARGETS,
        owner: str = "",
    ) -> Ran:
        del owner  # its memory is new for each call
        memory_map = memory_map_of(call, _bytes_taken)
        self._memory = bytearray(memory_map.size)
        for name, start, length in memory_map.sent:
            self._memory[start : start + length] = storages[name]
        check()
        first = memory_map.sent[0].start
        outputs: dict[str, Buffer] = dict(targets)
        for name, _, length in memory_map.outputs:
            memoryview(outputs.setdefault(name, bytearray(length)))[:] = self._memory[
                first : first + length
            ]
        return Ran([[outputs[name] for name in call.outputs]], Phases(1, 2, 3, 4))

    def empty(self) -> None:
        self._memory = bytearray()

    def close(self) -> None:
        self.empty()


def _bytes_taken(length: int) -> int:
    return -(-length // 64) * 64

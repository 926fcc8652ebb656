"""One run of a program on lanes: what has been done of it, and what is to do.

Steps are queued one behind the other on the stream of a lane, and nobody waits between them: what a
step reads has been written before it in the order of the stream. That order is also why one
workspace serves all of them, and why memory is used again behind its last reader. After about 10 ms
of work the lane waits for its stream and is given back, so that others get their turn; the program
keeps its memory, and goes on with whatever lane comes: the synchronise orders the two streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall import buffers
from npucall.buffers import fresh_array
from npucall.declare.prepare import once_a_call
from npucall.errors import NpucallError
from npucall_server.devices.base import Phases
from npucall_server.devices.cann.memory import piece_bytes
from npucall_server.devices.cann.resident import address_of, is_aligned
from npucall_server.devices.program_map import program_map_of
from npucall_server.devices.unwritten import begun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import AnyArray
    from npucall_server.devices.base import Step
    from npucall_server.devices.cann.transfer import Transfer
    from npucall_server.devices.program_map import Place, ProgramMap, StepMap

SLICE_NS = 10_000_000
"""Work after which others have their turn."""
_UNKNOWN_NS = SLICE_NS / 32
"""What a step is taken to last at least, until one like it has been timed."""
_BYTES_A_NS = 100
"""Likewise, for each byte of its tensors."""


class Pace:
    """How long a call takes on the device, as far as that is known."""

    def __init__(self, nanoseconds: float) -> None:
        self.nanoseconds = nanoseconds

    def correct(self, factor: float) -> None:
        """It took so many times as long."""
        self.nanoseconds = max(self.nanoseconds * factor, 1.0)


@once_a_call
def pace_of(call: Prepared) -> Pace:
    """The pace of a call; shared by all who run it."""
    specs = (*call.inputs.values(), *call.outputs.values())
    size = sum(spec.storage_bytes for spec in specs)
    return Pace(max(size / _BYTES_A_NS, _UNKNOWN_NS))


def learn(steps: Sequence[Step], ran_ns: int) -> None:
    """Some steps took so long together; 0 is not known."""
    calls = [step.call for step in steps]
    expected = sum(pace_of(call).nanoseconds for call in calls)
    if ran_ns and expected:
        for call in dict.fromkeys(calls):
            pace_of(call).correct(ran_ns / expected)


class Program:
    """A run of steps for ``owner``, or of a single call. One lane at a time has it.

    ``careful``: wait behind every step, to know which one fails.
    """

    def __init__(
        self, steps: Sequence[Step], owner: str, *, is_call: bool = False, careful: bool = False
    ) -> None:
        self.owner, self._is_call = owner, is_call
        self.steps = [self._begun(number, step) for number, step in enumerate(steps)]
        self.map: ProgramMap = program_map_of(self.steps, piece_bytes, is_aligned)
        self.transfer: Transfer | None = None
        """Its memory, from its first step to its last."""
        self.next = 0
        """The step to be queued."""
        self.careful = careful or len(steps) == 1
        self._spent = [0, 0, 0, 0]
        self._arrays: dict[tuple[int, str], AnyArray] = {}

    @property
    def has_ended(self) -> bool:
        """Whether all has been queued."""
        return self.next == len(self.steps)

    def name_step(self, number: int, error: NpucallError) -> None:
        """Says in an error which step it was, unless this is a single call."""
        if not self._is_call:
            error.details.setdefault("step", str(number))

    def begin_again(self) -> None:
        """Nothing has been done."""
        self.next = 0
        self._spent = [0, 0, 0, 0]

    def begin(self, transfer: Transfer) -> None:
        """Reserves memory, clears what others left in it, and queues what comes from the host."""
        transfer.reserve_for_program(self.map.size, self.map.staged)
        transfer.clear()
        sent: list[tuple[int, Any]] = []
        for step, name, place, _ in self.map.sent:
            data: Any = self.steps[step].storages[name]
            if type(place) is int:
                sent.append((place, data))
            else:
                transfer.send_to(self._address(transfer, place), data)
        transfer.send_parts(sent, self.map.sent_end)

    def prepare(self, number: int, transfer: Transfer, zeros: int) -> dict[str, int]:
        """Queues what comes before the launch of a step; answers where its tensors lie.

        ``zeros``: the address of as many as the program's map says.
        """
        step: StepMap = self.map.steps[number]
        base = transfer.device(0)
        if step.moves or step.cleared or buffers.is_poisoned():
            self._fill(step, transfer)
        addresses = {
            name: base + place if type(place) is int else address_of(place)  # type: ignore[arg-type]
            for name, place in step.places.items()
        }
        for name in step.unread:
            addresses[name] = zeros
        return addresses

    def end(self, transfer: Transfer) -> None:
        """Queues what goes to the host, or takes it."""
        self._arrays = {(a.step, a.name): self._array(a.step, a.name) for a in self.map.answered}
        transfer.fetch_parts(self._answered(), self.map.staged)

    def collect(self, transfer: Transfer) -> None:
        """Fills the outputs, once the stream has passed: staging belongs to the next call."""
        transfer.collect_parts(self._answered())

    def _answered(self) -> list[tuple[int, AnyArray]]:
        return [(a.start, self._arrays[a.step, a.name]) for a in self.map.answered]

    def outputs(self) -> list[list[Any]]:
        """For each step what its outputs are, in order; None for what is discarded."""
        return [
            [self._output(number, step, name) for name in step.call.outputs]
            for number, step in enumerate(self.steps)
        ]

    def spend(self, *phases: int) -> None:
        """Adds to the nanoseconds of copying in, planning, running and copying out."""
        self._spent = [before + more for before, more in zip(self._spent, phases, strict=True)]

    @property
    def phases(self) -> Phases:
        """Where its time went."""
        return Phases(*self._spent)

    def _begun(self, number: int, step: Step) -> Step:
        try:
            storages = begun(step.call, step.storages)
        except NpucallError as error:
            self.name_step(number, error)
            raise
        return step if storages is step.storages else step._replace(storages=storages)

    def _output(self, number: int, step: Step, name: str) -> Any:
        target = step.targets.get(name)
        if target is not None:
            return target
        if name in step.discarded:
            return None
        array = self._arrays.get((number, name))
        return self._array(number, name).data if array is None else array.data

    def _array(self, number: int, name: str) -> AnyArray:
        step = self.steps[number]
        target = step.targets.get(name)
        if target is None:
            return fresh_array((step.call.outputs[name].storage_bytes,), np.uint8)
        return np.frombuffer(target, np.uint8)  # type: ignore[arg-type]  # handles are not answered

    def _fill(self, step: StepMap, transfer: Transfer) -> None:
        if buffers.is_poisoned():
            for place, length in step.written:
                transfer.fill(self._address(transfer, place), length, buffers.PATTERN)
        for place, length in step.cleared:
            transfer.fill(self._address(transfer, place), length)
        for move in step.moves:
            source, target = (self._address(transfer, p) for p in (move.source, move.target))
            transfer.copy_on_device(target, source, move.length)

    def _address(self, transfer: Transfer, place: Place) -> int:
        return transfer.device(place) if type(place) is int else address_of(place)  # type: ignore[arg-type]

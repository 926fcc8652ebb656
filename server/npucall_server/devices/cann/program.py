"""One run of a program on lanes: what is done, and what is still to do.

Steps are queued one after the other on the stream of a lane, without waiting between them. The
stream runs them in order, so a step finds its inputs written. For the same reason one workspace is
enough for all steps, and memory can be used again after its last reader. After about 10 ms of work
the lane waits for its stream and is given back, so that other calls get their turn. The program
keeps its memory and goes on with the next free lane: the synchronise orders the two streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npucall import memory
from npucall.declare.prepare import Prepared, once_a_call
from npucall.dtypes import AnyArray
from npucall.errors import NpucallError
from npucall.memory import fresh_array
from npucall_server.devices.base import Phases, Step
from npucall_server.devices.cann.device_memory import piece_bytes
from npucall_server.devices.cann.resident import address_of, is_aligned, residents
from npucall_server.devices.cann.transfer import Transfer
from npucall_server.devices.program_map import Place, ProgramMap, StepMap, program_map_of
from npucall_server.devices.unwritten import begun, set_in

SLICE_NS = 10_000_000
"""Nanoseconds of work after which other calls have their turn."""
_UNKNOWN_NS = SLICE_NS / 32
"""The assumed minimum duration of a step, until a step like it has been timed."""
_BYTES_A_NS = 100
"""The assumed speed for the bytes of its tensors, until then."""


class Pace:
    """How long a call takes on the device: an estimate until the call has been timed."""

    def __init__(self, nanoseconds: float) -> None:
        self.nanoseconds = nanoseconds

    def correct(self, factor: float) -> None:
        """Corrects the estimate: the call took ``factor`` times as long."""
        self.nanoseconds = max(self.nanoseconds * factor, 1.0)


@once_a_call
def pace_of(call: Prepared) -> Pace:
    """The pace of a call. All runs of the call share it."""
    specs = (*call.inputs.values(), *call.outputs.values())
    size = sum(spec.storage_bytes for spec in specs)
    return Pace(max(size / _BYTES_A_NS, _UNKNOWN_NS))


def learn(steps: Sequence[Step], ran_ns: int) -> None:
    """Corrects the paces of steps that took ``ran_ns`` together; 0 means unknown."""
    calls = [step.call for step in steps]
    expected = sum(pace_of(call).nanoseconds for call in calls)
    if ran_ns and expected:
        for call in dict.fromkeys(calls):
            pace_of(call).correct(ran_ns / expected)


@once_a_call
def _map_of(call: Prepared) -> ProgramMap:
    """The map of a call of which all bytes come from the host, and go there."""
    return program_map_of([Step(call, {})], piece_bytes, is_aligned)


class ProgramRun:
    """A run of several steps, or of a single call, for ``owner``. One lane at a time has it.

    ``careful``: wait after every step, to learn which one fails.
    """

    def __init__(self, steps: Sequence[Step], owner: str, *, careful: bool = False) -> None:
        self.owner, self._is_call = owner, len(steps) == 1
        self.steps = [
            step._replace(storages=begun(step.call, step.storages)) if step.call.unwritten else step
            for step in steps
        ]
        self.residents = [
            each
            for step in steps
            for each in residents(step.storages.values(), step.targets.values())
        ]
        """The memory of handles that it reads or writes."""
        is_plain = self._is_call and not (self.residents or steps[0].discarded)
        self.map: ProgramMap = (
            _map_of(steps[0].call)
            if is_plain
            else program_map_of(self.steps, piece_bytes, is_aligned)
        )
        self.transfer: Transfer | None = None
        """Its memory, from the first step to the last."""
        self.next = 0
        """Number of the step that is queued next."""
        self.careful = careful or self._is_call
        self._spent = [0, 0, 0, 0]
        self._sent: list[tuple[int, Any]] = []
        """What goes from the host into its own memory, in that order."""
        self._arrays: dict[tuple[int, str], AnyArray] = {}

    @property
    def has_ended(self) -> bool:
        """Whether all steps have been queued."""
        return self.next == len(self.steps)

    def name_step(self, number: int, error: NpucallError) -> None:
        """Adds the number of the step to an error, unless this is a single call."""
        if not self._is_call:
            error.details.setdefault("step", str(number))

    def begin_again(self) -> None:
        """Goes back to the first step."""
        self.next = 0
        self._spent = [0, 0, 0, 0]

    def reserve(self, transfer: Transfer) -> None:
        """Takes its memory. Raises OutOfMemoryError."""
        transfer.reserve(self.map.size, self.map.staged)

    def stage(self, transfer: Transfer) -> None:
        """Clears other owners' data in its memory, and prepares the copies from the host."""
        transfer.clear()
        if memory.is_poisoned():
            transfer.spoil(self.map.size)
        self._sent = [
            (place, self.steps[step].storages[name])
            for step, name, place, _ in self.map.sent
            if type(place) is int
        ]
        transfer.stage(self._sent)

    def send(self, transfer: Transfer) -> None:
        """Queues the copies from the host; those into handles are waited for."""
        if len(self._sent) < len(self.map.sent):
            for step, name, place, _ in self.map.sent:
                if type(place) is not int:
                    data: Any = self.steps[step].storages[name]
                    transfer.send_to(self._address(transfer, place), data)
        transfer.send(self._sent)
        self._sent = []

    def prepare(self, number: int, transfer: Transfer, zeros: int) -> dict[str, int]:
        """Queues the work before the launch of a step; answers the addresses of its tensors.

        ``zeros``: the address of zeros, as many as the program's map says.
        """
        step: StepMap = self.map.steps[number]
        base = transfer.device(0)
        if step.moves or step.cleared or memory.is_poisoned():
            self._fill(number, step, transfer)
        addresses = {
            name: base + place if type(place) is int else address_of(place)  # type: ignore[arg-type]
            for name, place in step.places.items()
        }
        for name in step.unread:
            addresses[name] = zeros
        return addresses

    def end(self, transfer: Transfer) -> None:
        """Queues the copies to the host, or copies at once."""
        self._arrays = {(a.step, a.name): self._array(a.step, a.name) for a in self.map.answered}
        transfer.fetch(self._answered())

    def collect(self, transfer: Transfer) -> None:
        """Fills the outputs when the stream is done: the next call will use the staging memory."""
        transfer.collect(self._answered())

    def _answered(self) -> list[tuple[int, AnyArray]]:
        return [(a.start, self._arrays[a.step, a.name]) for a in self.map.answered]

    def outputs(self) -> list[list[Any]]:
        """The outputs of each step, in order. A discarded output is None."""
        return [
            [self._output(number, step, name) for name in step.call.outputs]
            for number, step in enumerate(self.steps)
        ]

    def spend(self, *phases: int) -> None:
        """Adds nanoseconds to the times of copying in, planning, running and copying out."""
        self._spent = [before + more for before, more in zip(self._spent, phases, strict=True)]

    @property
    def phases(self) -> Phases:
        """How long each phase took in total."""
        return Phases(*self._spent)

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

    def _fill(self, number: int, step: StepMap, transfer: Transfer) -> None:
        if memory.is_poisoned():
            for place, length in step.written:
                transfer.fill(self._address(transfer, place), length, memory.PATTERN)
        for place, length in step.cleared:
            transfer.fill(self._address(transfer, place), length)
        for move in step.moves:
            source, target = (self._address(transfer, p) for p in (move.source, move.target))
            transfer.copy_on_device(target, source, move.length)
        for name, place in step.completed:
            call, address = self.steps[number].call, self._address(transfer, place)
            storage = transfer.fetch_from(address, call.outputs[name].storage_bytes)
            set_in(call, name, storage)
            transfer.send_to(address, storage.data)

    def _address(self, transfer: Transfer, place: Place) -> int:
        return transfer.device(place) if type(place) is int else address_of(place)  # type: ignore[arg-type]

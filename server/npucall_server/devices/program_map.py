"""Where the tensors of a call or a program lie: in memory that a lane gives, or in handles.

First come the tensors that are sent, then those that are answered, so that one copy sends
everything, and one copy fetches everything. Then come the tensors that only steps need. After the
last reader of such a tensor, its memory is used for another one. That is safe because the steps run
in order on one stream.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from npucall.declare.prepare import Prepared, once_a_call
from npucall.places import StepOutput
from npucall.programs import last_reads
from npucall_server.devices.base import ResidentPart, Step, Target, is_resident
from npucall_server.devices.unwritten import sent_outputs

Place: TypeAlias = "int | ResidentPart"
"""Where a tensor lies: at a byte of the program's memory, or in a part of a handle."""


class HostStorage(NamedTuple):
    """A storage that comes from the host before the first step."""

    step: int
    name: str
    place: Place
    length: int


class Answered(NamedTuple):
    """An output that goes to the host after the last step."""

    step: int
    name: str
    start: int
    length: int


class Move(NamedTuple):
    """A copy on the device before a step."""

    source: Place
    target: Place
    length: int


class StepMap(NamedTuple):
    """The tensors of a step. Those without elements, and those in the zeros, have no place."""

    places: Mapping[str, Place]
    moves: Sequence[Move]
    cleared: Sequence[tuple[Place, int]]
    """What is filled with zeros before the step, since the call may leave parts unwritten."""
    completed: Sequence[tuple[str, Place]]
    """Outputs that come from the device, and of which the call may leave parts unwritten."""
    written: Sequence[tuple[Place, int]]
    """What the call writes completely."""
    unread: Sequence[str]
    """Inputs whose values no kernel reads: they lie in the zeros."""


class ProgramMap(NamedTuple):
    """The places of a program."""

    steps: Sequence[StepMap]
    sent: Sequence[HostStorage]
    answered: Sequence[Answered]
    staged: int
    """How many bytes from the start on come from the host, or go to it."""
    size: int
    """Bytes in total, without the zeros."""
    zeros: int
    """Bytes of the longest input whose values no kernel reads. All such inputs share one place,
    which holds zeros."""


def program_map_of(
    steps: Sequence[Step],
    bytes_taken: Callable[[int], int],
    fits: Callable[[ResidentPart], bool],
) -> ProgramMap:
    """The map of a program.

    ``bytes_taken``: how much a tensor of a length takes on the device. ``fits``: whether a kernel
    can read a part of a handle where it lies; if not, the device copies the part first. For a
    program that is only planned, storages may be missing.
    """
    return _Maker(steps, bytes_taken, fits).made()


class _Tensor(NamedTuple):
    name: str
    length: int
    stored: bool
    """Whether its bytes go to the device before the call runs."""
    unproven: bool = False
    """Whether the call may leave some of it as it is."""


class _Tensors(NamedTuple):
    inputs: Sequence[_Tensor]
    outputs: Sequence[_Tensor]
    unread: int
    """Bytes of the longest input whose values no kernel reads."""


@once_a_call
def _tensors_of(call: Prepared) -> _Tensors:
    """The tensors of a call that have elements."""
    go_in, is_known = sent_outputs(call), call.operator.reference
    inputs = [
        _Tensor(name, spec.storage_bytes, name in call.stored)
        for name, spec in call.inputs.items()
        if spec.storage_bytes
    ]
    outputs = [
        _Tensor(name, spec.storage_bytes, name in go_in, not is_known or name in call.unwritten)
        for name, spec in call.outputs.items()
        if spec.storage_bytes
    ]
    unread = max((tensor.length for tensor in inputs if not tensor.stored), default=0)
    return _Tensors(inputs, outputs, unread)


class _Maker:
    """Lays out a program in two passes: first what the host sends or gets, then each step."""

    def __init__(
        self,
        steps: Sequence[Step],
        bytes_taken: Callable[[int], int],
        fits: Callable[[ResidentPart], bool],
    ) -> None:
        self._steps, self._taken, self._fits = steps, bytes_taken, fits
        self._tensors = [_tensors_of(step.call) for step in steps]
        self._ended = last_reads([step.storages for step in steps])
        self._read = {source for sources in self._ended for source in sources}
        self._places: dict[StepOutput, Place] = {}
        self._end = 0
        self._free: list[tuple[int, int]] = []
        """Free memory, as pairs: length, then start."""
        self._pieces: dict[int, int] = {}
        """Memory that only steps need: the length by the start."""

    def made(self) -> ProgramMap:
        sent_inputs = self._sent_inputs()
        sent_outputs = self._sent_outputs()
        answered = self._answered()
        staged = self._end
        steps = [self._step(number, sent_inputs) for number in range(len(self._steps))]
        sent = [*sent_inputs.values(), *sent_outputs]
        zeros = max((t.unread for t in self._tensors), default=0)
        return ProgramMap(steps, sent, answered, staged, self._end, zeros)

    def _sent_inputs(self) -> dict[tuple[int, str], HostStorage]:
        sent = {}
        for number, step in enumerate(self._steps):
            source_of = step.storages.get
            for name, length, stored, _ in self._tensors[number].inputs:
                if stored and type(source_of(name)) not in _ON_DEVICE:
                    sent[number, name] = HostStorage(number, name, self._bump(length), length)
        return sent

    def _sent_outputs(self) -> list[HostStorage]:
        """Outputs that are read too. They share no memory: they are there from the start."""
        sent = []
        for number, step in enumerate(self._steps):
            for name, length, stored, _ in self._tensors[number].outputs:
                if stored and type(step.storages.get(name)) not in _ON_DEVICE:
                    target = _handle(step.targets.get(name), length)
                    place = self._bump(length) if target is None else target
                    self._places[StepOutput(number, name)] = place
                    sent.append(HostStorage(number, name, place, length))
        return sent

    def _answered(self) -> list[Answered]:
        answered = []
        for number, step in enumerate(self._steps):
            for name, length, *_ in self._tensors[number].outputs:
                if name in step.discarded or is_resident(step.targets.get(name)):
                    continue
                place = self._places.get(StepOutput(number, name))
                start = place if isinstance(place, int) else self._bump(length)
                self._places[StepOutput(number, name)] = start
                answered.append(Answered(number, name, start, length))
        return answered

    def _step(self, number: int, sent: Mapping[tuple[int, str], HostStorage]) -> StepMap:
        step, tensors = self._steps[number], self._tensors[number]
        places: dict[str, Place] = {}
        moves: list[Move] = []
        cleared: list[tuple[Place, int]] = []
        completed: list[tuple[str, Place]] = []
        written: list[tuple[Place, int]] = []
        unread: list[str] = []
        scratch: list[int] = []
        for name, length, stored, _ in tensors.inputs:
            source = step.storages.get(name)
            if not stored:
                unread.append(name)
            elif type(source) is StepOutput:
                places[name] = self._places[source]
            elif type(source) is not ResidentPart:
                places[name] = sent[number, name].place
            elif self._fits(source):
                places[name] = source
            else:
                places[name] = start = self._take(length)
                scratch.append(start)
                moves.append(Move(source, start, length))
        for name, length, stored, unproven in tensors.outputs:
            place = places[name] = self._output(number, name, length)
            source = step.storages.get(name)
            if not stored:
                (cleared if unproven else written).append((place, length))
            elif isinstance(source, StepOutput | ResidentPart):
                begins = source if isinstance(source, ResidentPart) else self._places[source]
                moves.append(Move(begins, place, length))
                if name in step.call.unwritten:
                    completed.append((name, place))
        self._give_back(number, scratch)
        return StepMap(places, moves, cleared, completed, written, unread)

    def _output(self, number: int, name: str, length: int) -> Place:
        output = StepOutput(number, name)
        place = self._places.get(output)
        if place is None:
            place = _handle(self._steps[number].targets.get(name), length)
            if place is None:
                place = self._take(length)
            self._places[output] = place
        return place

    def _give_back(self, number: int, scratch: Sequence[int]) -> None:
        """Frees the memory that no later step needs."""
        outputs = (StepOutput(number, tensor.name) for tensor in self._tensors[number].outputs)
        gone = [*self._ended[number], *(output for output in outputs if output not in self._read)]
        for place in (*(self._places.get(output) for output in gone), *scratch):
            if isinstance(place, int) and (length := self._pieces.pop(place, 0)):
                insort(self._free, (length, place))

    def _take(self, length: int) -> int:
        """Memory that only steps need: the smallest free piece that is large enough, or new."""
        taken = self._taken(length)
        index = bisect_left(self._free, (taken, 0))
        if index < len(self._free):
            taken, start = self._free.pop(index)
        else:
            start = self._bump(length)
        self._pieces[start] = taken
        return start

    def _bump(self, length: int) -> int:
        start = self._end
        self._end += self._taken(length)
        return start


_ON_DEVICE = (StepOutput, ResidentPart)
"""Storages that do not come from the host."""


def _handle(target: Target | None, length: int) -> ResidentPart | None:
    """The handle's memory into which an output is written; None if the output goes elsewhere."""
    return ResidentPart(target, 0, length) if is_resident(target) else None

"""Programs: calls that run one after the other and use earlier results. Pure.

Every step passes the checks of a single call before the first step runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import ArgumentError, MessageError, NpucallError
from npucall.limits import MAX_PROGRAM_STEPS
from npucall.places import Digest, Discard, HandlePart, OutputPlace, Place, RegionPart, StepOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npucall.declare.prepare import Prepared


class at_step:  # noqa: N801  # used as a statement
    """Errors of the block name the step, unless it is the only one ``of`` a call."""

    def __init__(self, number: int, of: int = 0) -> None:
        self._number = None if of == 1 else number

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, NpucallError) and self._number is not None:
            error.details.setdefault("step", str(self._number))


class ProgramStep(NamedTuple):
    """A call of a program, and where its bytes are."""

    call: Prepared
    storage: Sequence[Place]
    """One for each of ``call.stored``; all None if the program is only planned."""
    output_places: Mapping[str, OutputPlace]

    @property
    def is_plain(self) -> bool:
        """Whether all of it travels with the program."""
        return not self.output_places and set(map(type, self.storage)) <= {memoryview}

    @property
    def results(self) -> Iterator[tuple[str, StepOutput]]:
        """The storages that earlier steps give, by name."""
        for name, place in zip(self.call.stored, self.storage, strict=True):
            if isinstance(place, StepOutput):
                yield name, place

    @property
    def stays_in_program(self) -> bool:
        """Whether nothing of it is in a region, a handle or a digest."""
        stored = not any(isinstance(p, RegionPart | HandlePart | Digest) for p in self.storage)
        return stored and all(isinstance(p, Discard) for p in self.output_places.values())

    @property
    def discarded(self) -> frozenset[str]:
        """Outputs that are not answered, nor kept."""
        return frozenset(
            name for name, place in self.output_places.items() if isinstance(place, Discard)
        )


@dataclass(frozen=True, eq=False)
class Program:
    """Steps that have passed every check. Counts as one call."""

    steps: Sequence[ProgramStep]

    def at(self, number: int) -> at_step:
        """Adds the number of the step to errors, if there are several steps."""
        return at_step(number, of=len(self.steps))

    @cached_property
    def _placed(self) -> list[tuple[int, ProgramStep]]:
        """The steps of which something is elsewhere, with their numbers."""
        steps = enumerate(self.steps)
        return [(number, step) for number, step in steps if not step.is_plain]

    @property
    def stays_in_program(self) -> bool:
        """Whether nothing of it is in a region, a handle or a digest."""
        return all(step.stays_in_program for _, step in self._placed)

    @cached_property
    def largest(self) -> tuple[str, int]:
        """The largest size: of a step, or of what the program holds at a time."""
        name, size = max((step.call.largest for step in self.steps), key=lambda item: item[1])
        return max((name, size), ("program", self.bytes_in_flight), key=lambda item: item[1])

    @cached_property
    def computation(self) -> int:
        """Elements that the largest step computes; between steps other calls get their turns."""
        return max(step.call.computation for step in self.steps)

    @cached_property
    def working_bytes(self) -> int:
        """Most bytes that the CPU reference holds, without those in flight and without blocks."""
        return max(step.call.working_bytes for step in self.steps)

    @cached_property
    def sent_bytes(self) -> int:
        """Bytes of the storages that come with it, in its message or in chunks, and of digests."""
        elsewhere = sum(
            size
            for _, step in self._placed
            for place, size in zip(step.storage, step.call.stored_bytes, strict=True)
            if isinstance(place, RegionPart | HandlePart | StepOutput)
        )
        return sum(step.call.sent_bytes for step in self.steps) - elsewhere

    @cached_property
    def replied_bytes(self) -> int:
        """Bytes of the outputs that go with the reply."""
        elsewhere = sum(
            step.call.outputs[name].storage_bytes
            for _, step in self._placed
            for name in step.output_places
        )
        return sum(step.call.replied_bytes for step in self.steps) - elsewhere

    @cached_property
    def bytes_in_flight(self) -> int:
        """Most bytes that it holds at a time: those received, and outputs that later steps need.

        Without outputs that are kept, or written where the caller wants them.
        """
        return self.sent_bytes + self.replied_bytes + (self._discarded_bytes if self._placed else 0)

    @property
    def _discarded_bytes(self) -> int:
        """Most bytes of outputs at a time that are there for later steps alone."""
        passing = [step.discarded for step in self.steps]
        made = [
            {name: step.call.outputs[name].storage_bytes for name in step.discarded}
            for step in self.steps
        ]
        return most_held([dict(step.results) for step in self.steps], made, passing)


def most_held(
    reads: Sequence[Mapping[str, object]],
    made: Sequence[Mapping[str, int]],
    passing: Sequence[frozenset[str]],
) -> int:
    """Most bytes at a time of what steps make: what is passing until it has been read last."""
    ended = last_reads(reads)
    read = {source for sources in ended for source in sources}
    held = peak = 0
    for number, own in enumerate(made):
        held += sum(own.values())
        peak = max(peak, held)
        unread = {StepOutput(number, name) for name in own} - read
        for step, output in (*ended[number], *unread):
            if output in passing[step]:
                held -= made[step].get(output, 0)
    return peak


def last_reads(storages: Sequence[Mapping[str, object]]) -> list[list[StepOutput]]:
    """For each step, by what it reads: the outputs of earlier ones that no later step reads."""
    last = {
        source: number
        for number, sources in enumerate(storages)
        for source in sources.values()
        if type(source) is StepOutput
    }
    ended: list[list[StepOutput]] = [[] for _ in storages]
    for source, number in last.items():
        ended[number].append(source)
    return ended


def prepare_program(
    calls: Sequence[tuple[bytes, Sequence[Place], Mapping[str, OutputPlace]]],
    prepared: Callable[[bytes], Prepared],
    *,
    planned: bool = False,
) -> Program:
    """Checks the calls of a program: each one's bytes, its storages, and places for its outputs.

    ``prepared`` checks a single call. ``planned``: storages may be missing. Raises the error of the
    first wrong step, with its number as ``details["step"]``.
    """
    if not 1 <= len(calls) <= MAX_PROGRAM_STEPS:
        raise MessageError(f"program: expected 1 to {MAX_PROGRAM_STEPS} steps, found {len(calls)}")
    steps: list[ProgramStep] = []
    for number, (call, storage, output_places) in enumerate(calls):
        with at_step(number):
            step = ProgramStep(prepared(call), storage, output_places)
            if planned or not step.is_plain:
                step = _checked(step, steps, planned=planned)
            else:
                step.call.check_sizes(tuple(map(len, storage)))  # type: ignore[arg-type]  # plain
        steps.append(step)
    return Program(steps)


def check_output_places(call: Prepared, places: Mapping[str, OutputPlace]) -> None:
    """Raises MessageError for the place of an output that the call does not have."""
    for name in places:
        if name not in call.outputs:
            raise MessageError(
                f"output_places: expected outputs of the call ({', '.join(call.outputs)}), found "
                f"{name!r}"
            )


def sizes(
    call: Prepared, storage: Sequence[Place], earlier: Sequence[ProgramStep] = ()
) -> list[int]:
    """Bytes of each storage, if its place tells; else what the call expects."""
    return [
        _size(place, earlier, expected)
        for place, expected in zip(storage, call.stored_bytes, strict=False)
    ] + [0] * (len(storage) - len(call.stored_bytes))


def _checked(step: ProgramStep, earlier: Sequence[ProgramStep], *, planned: bool) -> ProgramStep:
    """The step, of which only results are looked at where it is planned."""
    call, storage = step.call, step.storage
    if planned:
        storage = storage or [None] * len(call.stored)
        storage = [place if isinstance(place, StepOutput) else None for place in storage]
        step = step._replace(storage=storage)
    elif None in storage:
        raise MessageError(
            "storage: expected a place for its bytes, found none; a program cannot send chunks"
        )
    call.check_sizes(sizes(call, storage, earlier))
    check_output_places(call, step.output_places)
    for name, _ in step.results:
        if name in call.checked_inputs:
            raise ArgumentError(
                f"{name}: expected values that are known before the program runs, found an output "
                f"of the same program; {call.operator.name} checks them first, so keep that "
                "output and use it in a second program",
                parameter=name,
            )
    return step


def _size(place: Place, earlier: Sequence[ProgramStep], expected: int) -> int:
    if isinstance(place, StepOutput):
        return _result_bytes(place, earlier)
    if isinstance(place, HandlePart | RegionPart):
        return place.length
    return expected if place is None or isinstance(place, Digest) else len(place)


def _result_bytes(result: StepOutput, earlier: Sequence[ProgramStep]) -> int:
    if result.step >= len(earlier):
        raise MessageError(
            f"result: expected an output of an earlier step of the program, found one of step "
            f"{result.step}"
        )
    outputs = earlier[result.step].call.outputs
    spec = outputs.get(result.output)
    if spec is None:
        raise MessageError(
            f"result: expected outputs of step {result.step} ({', '.join(outputs)}), found "
            f"{result.output!r}"
        )
    return spec.storage_bytes

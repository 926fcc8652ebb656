"""The steps of a program, computed in order; results of earlier steps stay where they are.

The same code computes in the server's CPU device and in the client's ``local:``. Each step has the
bits that ``evaluate.run`` gives it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from npucall.compute import batching, evaluate
from npucall.compute.evaluate import NO_TARGETS
from npucall.compute.helpers import UNLIMITED, HeldTurn, Helpers, Turn
from npucall.compute.recipes import is_small
from npucall.declare.prepare import Prepared
from npucall.errors import NpucallError
from npucall.places import StepOutput
from npucall.programs import at_step, last_reads
from npucall.tensors import Buffer


class HostStep(NamedTuple):
    """A call of a program, in host memory."""

    call: Prepared
    storages: Mapping[str, Buffer | StepOutput]
    """By name; a ``StepOutput`` is what an earlier step of the same program gave."""
    targets: Mapping[str, Buffer] = NO_TARGETS
    """Memory for outputs, by name, as ``evaluate.run`` takes it."""
    discarded: frozenset[str] = frozenset()
    """Outputs that only later steps need."""


def run(
    steps: Sequence[HostStep], turn: Turn = UNLIMITED, helpers: Helpers | None = None
) -> list[list[Buffer | None]]:
    """Computes the steps; answers a storage for each output of each, None for what is discarded.

    A discarded output is freed after the last step that reads it. Consecutive small steps share a
    turn, and let waiting calls in every few ms; other steps take their turns like single calls. An
    error of a step has its number in ``details["step"]``. Values that a formula would refuse, as
    labels, are refused before the first step has written anything.
    """
    for number, step in enumerate(steps):
        if step.call.checked_inputs:
            with at_step(number), turn():
                evaluate.check_values(step.call, step.storages, turn.pause)  # type: ignore[arg-type]
    program = _Run(steps, helpers)
    for small, numbers in groupby(range(len(steps)), lambda n: is_small(steps[n].call)):
        if small:
            with turn():
                held = HeldTurn(turn)
                for batch in program.batches(numbers):
                    program.run_batch(batch, held)
        else:
            for number in numbers:
                program.run(number, turn)
    return program.answers


class _Run:
    """One run of a program."""

    def __init__(self, steps: Sequence[HostStep], helpers: Helpers | None) -> None:
        self._steps, self._helpers = steps, helpers
        self._ended = last_reads([step.storages for step in steps])
        self._read = {source for sources in self._ended for source in sources}
        self._results: dict[StepOutput, Buffer] = {}
        self.answers: list[list[Buffer | None]] = []

    def batches(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """Steps that follow each other, in groups of those that can be computed as one."""
        group: list[int] = []
        call, room = None, 0
        for number in numbers:
            step = self._steps[number]
            if step.call is not call or not room or not _is_plain(step):
                if group:
                    yield group
                group, call = [], step.call
                room = batching.most(step.call) if _is_plain(step) else 1
            group.append(number)
            room -= 1
        if group:
            yield group

    def run_batch(self, numbers: Sequence[int], turn: Turn) -> None:
        """Computes one of ``batches``."""
        if len(numbers) > 1:
            turn.pause()
            steps = [self._steps[number] for number in numbers]
            with suppress(NpucallError):  # one by one, so that the error names its step
                found = batching.run(steps[0].call, [step.storages for step in steps])  # type: ignore[misc]
                for number, outputs in zip(numbers, found, strict=True):
                    self._answer(number, outputs)
                return
        for number in numbers:
            self.run(number, turn)

    def run(self, number: int, turn: Turn) -> None:
        """Computes one step; those before it have been computed."""
        step, results = self._steps[number], self._results
        with at_step(number):
            turn.pause()
            storages = {
                name: results[source] if type(source) is StepOutput else source
                for name, source in step.storages.items()
            }
            outputs = evaluate.run(step.call, storages, turn, step.targets, self._helpers)  # type: ignore[arg-type]
        del storages
        self._answer(number, outputs)

    def _answer(self, number: int, outputs: Sequence[Buffer]) -> None:
        """A step has given this."""
        names, discarded = self._steps[number].call.outputs, self._steps[number].discarded
        pairs = zip(names, outputs, strict=True)
        self.answers.append([None if name in discarded else output for name, output in pairs])
        if not self._read:
            return
        for name, output in zip(names, outputs, strict=True):
            if (source := StepOutput(number, name)) in self._read:
                self._results[source] = output
        for source in self._ended[number]:
            del self._results[source]


def _is_plain(step: HostStep) -> bool:
    """Whether its bytes come with it, and all outputs are answered."""
    sources = step.storages.values()
    return not (step.targets or step.discarded or StepOutput in map(type, sources))

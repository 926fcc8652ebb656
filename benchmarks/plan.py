"""What a run measures, and in which order: quick for the goals, full for everything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from beside import BesideCase
from cases import Case, full_cases, quick_cases, service_series
from forwards import ForwardCase, forward_cases
from imports import ImportCase
from layers import LayerCase, layer_cases
from memory import ALL_WAYS as MEMORY_WAYS
from memory import QUICK_WAYS, MemoryCase
from most_used import used_cases
from operators import OperatorCase, operator_cases
from service import service
from stages import SIZES, stage_figures, stage_series, stages_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure, Series


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    cases: tuple[Case, ...]
    memory: tuple[MemoryCase, ...]
    beside: tuple[BesideCase, ...]
    operators: tuple[OperatorCase | ForwardCase | LayerCase, ...]
    stages: tuple[int, ...]
    imports: tuple[ImportCase, ...] = (ImportCase(),)

    def series(self) -> Iterator[Series]:
        """All that it will give a figure for."""
        for case in self.cases:
            yield from service_series(case)
        for memory in self.memory:
            yield from memory.series()
        for beside in self.beside:
            yield from beside.series()
        for operator in self.operators:
            yield from operator.series()
        for imported in self.imports:
            yield from imported.series()
        for size in self.stages:
            yield from stage_series(size)

    def figures(self, say: Callable[[str], object]) -> Iterator[Figure]:
        """Measures it all; ``say`` hears what comes next."""
        if self.cases:
            with service() as bench:
                for case in self.cases:
                    say(case.text())
                    yield from bench.figures(case)
        for part in (*self.memory, *self.beside, *self.operators, *self.imports):
            say(part.text())
            yield from part.figures()
        for size in self.stages:
            say(stages_text(size))
            yield from stage_figures(size)

    def shortened(self, rounds: int | None, seconds: float | None) -> Plan:
        """The same with another number of rounds, of seconds a way and round."""
        fewer = {} if rounds is None else {"rounds": rounds}
        shorter = {} if seconds is None else {"seconds": seconds}
        return replace(
            self,
            cases=tuple(replace(case, **fewer, **shorter) for case in self.cases),
            memory=tuple(replace(case, **fewer) for case in self.memory),
            beside=tuple(replace(case, **fewer) for case in self.beside),
            operators=tuple(replace(case, **fewer) for case in self.operators),
            imports=tuple(replace(case, **fewer) for case in self.imports),
        )

    def only(self, text: str) -> Plan:
        """What has this text in the name that is said before it is measured."""
        return Plan(
            tuple(case for case in self.cases if text in case.text()),
            tuple(case for case in self.memory if text in case.text()),
            tuple(case for case in self.beside if text in case.text()),
            tuple(case for case in self.operators if text in case.text()),
            tuple(size for size in self.stages if text in stages_text(size)),
            tuple(case for case in self.imports if text in case.text()),
        )


def quick() -> Plan:
    """About three minutes: the goals, and a little more for the plots."""
    return Plan(
        tuple(quick_cases()),
        (MemoryCase(QUICK_WAYS),),
        (BesideCase(),),
        (*operator_cases(5), *forward_cases(5), *layer_cases(5), *used_cases(5)),
        SIZES,
    )


def full() -> Plan:
    """About a quarter of an hour: everything."""
    return Plan(
        tuple(full_cases()),
        (MemoryCase(MEMORY_WAYS, rounds=5),),
        (BesideCase(rounds=7),),
        (*operator_cases(15), *forward_cases(15), *layer_cases(15), *used_cases(15)),
        SIZES,
    )

"""Random calls, round after round over the operators; a call that fails is made small.

The ``Runner`` judges each call by the same rules as all other cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from npucall.dtypes import DType
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.drawn_calls import drawn, drawn_again
from npucall_conformance.cases.draws import numbers_of, text_of
from npucall_conformance.reporting.report import CaseOutcome
from npucall_conformance.running.runner import Runner
from npucall_conformance.stating.statement import Statement

_ROUND = 20
"""Calls of an operator in a round."""
_SHARE, _GRACE = 0.1, 1.0
"""The share of the time for making one failure small; the seconds that it always has."""
_VALUES = re.compile(r"\[[^]]*\]|\([^)]*\)|[-+]?\d[\d.e+-]*|nan|inf")


@dataclass
class Fuzz:
    """Draws calls for a server, and compares its answers with the statements.

    The same seed draws the same calls, as long as there is time and the answers are the same.
    """

    runner: Runner
    """Its ``on_failure`` is called with each failure that is shown."""
    seconds: float
    dtypes: tuple[DType, ...] = ()
    """Calls are counted only under these dtypes; empty: all."""
    _known: set[tuple[str, ...]] = field(default_factory=set)
    """The kinds of failures that were shown."""

    def outcomes(self, statements: Sequence[Statement]) -> Iterator[CaseOutcome]:
        """Calls that passed; and of calls that failed in the same way, the smallest one found."""
        end, turn, product = monotonic() + self.seconds, 0, self.runner.first.server.product
        left = [s for s in statements if {*s.takes.get(product, ())} & {*(self.dtypes or s.dtypes)}]
        while left and monotonic() < end and not self.runner.first.gone:
            for statement in left:
                yield from self._round(statement, turn, end)
            turn += 1

    def _round(self, statement: Statement, turn: int, end: float) -> Iterator[CaseOutcome]:
        """Some calls of one operator."""
        for number in range(turn * _ROUND, (turn + 1) * _ROUND):
            if monotonic() >= end:
                return
            case = drawn(statement, f"{self.runner.seed}/{number}")
            if self.dtypes and case.dtype not in self.dtypes:
                continue
            outcome, _ = self.runner.judged(case)
            if outcome.status == "failed" and _kind(case, outcome) not in self._known:
                self._known.add(_kind(case, outcome))
                yield self._smallest(statement, case, outcome)
            elif outcome.status == "passed" or outcome.lowers:
                yield outcome
                if outcome.lowers:
                    return

    def _smallest(self, statement: Statement, case: Case, outcome: CaseOutcome) -> CaseOutcome:
        """The failure of the smallest call that fails alike."""
        end, kind = monotonic() + max(self.seconds * _SHARE, _GRACE), _kind(case, outcome)
        left = _smaller(case)
        while monotonic() < end and (text := next(left, "")):
            other = drawn_again(statement, text)
            found, _ = self.runner.judged(other)
            if found.status == "failed" and _kind(other, found) == kind and _is_less(other, case):
                case, outcome, left = other, found, _smaller(other)
        again, seen = self.runner.judged(case)
        if again.status != "failed":
            remark = "the same call does not fail each time"
            return replace(outcome, problems=(*outcome.problems, remark))
        if seen is not None and self.runner.on_failure is not None:
            self.runner.on_failure(seen)
        return again


def _kind(case: Case, outcome: CaseOutcome) -> tuple[str, ...]:
    """The first problem without its numbers; failures that have the same are shown once."""
    rows = [row.row for row in case.defects[:1]]
    return (outcome.title, outcome.dtype, _VALUES.sub("", outcome.problems[0]), *rows)


def _numbers(case: Case) -> list[int]:
    return numbers_of(case.id.rpartition("/")[2])


def _is_less(one: Case, other: Case) -> bool:
    numbers, others = _numbers(one), _numbers(other)
    return (len(numbers), numbers) < (len(others), others)


def _smaller(case: Case) -> Iterator[str]:
    """Texts of simpler calls: without a part of the numbers, or with a smaller one."""
    numbers = _numbers(case)
    size = len(numbers)
    while size := size // 2:
        for start in range(0, len(numbers), size):
            yield text_of(numbers[:start] + numbers[start + size :])
            yield text_of([*numbers[:start], *[0] * size, *numbers[start + size :]][: len(numbers)])
    for place, number in enumerate(numbers):
        for less in dict.fromkeys((number // 2, number - 1)) if number else ():
            yield text_of([*numbers[:place], less, *numbers[place + 1 :]])

"""Round after round over the operators, until the time is up; failing calls are made small."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from time import monotonic

from hypothesis import Phase, Verbosity, find, reject, settings
from hypothesis.errors import Flaky, NoSuchExample, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from npucall.dtypes import DType
from npucall_conformance.cases.case import Case
from npucall_conformance.fuzz.draws import Draws, drawn
from npucall_conformance.fuzz.random_calls import Within, invalid, valid, words
from npucall_conformance.reporting.report import CaseOutcome
from npucall_conformance.running.runner import Evidence, Runner
from npucall_conformance.stating.statement import Statement

_FIRST, _MOST = 10, 100
"""Calls of an operator in the first round, and in the fifth and all after it."""
_WRONG = 4
"""Of so many calls one is invalid."""
_SHARE, _GRACE = 0.1, 1.0
"""The share of the time for making one failure small; the seconds that it always has."""


class _EnoughError(BaseException):
    """The time is up. It is no ``Exception``, since Hypothesis would take that for a failure."""


class _Drawn:
    """A case that Hypothesis prints in a few words."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __repr__(self) -> str:
        return self.case.id


@dataclass
class Failure:
    """A call that failed."""

    case: Case
    outcome: CaseOutcome
    evidence: Evidence | None
    """None if the suite itself failed."""

    @property
    def size(self) -> tuple[int, int]:
        """The bytes of the call's tensors, and the length of its description."""
        storages = self.evidence.call.storages.values() if self.evidence else ()
        return sum(map(len, storages)), len(words(self.case))

    @property
    def kind(self) -> tuple[str, ...]:
        """The problems without their numbers; failures with the same problems are shown once."""
        problem = re.sub(r"\[[^]]*\]|\([^)]*\)|[-+]?\d[\d.e+-]*|nan|inf", "", self._first)
        rows = [row.row for row in self.case.defects[:1]]
        return (self.outcome.title, self.outcome.dtype, problem, *rows)

    @property
    def _first(self) -> str:
        return self.outcome.problems[0]


@dataclass
class _Hunt:
    """One search: draws until a call fails in a new way, then looks for smaller ones."""

    end: float
    seconds: float
    """How long making a failure small may take."""
    known: set[tuple[str, ...]]
    judge: Callable[[Case], tuple[CaseOutcome, Evidence | None]]
    passed: list[CaseOutcome] = field(default_factory=list)
    found: Failure | None = None
    """The smallest failure so far."""

    def fails(self, drawn: _Drawn) -> bool:
        """Whether a call fails in a new way; after the first such call, whether it fails alike."""
        case = drawn.case
        if monotonic() >= self.end:
            raise _EnoughError
        outcome, evidence = self.judge(case)
        if outcome.status == "skipped":
            if outcome.lowers:
                self.passed.append(outcome)
                raise _EnoughError
            reject()
        if outcome.status == "passed":
            if self.found is None:
                self.passed.append(outcome)
            return False
        failure = Failure(case, outcome, evidence)
        if failure.kind in self.known or (self.found and failure.kind != self.found.kind):
            return False
        if self.found is None:
            self.end = min(monotonic() + self.seconds, self.end + _GRACE)
        if self.found is None or failure.size <= self.found.size:
            self.found = failure
        return True


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
    _keep: Callable[[Evidence], None] | None = None
    _known: set[tuple[str, ...]] = field(default_factory=set)
    _evidence: Evidence | None = None

    def __post_init__(self) -> None:
        self._keep, self.runner.on_failure = self.runner.on_failure, self._note

    def outcomes(self, statements: Sequence[Statement]) -> Iterator[CaseOutcome]:
        """Calls that passed; and of calls that failed in the same way, the smallest one found."""
        left = [each for each in statements if self._calls(each) is not None]
        end = monotonic() + self.seconds
        turn = 0
        while left and monotonic() < end and not self.runner.first.gone:
            for statement in left:
                yield from self._search(statement, turn, end)
            turn += 1

    def _search(self, statement: Statement, turn: int, end: float) -> Iterator[CaseOutcome]:
        """Some calls of one operator, up to one that fails."""
        calls = self._calls(statement)
        if calls is None or monotonic() >= end:
            return
        many = min(_FIRST << min(turn, 9), _MOST)
        random = Random(f"{self.runner.seed}/{turn}/{statement.title}")  # noqa: S311  # no secret
        hunt = _Hunt(end, max(self.seconds * _SHARE, _GRACE), self._known, self._judge)
        remark = ""
        try:
            find(calls, hunt.fails, settings=_settings(many), random=random)
        except (NoSuchExample, Unsatisfiable, _EnoughError):
            pass
        except Flaky:
            remark = "the same call does not fail each time"
        yield from hunt.passed
        if hunt.found is not None:
            self._known.add(hunt.found.kind)
            yield self._shown(hunt.found, remark)

    def _calls(self, statement: Statement) -> SearchStrategy[_Drawn] | None:
        """The calls that can be drawn of an operator; None if the filters leave nothing."""
        product = self.runner.first.server.product
        within = Within(product, statement.takes.get(product, ()), self.dtypes)
        if not any(map(within.wants, statement.dtypes)):
            return None
        wrong = [row for row in statement.invalid if not row.products or product in row.products]
        asked = within.wants(statement.dtypes[0])

        def call(draw: Draws) -> _Drawn:
            if wrong and asked and draw.seldom(_WRONG):
                return _Drawn(invalid(draw, statement, wrong))
            return _Drawn(valid(draw, statement, within))

        return drawn(call)

    def _judge(self, case: Case) -> tuple[CaseOutcome, Evidence | None]:
        self._evidence = None
        (outcome,) = self.runner.run([case])
        return outcome, self._evidence

    def _note(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def _shown(self, failure: Failure, remark: str) -> CaseOutcome:
        said = (*failure.outcome.problems, remark, f"drawn: {words(failure.case)}")
        outcome = replace(failure.outcome, problems=tuple(filter(None, said)))
        if failure.evidence is not None and self._keep is not None:
            self._keep(replace(failure.evidence, outcome=outcome))
        return outcome


def _settings(many: int) -> settings:
    return settings(
        max_examples=many, database=None, deadline=None, verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip

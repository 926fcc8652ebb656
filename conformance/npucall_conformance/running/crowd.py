"""``Observation``: a call that is looked at again; by several callers at once, and repeatedly."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from npucall.errors import NpucallError
from npucall_conformance.cases.blocks import cases_of
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.made_call import MadeCall, call_of
from npucall_conformance.judging.check import Expectation, check, expectation_of
from npucall_conformance.judging.differences import differences
from npucall_conformance.reporting.report import CaseOutcome
from npucall_conformance.running.not_judged import applies
from npucall_conformance.running.subject import Subject
from npucall_conformance.statements import statements
from npucall_conformance.wire import AnswerOrError

if TYPE_CHECKING:
    from npucall_conformance.running.runner import Runner


@dataclass
class Observation:
    """A call that a server has answered, and what came of it."""

    runner: Runner
    """How it is judged."""
    outcome: CaseOutcome
    case: Case
    call: MadeCall
    expectation: Expectation
    answer: AnswerOrError
    truth_ns: int
    """The time for making the data and the truth."""
    paths: list[str] = field(default_factory=list)
    """The paths by which the call was sent, and its answers compared."""
    paths_skipped: dict[str, str] = field(default_factory=dict)
    """The paths that the call could not take, each with the reason."""

    @property
    def subject(self) -> Subject:
        """The server."""
        return self.runner.first


CALLERS = 8
"""So many threads call at once in cases about that."""
_STEPS = (1, 5, 11, 17, 23, 31, 41)
"""Distances, in the list of all statements, from a statement to the others in its crowd."""
_KEPT = 64
"""So many calls are kept with their truth, since each is in the crowds of several statements."""
_Made: TypeAlias = tuple[MadeCall, Expectation]
_made: dict[tuple[str, int, str], _Made] = {}


@cache
def callers() -> ThreadPoolExecutor:
    """``CALLERS`` threads. They are kept, since starting one takes longer than a small call."""
    return ThreadPoolExecutor(CALLERS, "caller")


def repeated(seen: Observation) -> list[str]:
    """What differs if the call is sent once more, and then several times at once."""
    if isinstance(seen.answer, NpucallError):
        return []
    again = [seen.subject.ask(seen.call)]
    again += callers().map(lambda _: seen.subject.ask(seen.call), range(CALLERS))
    found = (each for other in again for each in differences(seen.answer, other))
    return [f"repeated: {problem}" for problem in found][:1]


def crowd(seen: Observation) -> list[str]:
    """What is wrong when eight callers ask for different things at once, again and again.

    The first answer to each call is compared with its truth, later ones with the first. In every
    round each call is sent once, by another caller than in the round before. Then one call is
    repeated alone, until it has been sent as often as the run repeats calls.
    """
    if isinstance(seen.answer, NpucallError):
        return []
    ask, cases = seen.subject.ask, list(_members(seen))
    made = [_made_call(case, seen) for case in cases]
    first = list(callers().map(lambda both: ask(both[0]), made))

    def problem_of(member: int, round_: str) -> list[str]:
        found = differences(first[member], ask(made[member][0]))
        return [f"crowd: {cases[member].id}, {round_}: {problem}" for problem in found[:1]]

    def caller(number: int) -> list[str]:
        for turn in range(seen.runner.rounds):
            if found := problem_of((number + turn) % len(cases), f"round {turn + 1}"):
                return found
        return []

    wrong = [
        f"crowd: {case.id}: {problem}"
        for case, (_, expectation), answer in zip(cases, made, first, strict=True)
        for problem in check(expectation, answer, seen.runner.profile).problems
    ]
    wrong = wrong or [each for found in callers().map(caller, range(len(cases))) for each in found]
    for turn in range(seen.runner.rounds, seen.runner.repeat):
        wrong = wrong or problem_of(0, f"call {turn + 1}")
    return wrong


def _members(seen: Observation) -> Iterator[Case]:
    """Eight cases: of this statement, with other values, dtypes and a defect, and of others."""
    own, subject, every = seen.case, seen.subject, statements()
    place = [each.title for each in every].index(own.statement.title)
    beside = [case for case in cases_of(own.statement, "crowd") if case.id != own.id]
    found = [case for case in beside if applies(case, subject)][:2]
    found += islice(cases_of(own.statement, "invalid"), 1, 2)
    for turn, step in enumerate(_STEPS):
        other = every[(place + step) % len(every)]
        taken = [case for case in cases_of(other, "crowd") if applies(case, subject)]
        found += taken[turn % len(taken) :][:1] if taken else []
    yield from (own, replace(own, id=f"{own.id}-other-values"), *found[: CALLERS - 2])


def _made_call(case: Case, seen: Observation) -> _Made:
    """The call of a case with its truth; the last ones are kept."""
    key = case.id, seen.runner.seed, seen.subject.server.product
    if key not in _made:
        if len(_made) >= _KEPT:
            _made.clear()
        call = call_of(case, *key[1:])
        _made[key] = call, expectation_of(case, call)
    return _made[key]

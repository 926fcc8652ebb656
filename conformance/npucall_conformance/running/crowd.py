"""``Observation``: a call that is looked at again; by several callers at once, and repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import islice
from typing import TypeAlias

from npucall.errors import NpucallError
from npucall_client.base import opened
from npucall_client.client import Client
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS
from npucall_conformance.cases.blocks import cases_of
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.made_call import MadeCall, call_of
from npucall_conformance.judging.check import Expectation, check, described, expectation_of
from npucall_conformance.running.not_judged import applies
from npucall_conformance.running.subject import Subject
from npucall_conformance.statements import statements
from npucall_conformance.stating.statement import Statement
from npucall_conformance.wire import ServerAdapter, WireAnswer


@dataclass
class PathsTaken:
    """The paths by which a call was sent."""

    paths: list[str] = field(default_factory=list)
    """The paths whose answers were compared."""
    skipped: dict[str, str] = field(default_factory=dict)
    """The paths that the call could not take, each with the reason."""


@dataclass(frozen=True)
class Observation:
    """A call that a server has answered."""

    subject: Subject
    case: Case
    call: MadeCall
    expectation: Expectation
    answer: WireAnswer | NpucallError
    profile: str
    seed: int = 0
    rounds: int = 1
    repeat: int = 1
    allow_missing: bool = False
    """See Runner."""
    taken: PathsTaken = field(default_factory=PathsTaken)
    """A look that sends the call by several paths notes them here."""


CALLERS = 8
"""So many threads call at once in cases about that."""


@cache
def callers() -> ThreadPoolExecutor:
    """``CALLERS`` threads. They are kept, since starting one takes longer than a small call."""
    return ThreadPoolExecutor(CALLERS, "caller")


def repeated(seen: Observation) -> list[str]:
    """What differs if the call is sent once more, and then several times at once."""
    if isinstance(seen.answer, NpucallError):
        return []
    subject, call = seen.subject, seen.call
    at_once = callers().map(lambda _: subject.ask(call), range(CALLERS))
    again = [subject.ask(call), *at_once]
    for other in again:
        if isinstance(other, NpucallError):
            return [f"repeated: expected an answer, found {described(other)}"]
        if other.storages != seen.answer.storages:
            return ["repeated: expected the same bits, found others"]
    return []


_Ask: TypeAlias = "Callable[[MadeCall], WireAnswer | NpucallError]"
_STEPS = (1, 5, 11, 17, 23, 31, 41)
"""Distances, in the list of all statements, from a statement to the others in its crowd."""
_KEPT = 64
"""So many calls are kept with their truth, since each is in the crowds of several statements."""


@dataclass(frozen=True)
class _Member:
    """A call of a crowd, with its first answer."""

    case: str
    call: MadeCall
    expectation: Expectation
    answer: WireAnswer | NpucallError


class _Second:
    """A second connection to the same server: half of the callers use it.

    If it cannot be opened, or no longer be used, they use the first.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._client: Client | None = None
        if not subject.is_elsewhere:
            return
        client = subject.client
        if not isinstance(client._transport, ServerTransport):  # noqa: SLF001  # what Client hides
            return
        settings = client._settings  # noqa: SLF001
        with suppress(NpucallError):
            self._client = Client(finished(opened(settings, THREADS)), settings)
            self.subject = replace(subject, adapter=ServerAdapter(self._client))

    def close(self) -> None:
        """Closes what was opened."""
        if self._client is not None:
            self._client.close()


def crowd(seen: Observation) -> list[str]:
    """What is wrong when eight callers ask for different things at once, again and again.

    The first answer to each call is compared with its truth, later ones with the first. In every
    round each call is sent once, by another caller than in the round before.
    """
    if isinstance(seen.answer, NpucallError):
        return []
    cases = list(_members(seen))
    made = [_made(_Key(case, seen.seed, seen.subject.server.product)) for case in cases]
    asks = (seen.subject.ask, seen.subject.once(_Second).subject.ask) * (CALLERS // 2)
    first = list(callers().map(lambda ask, made: ask(made[0]), asks, made))
    members = [
        _Member(case.id, *both, answer)
        for case, both, answer in zip(cases, made, first, strict=True)
    ]
    problems = [
        f"crowd: {member.case}: {problem}"
        for member in members
        for problem in check(member.expectation, member.answer, seen.profile).problems
    ]
    return problems or _at_once(seen, members, asks) or _over_and_over(seen, members[0])


def _at_once(seen: Observation, members: list[_Member], asks: Sequence[_Ask]) -> list[str]:
    """Runs rounds of all calls; a caller ends when an answer differs from the first."""

    def caller(number: int) -> list[str]:
        for turn in range(seen.rounds):
            member = members[(number + turn) % len(members)]
            problem = _differs(member, asks[number](member.call))
            if problem:
                return [f"crowd: {member.case}, round {turn + 1}: {problem}"]
        return []

    found = callers().map(caller, range(len(members)))
    return [problem for problems in found for problem in problems]


def _over_and_over(seen: Observation, member: _Member) -> list[str]:
    """Repeats one call alone, until it has been sent as often as the run repeats calls."""
    for turn in range(seen.rounds, seen.repeat):
        problem = _differs(member, seen.subject.ask(member.call))
        if problem:
            return [f"crowd: {member.case}, call {turn + 1}: {problem}"]
    return []


def _differs(member: _Member, answer: WireAnswer | NpucallError) -> str:
    """How an answer differs from the first; empty if it does not."""
    if isinstance(answer, NpucallError) or isinstance(member.answer, NpucallError):
        before, now = (
            described(each) if isinstance(each, NpucallError) else "an answer"
            for each in (member.answer, answer)
        )
        return "" if before == now else f"expected {before}, as before, found {now}"
    same = answer.storages == member.answer.storages and answer.outputs == member.answer.outputs
    return "" if same else "expected the bits of the first answer, found others"


def _members(seen: Observation) -> Iterator[Case]:
    """Eight cases: of this statement, with other values, dtypes and a defect, and of others."""
    own = seen.case
    yield own
    yield replace(own, id=f"{own.id}-other-values")
    found = [
        case
        for case in cases_of(own.statement, "crowd")
        if case.id != own.id and applies(case, seen.subject)
    ][:2]
    found += islice(cases_of(own.statement, "invalid"), 1, 2)
    for other, turn in zip(_beside(seen), range(CALLERS), strict=False):
        taken = [case for case in cases_of(other, "crowd") if applies(case, seen.subject)]
        found += taken[turn % len(taken) :][:1] if taken else []
    yield from found[: CALLERS - 2]


def _beside(seen: Observation) -> Iterator[Statement]:
    """Other statements that the server has."""
    every = statements()
    titles = [each.title for each in every]
    place = titles.index(seen.case.statement.title)
    for step in _STEPS:
        other = every[(place + step) % len(every)]
        if other.title in seen.subject.dtypes and seen.subject.server.product in other.takes:
            yield other


@dataclass(frozen=True)
class _Key:
    """The key of a kept call: everything from which it is made."""

    case: Case
    seed: int
    product: str

    def __hash__(self) -> int:
        return hash((self.case.id, self.seed, self.product))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (self.case.id, self.seed, self.product) == (
            other.case.id, other.seed, other.product,
        )  # fmt: skip


@lru_cache(_KEPT)
def _made(key: _Key) -> tuple[MadeCall, Expectation]:
    call = call_of(key.case, key.seed, key.product)
    return call, expectation_of(key.case, call)

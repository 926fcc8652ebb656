"""The call that a look gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall.errors import NpucallError
    from npucall_conformance.cases.calls import MadeCall
    from npucall_conformance.cases.case import Case
    from npucall_conformance.judging.check import Expectation
    from npucall_conformance.running.judged import Judged
    from npucall_conformance.wire import Answer


@dataclass
class Taken:
    """The paths by which a call was sent."""

    paths: list[str] = field(default_factory=list)
    """The paths whose answers were compared."""
    skipped: dict[str, str] = field(default_factory=dict)
    """The paths that the call could not take, each with the reason."""


@dataclass(frozen=True)
class Seen:
    """A call that a server has answered."""

    judged: Judged
    case: Case
    call: MadeCall
    expectation: Expectation
    answer: Answer | NpucallError
    profile: str
    seed: int = 0
    rounds: int = 1
    repeat: int = 1
    allow_missing: bool = False
    """See Runner."""
    taken: Taken = field(default_factory=Taken)
    """A look that sends the call by several paths notes them here."""

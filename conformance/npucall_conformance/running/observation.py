"""The call that a look gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall.errors import NpucallError
    from npucall_conformance.cases.case import Case
    from npucall_conformance.cases.made_call import MadeCall
    from npucall_conformance.judging.check import Expectation
    from npucall_conformance.running.subject import Subject
    from npucall_conformance.wire import WireAnswer


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

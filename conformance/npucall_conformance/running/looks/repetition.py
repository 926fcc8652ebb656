"""Whether the same call has the same bits again, alone and among others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_conformance.judging.check import described
from npucall_conformance.running.callers import CALLERS, callers

if TYPE_CHECKING:
    from npucall_conformance.running.looks.observation import Observation


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

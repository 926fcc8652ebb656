"""What the doctor has to say: findings in sections."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class Verdict(StrEnum):
    """How a finding is meant."""

    OK = "ok"
    WARNING = "warning"
    """The server may run all the same."""
    FAULT = "FAULT"
    """The server will not run, or answers wrongly."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    verdict: Verdict
    found: str
    todo: str = ""
    """What to do about it; empty for what is well."""
    settles: tuple[str, ...] = ()
    """Keys of the claims of ``unverified`` that it answers: they hold if the verdict is ok."""
    times: tuple[tuple[str, float], ...] = ()
    """Milliseconds of its steps."""


class Section(NamedTuple):
    """The findings that follow, up to the next section, belong here."""

    title: str
    doing: str
    """What is done meanwhile: said where it crashes or does not end."""


class Facts(NamedTuple):
    """What the device and its software say of themselves, by name."""

    facts: tuple[tuple[str, str], ...]


Message: TypeAlias = Section | Finding | Facts


def ok(found: str, *settles: str, times: Mapping[str, float] | None = None) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, found, "", settles, tuple((times or {}).items()))


def warning(found: str, todo: str, *settles: str) -> Finding:
    """Something to look at; the server may run."""
    return Finding(Verdict.WARNING, found, todo, settles)


def fault(found: str, todo: str, *settles: str) -> Finding:
    """Something that has to be mended."""
    return Finding(Verdict.FAULT, found, todo, settles)

"""The messages of the doctor: findings in sections."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class Verdict(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    """The server may still run."""
    FAULT = "FAULT"
    """The server will not run, or gives wrong answers."""


class Finding(NamedTuple):
    """The result of one check."""

    verdict: Verdict
    found: str
    todo: str = ""
    """What to do about it; empty if all is well."""
    settles: tuple[str, ...] = ()
    """Keys of the claims of ``unverified`` that it answers: they hold if the verdict is ok."""
    times: tuple[tuple[str, float], ...] = ()
    """Milliseconds of the steps of the check."""


class Section(NamedTuple):
    """The title of the findings that follow, up to the next section."""

    title: str
    doing: str
    """What runs meanwhile: part of the message if it crashes or does not end."""


class Facts(NamedTuple):
    """What the device and its software say about themselves, by name."""

    facts: tuple[tuple[str, str], ...]


Message: TypeAlias = Section | Finding | Facts


def ok(found: str, *settles: str, times: Mapping[str, float] | None = None) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, found, "", settles, tuple((times or {}).items()))


def warning(found: str, todo: str, *settles: str) -> Finding:
    """Something to look at; the server may run."""
    return Finding(Verdict.WARNING, found, todo, settles)


def fault(found: str, todo: str, *settles: str) -> Finding:
    """Something that has to be fixed."""
    return Finding(Verdict.FAULT, found, todo, settles)

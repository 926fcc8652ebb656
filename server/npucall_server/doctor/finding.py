"""What the doctor has to say: findings in sections."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


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


class Section(NamedTuple):
    """The findings that follow, up to the next section, belong here."""

    title: str
    doing: str
    """What is done meanwhile: said where it crashes or does not end."""


def ok(found: str) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, found)


def warning(found: str, todo: str) -> Finding:
    """Something to look at; the server may run."""
    return Finding(Verdict.WARNING, found, todo)


def fault(found: str, todo: str) -> Finding:
    """Something that has to be mended."""
    return Finding(Verdict.FAULT, found, todo)

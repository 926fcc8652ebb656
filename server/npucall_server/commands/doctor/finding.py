"""The messages of the doctor: findings in sections."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from npucall.errors import NpucallError
from npucall_server.devices.cann.advice import advice

WRONG = (
    "wrong numbers: do not use this device. Run `npucall conform` for the extent of it, and send "
    "the report (--report)"
)
"""What to do about these errors."""


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
    section: str = ""


class Section(NamedTuple):
    """The title of the findings that follow, up to the next section."""

    title: str
    doing: str = ""
    """What runs meanwhile: part of the message if it crashes or does not end."""


Message: TypeAlias = Section | Finding | dict[str, str]
"""The last one is what the device and its software say about themselves, by name."""


def ok(found: str, *settles: str) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, found, "", settles)


def warning(found: str, todo: str, *settles: str) -> Finding:
    """Something to look at; the server may run."""
    return Finding(Verdict.WARNING, found, todo, settles)


def fault(found: str, todo: str, *settles: str) -> Finding:
    """Something that has to be fixed."""
    return Finding(Verdict.FAULT, found, todo, settles)


def judged(said: str, wrong: str, *settles: str) -> Finding:
    """Right, or the fault of wrong numbers; ``wrong``: what is wrong, empty if nothing is."""
    return fault(f"{said}: {wrong}", WRONG, *settles) if wrong else ok(f"{said}: right", *settles)


def failed(error: NpucallError, of: str = "", *settles: str) -> Finding:
    """The fault for an error, with what to do about its status. ``of``: what was tried."""
    status = error.details.get("device_status")
    todo = advice(int(status)) if status else "report it, with all that stands above"
    return fault(f"{of}: {error}" if of else str(error), todo, *settles)

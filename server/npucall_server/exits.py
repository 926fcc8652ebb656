"""The exit codes of ``npucall-server``: what they mean and whether a restart helps."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """An exit code. ``restart`` tells a supervisor whether starting again makes sense."""

    meaning: str
    restart: bool

    def __new__(cls, value: int, meaning: str, restart: bool) -> Self:  # noqa: FBT001
        """One line of the table."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.restart = restart
        return member

    DRAINED = 0, "asked to stop, and every call finished", False
    BUG = 1, "a bug in the server; its log has the traceback", True
    SETTINGS = 2, "a setting is wrong; the message names it", False
    NO_DEVICE = 69, "the device or its libraries were not found; see npucall-server doctor", False
    DEVICE_LOST = 70, "the device failed or hung", True
    CANNOT_BIND = 71, "the address to listen on is taken, or not there yet", True
    DEVICE_TAKEN = 72, "another process kept device_lock for longer than device_lock_wait", True
    DRAIN_TIMEOUT = 75, "asked to stop; calls took longer than drain_timeout and were cut", False

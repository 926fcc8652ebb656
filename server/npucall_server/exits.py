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

    DRAINED = 0, "asked to stop; every call was finished", False
    BUG = 1, "a bug; the log has the traceback", True
    SETTINGS = 2, "the settings are wrong; the message says which", False
    NO_DEVICE = 69, "the device or its libraries were not found", False
    DEVICE_LOST = 70, "the device was lost or hung", True
    CANNOT_BIND = 71, "the address cannot be bound: it is taken, or not there yet", True
    DEVICE_TAKEN = 72, "another process had the lock of the device all the time", True
    DRAIN_TIMEOUT = 75, "asked to stop, but the drain time ran out and calls were cut", False

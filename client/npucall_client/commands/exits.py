"""The exit codes of the command ``npucall``."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """An exit code of ``npucall``, and when a subcommand ends with it."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """A member with its number and its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    DONE = 0, "done; of conform: the server conforms; of replay: the case passes now"
    FAILED = 1, "an error; a case fails, is not judged, or differs; the file of record lacks calls"
    USAGE = 2, "the command line is wrong, or a setting: the message says which"
    FOUND = 3, "of exec --strict: the program did what CANN leaves undefined"
    NOT_RUN = 126, "of exec, reserve and record: the command cannot be run"
    NO_COMMAND = 127, "of exec, reserve and record: the command was not found"
    INTERRUPTED = 130, "Ctrl-C"

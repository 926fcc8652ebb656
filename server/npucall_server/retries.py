"""The seconds after which a refused caller is told to try again, each with its reason."""

from __future__ import annotations

from typing import Any, TypeVar

from npucall.errors import NpucallError
from npucall.texts import retry_in

E = TypeVar("E", bound=NpucallError)

MESSAGE_ROOM = 0.1
"""Messages on their way in make room within milliseconds."""
HANDLE_FILLING = 0.1
"""Whoever should fill the handle gave up; nothing keeps another call from filling it."""
QUEUE_BOUNDS = 0.05, 5.0
"""Least and most: within these it is what the calls that are here usually take."""
QUOTA = 1.0
"""A call of the tenant ends, or a second of device time is its own again."""
STREAM = 1.0
"""Streams of other callers end when they have their answers."""
GAVE_WAY = 1.0
"""Those for whom the call gave way get the memory first."""
SHARED_MEMORY = 1.0
"""Others give pieces back when their calls have ended."""
WATCHER = 1.0
"""Who watches health, or uses reflection, seldom stays long."""
DRAINING = 1.0
"""Another server answers at once; this one starts again within seconds."""
RESERVATION = 5.0
"""Those that wait for the device wait for minutes."""
SESSION = 5.0
"""Sessions end when their work is done, or their lease, at most a minute."""
DIRECTORY = 5.0
"""A directory starts again within seconds, and its streams stay open."""
DIRECTORY_TABLE = 30.0
"""After so long without a word a member leaves the table, and makes room."""


def refusal(kind: type[E], sentence: str, seconds: float, **details: object) -> E:
    """The error of a caller who may try again after so many seconds, which it says."""
    told: Any = {name: str(value) for name, value in details.items()}
    return kind(f"{sentence}; {retry_in(seconds)}", retry_after=seconds, **told)

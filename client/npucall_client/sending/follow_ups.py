"""What follows from an error: one table, error by situation. Pure.

An error of the contract says itself whether the same call may be repeated
(``npucall.errors.Repeat``); a few errors can be mended first.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from npucall.errors import (
    HandleLostError,
    HandleMemoryError,
    NpucallError,
    Repeat,
    SessionExpiredError,
    SessionUnknownError,
    SharedMemoryError,
    TooLargeError,
    UnauthenticatedError,
    WrongServerError,
)

_SHORTEST_DELAY = 0.02
_SPREAD = 1.25
"""The longest delay, as a multiple of what the server says."""


class Next(Enum):
    """What follows from an error."""

    NEVER = "the caller gets the error"
    AGAIN = "the same server is asked again after a pause that grows"
    LATER = "the same server is asked again after the delay that it names"
    ELSEWHERE = "another member of the pool is asked"
    CREDENTIAL = "it is sent again with another credential"
    TRAVEL = "it is sent again without shared memory"
    CHUNKS = "it is sent again in chunks"
    ROOM = "it is sent again after handles that nobody has were released"
    REFILL = "it is sent again after its session was opened and filled again"


class Follows(NamedTuple):
    """What follows in each situation."""

    once: Next
    """The request ends with its first attempt."""
    server: Next
    """One server, or one member of a pool, can answer it."""
    session: Next
    """Likewise, and it uses handles of a session."""
    pool: Next
    """Any member of a pool can answer it."""


_NEVER, _AGAIN, _LATER, _ELSEWHERE = Next.NEVER, Next.AGAIN, Next.LATER, Next.ELSEWHERE
_CREDENTIAL, _TRAVEL, _CHUNKS = Next.CREDENTIAL, Next.TRAVEL, Next.CHUNKS
_ROOM, _REFILL = Next.ROOM, Next.REFILL
FOLLOWS: Mapping[type[NpucallError] | Repeat, Follows] = {
    # error                       once         server       session      pool
    UnauthenticatedError: Follows(_CREDENTIAL, _CREDENTIAL, _CREDENTIAL, _CREDENTIAL),
    SharedMemoryError:    Follows(_NEVER,      _TRAVEL,     _TRAVEL,     _TRAVEL),
    TooLargeError:        Follows(_NEVER,      _CHUNKS,     _CHUNKS,     _CHUNKS),
    HandleMemoryError:    Follows(_NEVER,      _NEVER,      _ROOM,       _NEVER),
    HandleLostError:      Follows(_NEVER,      _NEVER,      _REFILL,     _NEVER),
    SessionExpiredError:  Follows(_NEVER,      _NEVER,      _REFILL,     _NEVER),
    SessionUnknownError:  Follows(_NEVER,      _NEVER,      _REFILL,     _NEVER),
    WrongServerError:     Follows(_NEVER,      _NEVER,      _REFILL,     _NEVER),
    Repeat.HERE:          Follows(_NEVER,      _AGAIN,      _AGAIN,      _ELSEWHERE),
    Repeat.FEW_TIMES:     Follows(_NEVER,      _AGAIN,      _AGAIN,      _ELSEWHERE),
    Repeat.LATER:         Follows(_NEVER,      _LATER,      _LATER,      _ELSEWHERE),
    Repeat.LATER_HERE:    Follows(_LATER,      _LATER,      _LATER,      _LATER),
    Repeat.ELSEWHERE:     Follows(_NEVER,      _NEVER,      _NEVER,      _ELSEWHERE),
    Repeat.NEVER:         Follows(_NEVER,      _NEVER,      _NEVER,      _NEVER),
}  # fmt: skip
"""By the class of an error, or of its base; for others by what the error says of repeats."""
_BY_CLASS = tuple(kind for kind in FOLLOWS if isinstance(kind, type))
MENDING = frozenset({Next.CREDENTIAL, Next.TRAVEL, Next.CHUNKS, Next.ROOM, Next.REFILL})
"""What is done before the same call is sent again, once each."""


def follows(error: NpucallError) -> Follows:
    """The row of an error."""
    kind = next((kind for kind in _BY_CLASS if isinstance(error, kind)), error.repeat)
    return FOLLOWS[kind]


def delay_of(error: NpucallError) -> float | None:
    """Seconds until a server that is full may have room; None if it does not say.

    A little more by chance, so that callers that were refused together do not come back together.
    """
    if error.repeat not in (Repeat.LATER, Repeat.LATER_HERE) or error.retry_after is None:
        return None
    return max(_SHORTEST_DELAY, error.retry_after) * random.uniform(1.0, _SPREAD)  # noqa: S311

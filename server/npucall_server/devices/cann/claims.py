"""What a claim about CANN is that only an NPU can prove, and what hangs on it."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Stake(StrEnum):
    """What fails where a claim is wrong."""

    START = "the first start"
    """No call is served, not even with the setting ``careful``."""
    FAST = "a start without --careful"
    """Nothing depends on it with the setting ``careful``."""
    LATER = "some calls, or some hosts"
    """The server serves; it shows in some numbers, under load, or behind a failure."""


class Claim(NamedTuple):
    """One thing that is taken for true."""

    key: str
    """By which the doctor's findings name it."""
    title: str
    """In a few words."""
    assumed: str
    """What is taken for true, and what the code makes of it."""
    because: str
    """Why it is thought to be so, and how it would show if it were not."""
    stake: Stake
    """What fails if it is not."""
    chance: float
    """Our estimate that it holds on a host that nobody has tried."""
    where: tuple[str, ...]
    """Where it matters: ``file: name``, the file in ``npucall_server``."""
    check: str
    """How to see on a host whether it is so."""
    seen: str = ""
    """What was seen: date, SoC, versions of CANN and driver, and the result; empty: nobody has."""


def chance_of(claims: Iterable[Claim], *stakes: Stake) -> float:
    """The chance that all claims with these stakes hold, as if none hung on another."""
    return math.prod(claim.chance for claim in claims if claim.stake in stakes and not claim.seen)

"""The type of a claim about CANN that only an NPU can prove, and what depends on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Stake(StrEnum):
    """What fails if a claim is wrong."""

    START = "the first start"
    """No call is served, not even with the setting ``careful``."""
    FAST = "a start without --careful"
    """Nothing depends on it with the setting ``careful``."""
    LATER = "some calls, or some hosts"
    """The server serves. The fault shows in some numbers, under load, or after a failure."""


class Claim(NamedTuple):
    """One thing that the code takes as true."""

    key: str
    """Its name in the doctor's findings."""
    title: str
    """The claim in a few words."""
    assumed: str
    """What the code takes as true, and how it uses that."""
    because: str
    """Why we think that it is true, and how one would notice if it were not."""
    stake: Stake
    """What fails if it is not true."""
    chance: float
    """Our estimate of the chance that it is true on an untested host."""
    where: tuple[str, ...]
    """Where it matters: ``file: name``, the file in ``npucall_server``."""
    check: str
    """How to check on a host whether it is true."""
    seen: str = ""
    """What was seen: date, SoC, versions of CANN and driver, result. Empty: not checked yet."""


def chance_of(claims: Iterable[Claim], *stakes: Stake) -> float:
    """The chance that all claims with these stakes are true, if they are independent."""
    return math.prod(claim.chance for claim in claims if claim.stake in stakes and not claim.seen)

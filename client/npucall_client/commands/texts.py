"""Texts as seconds."""

from __future__ import annotations

import re

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def seconds_of(text: str) -> float:
    """Of a text such as 90, 90s, 15m, 1h, 7d. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise ValueError(f"last: expected a number of s, m, h or d such as 15m, found {text}")
    return float(found[1]) * _SECONDS[found[2]]

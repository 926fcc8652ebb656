"""Amounts as texts, and texts as seconds."""

from __future__ import annotations

import re

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def seconds_of(text: str) -> float:
    """Of a text such as 90, 90s, 15m, 1h, 7d. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise ValueError(f"last: expected a number of s, m, h or d such as 15m, found {text}")
    return float(found[1]) * _SECONDS[found[2]]


def size(count: float) -> str:
    """Bytes, in three digits or four."""
    for unit in _UNITS[:-1]:
        if count < _STEP:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= _STEP
    return f"{count:.4g} {_UNITS[-1]}"


def duration(seconds: float) -> str:
    """Seconds, in the two largest units."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = {"d": days, "h": hours, "min": minutes, "s": seconds}
    said = [f"{count} {unit}" for unit, count in parts.items() if count]
    return " ".join(said[:2]) or "0 s"

"""What a benchmark gives: a series is what is measured, a figure what came out."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Series:
    """Something that is measured, and where it stands in the plots."""

    name: str
    better: str
    """``higher`` or ``lower``: which ratio is the better one."""
    unit: str
    """Of the absolute figure."""
    quantity: str = ""
    size: int = 0
    """Bytes of one tensor."""
    callers: int = 0
    way: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Figure:
    """What came out; None for what is not available, or has no yardstick."""

    series: Series
    ratio: float | None = None
    noise: float | None = None
    absolute: float | None = None


def compared(series: Series, ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """The median of the ratios of the rounds; its noise; the median of ours.

    Noise is half the distance between the quartiles of the ratios: half of the rounds lay about
    that close to the median.
    """
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return Figure(series, median(ratios), noise_of(ratios), median(ours))


def noise_of(values: Sequence[float]) -> float:
    """Half the distance between the quartiles; 0 for a single value."""
    if len(values) == 1:
        return 0.0
    first, _, third = quantiles(values, n=4, method="inclusive")
    return (third - first) / 2


def size_text(size: int) -> str:
    """``16 MiB``, ``1 KiB``."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"

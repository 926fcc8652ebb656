"""Writes many element numbers as a few words: ``0-3, 7, 9-99 by 2``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SHOWN = 8
"""So many ranges are named; for more ranges their number is given."""
_STEPS = 4
"""Numbers at equal distances that are written as a range with a step."""


def elements(wrong: Any) -> str:
    """Which elements of a mask are set: by dimension if that says it all, else by flat number."""
    many, size = int(wrong.sum()), wrong.size
    if many == size:
        return f"all {size:,} elements" if size != 1 else "the only element"
    told = f"{many:,} of {size:,} elements"
    if wrong.ndim > 1:
        places = [np.unique(axis).tolist() for axis in np.nonzero(wrong)]
        if prod(map(len, places)) == many:
            box = ", ".join(
                ":" if len(place) == extent else ranges(place)
                for place, extent in zip(places, wrong.shape, strict=True)
            )
            return f"[{box}], {told}"
        return f"in flat order {ranges(np.flatnonzero(wrong).tolist())}, {told}"
    return f"[{ranges(np.flatnonzero(wrong).tolist())}], {told}"


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges; of very many the first."""
    texts: list[str] = []
    for text in _texts(numbers):
        if len(texts) == _SHOWN:
            return f"{', '.join(texts)} and more up to {numbers[-1]:,}"
        texts.append(text)
    return ", ".join(texts)


def _texts(numbers: Sequence[int]) -> Iterator[str]:
    start = 0
    while start < len(numbers):
        end = _end(numbers, start)
        step = numbers[start + 1] - numbers[start] if end > start + 1 else 1
        if step > 1 and end - start < _STEPS:
            end = start + 1
        if end - start == 1:
            yield f"{numbers[start]:,}"
        else:
            by = f" by {step:,}" if step > 1 else ""
            yield f"{numbers[start]:,}-{numbers[end - 1]:,}{by}"
        start = end


def _end(numbers: Sequence[int], start: int) -> int:
    """The place after the last of the numbers from ``start`` on that have equal distances."""
    end = start + 1
    while end < len(numbers) and numbers[end] - numbers[end - 1] == _first_step(numbers, start):
        end += 1
    return end


def _first_step(numbers: Sequence[int], start: int) -> int:
    return numbers[start + 1] - numbers[start]

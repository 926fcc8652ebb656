"""Which elements of an output are wrong, in words: as ranges, by dimension if that says it all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

_SHOWN = 8
"""So many ranges are named; for more ranges their number is given."""
_STEPS = 4
"""Numbers at equal distances that are written as a range with a step."""


def elements(wrong: Any) -> str:
    """Which elements of a mask are set: by dimension if that says it all, else by flat number."""
    many, size = int(wrong.sum()), wrong.size
    if many == size:
        return f"all {size:,} elements" if size != 1 else "the only element"
    told, flat = f"{many:,} of {size:,} elements", ranges(np.flatnonzero(wrong).tolist())
    places = [np.unique(axis).tolist() for axis in np.nonzero(wrong)]
    if wrong.ndim > 1 and prod(map(len, places)) != many:
        return f"in flat order {flat}, {told}"
    whole = [len(place) == extent for place, extent in zip(places, wrong.shape, strict=True)]
    box = (":" if all_ else ranges(place) for all_, place in zip(whole, places, strict=True))
    return f"[{', '.join(box)}], {told}"


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
        end = start + 1
        step = numbers[end] - numbers[start] if end < len(numbers) else 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if step > 1 and end - start < _STEPS:
            end = start + 1
        by = f" by {step:,}" if step > 1 else ""
        yield (
            f"{numbers[start]:,}"
            if end - start == 1
            else f"{numbers[start]:,}-{numbers[end - 1]:,}{by}"
        )
        start = end

"""Where the elements are that are wrong: "only where self is NaN", "only beyond element 98,304"."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall_conformance.reporting.patterns.difference import Difference, Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


_LEAST = 8
"""Elements of which a single place is told."""
_BLOCKED, _ROUND = 16_384, 1024
"""From so many elements on, their places are told in multiples of ``_ROUND``."""
_LONGEST = 64
"""Elements from one that is wrong to the next."""
_ORDINALS = {2: "second", 3: "third", 4: "fourth"}
_SMALLEST_NORMAL = 2.0**-126
_FEW = 6
"""Digits of numbers."""


def where(words: str, *, sure: bool, key: str = "") -> Pattern:
    """A pattern of this kind."""
    return Pattern("where", f"only {words}", f"only {key or words}", sure)


_CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "is NaN": np.isnan,
    "is infinite": np.isinf,
    "is zero": lambda a: a == 0,
    "is no normal number": lambda a: (a != 0) & (np.abs(a) < _SMALLEST_NORMAL),
}
_SIGNS: dict[str, Callable[[Any], Any]] = {
    "is negative": lambda a: a < 0,
    "is positive": lambda a: a > 0,
}


def of_special_inputs(seen: Difference) -> Iterator[Pattern]:
    """An input is NaN, infinite, zero, or one number, in all wrong elements."""
    for name, array in seen.beside.items():
        yield from _by(seen, name, array, _CONDITIONS)
        numbers = array[seen.wrong]
        one = numbers[0]
        if np.isfinite(one) and one != 0 and (numbers == one).all():
            told = f"where {name} is {one:.{_FEW}g}"
            yield where(told, sure=seen.sure(array == one))


def of_special_answers(seen: Difference) -> Iterator[Pattern]:
    """The expected number is NaN, infinite or zero in all wrong elements."""
    yield from _by(seen, "what is expected", seen.expected, _CONDITIONS)


def of_signs(seen: Difference) -> Iterator[Pattern]:
    """An input, or the expected number, has the same sign in all wrong elements."""
    for name, array in (*seen.beside.items(), ("what is expected", seen.expected)):
        yield from _by(seen, name, array, _SIGNS)


def of_large_or_small_inputs(seen: Difference) -> Iterator[Pattern]:
    """An input is larger, or smaller, in all wrong elements than in all others."""
    for name, array in seen.beside.items():
        wrong, right = array[seen.wrong], array[~seen.wrong]
        if not right.size or np.isnan(wrong).any():
            continue
        right = right[~np.isnan(right)]
        if right.size and wrong.min() > right.max():
            told = f"where {name} is at least {wrong.min():.{_FEW}g}"
            sure = seen.sure(array >= wrong.min())
            yield where(told, sure=sure, key=f"where {name} is large")
        if right.size and wrong.max() < right.min():
            told = f"where {name} is at most {wrong.max():.{_FEW}g}"
            sure = seen.sure(array <= wrong.max())
            yield where(told, sure=sure, key=f"where {name} is small")


def of_blocks(seen: Difference) -> Iterator[Pattern]:
    """The wrong elements of a large output are at its start, or at its end."""
    if seen.wrong.size > _BLOCKED:
        yield from _ends(seen)


def of_ends(seen: Difference) -> Iterator[Pattern]:
    """The wrong elements of a small output are at its start, or at its end."""
    if seen.wrong.size <= _BLOCKED:
        yield from _ends(seen)


def _ends(seen: Difference) -> Iterator[Pattern]:
    """The wrong elements are at the start of the output, or at its end.

    Of few elements, most there must be wrong: edge values come in an order that shows such places.
    """
    wrong = np.flatnonzero(seen.wrong)
    first, last, size = int(wrong[0]), int(wrong[-1]), seen.wrong.size
    if first == last and size >= _LEAST and first in (0, size - 1):
        yield where("the last element" if first else "the first element", sure=True)
    flat, many = np.arange(size), seen.count
    start = first - first % _ROUND if size > _BLOCKED else first
    if start > 0:
        sure = seen.sure(flat >= start) and (size > _BLOCKED or 2 * many > size - start)
        yield where(f"beyond element {start:,}", sure=sure)
    end = min(last + (-last % _ROUND) if size > _BLOCKED else last, size)
    if end < size - 1:
        sure = seen.sure(flat <= end) and (size > _BLOCKED or 2 * many > end)
        yield where(f"before element {end:,}", sure=sure)


def of_every_so_many(seen: Difference) -> Iterator[Pattern]:
    """The wrong elements are every second one, or every eighth."""
    wrong = np.flatnonzero(seen.wrong)
    if len(wrong) < 3:  # noqa: PLR2004
        return
    period = int(np.gcd.reduce(np.diff(wrong)))
    every = np.arange(seen.wrong.size) % period == wrong[0] % period
    if 1 < period <= _LONGEST and len(wrong) == every.sum():
        told = f"every {_ORDINALS.get(period, f'{period}th')} element"
        yield where(told, sure=seen.sure(every))


def of_rows(seen: Difference) -> Iterator[Pattern]:
    """The wrong elements are in some rows, or in some columns."""
    if seen.wrong.ndim < 2 or 1 in (columns := seen.wrong.shape[-1], seen.wrong.size // columns):  # noqa: PLR2004
        return
    table = seen.wrong.reshape(-1, columns)
    for axis, name in ((1, "row"), (0, "column")):
        has = np.asarray(table.any(axis=axis))
        lines = np.flatnonzero(has)
        there = np.broadcast_to(np.expand_dims(has, axis), table.shape)
        if len(lines) == len(has):
            continue
        sure, of = seen.sure(there), f"{ranges(lines.tolist())} of {len(has):,}"
        if lines[0] == len(has) - len(lines):
            yield where(f"in the last {name}s, {of}", sure=sure, key=f"in the last {name}s")
        elif lines[-1] == len(lines) - 1:
            yield where(f"in the first {name}s, {of}", sure=sure, key=f"in the first {name}s")
        elif len(lines) == 1:
            yield where(f"in {name} {of}", sure=sure, key=f"in one {name}")
        elif (table == there).all():
            yield where(f"in some {name}s, {of}", sure=sure, key=f"in some {name}s")


def _by(
    seen: Difference, name: str, array: Any, conditions: dict[str, Callable[[Any], Any]]
) -> Iterator[Pattern]:
    for words, condition in conditions.items():
        there = condition(array)
        if there[seen.wrong].all():
            yield where(f"where {name} {words}", sure=seen.sure(there))


PLACES: tuple[Callable[[Difference], Iterator[Pattern]], ...] = (
    of_special_inputs, of_special_answers, of_every_so_many, of_blocks, of_rows, of_ends,
    of_large_or_small_inputs, of_signs,
)  # fmt: skip
"""The more a pattern says, the earlier it comes."""

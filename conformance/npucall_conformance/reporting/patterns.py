"""Which elements of an output are wrong, and what they have in common, in words.

A pattern says what the wrong numbers are ("3 times too large", "the input self unchanged"), or, if
it begins with "only", where they are: "only where self is NaN". Each holds for all wrong elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import DTYPES

_NEAR = 2.0**-7
"""Numbers count as the same if they differ by no more than this, relative to their size. That is
the error of rounding to BF16."""
_ENOUGH = 3
"""Elements that show what the wrong numbers are."""
_CHANCE, _MOST = 0.02, 0.75
"""Wrong elements are told by their place if it is at most this likely that elements that are wrong
by chance are all there, and if the place has no larger share of all elements."""
_SHOWN = 8
"""So many ranges are named; for more ranges their number is given."""
_SHORT = sorted((dtype for dtype in DTYPES if dtype.is_short), key=lambda dtype: dtype.fraction)
_PLACES: dict[str, Callable[[Any], Any]] = {
    "is NaN": np.isnan,
    "is infinite": np.isinf,
    "is zero": lambda a: a == 0,
    "is no normal number": lambda a: (a != 0) & (np.abs(a) < 2.0**-126),
    "is negative": lambda a: a < 0,
    "is positive": lambda a: a > 0,
}


def elements(wrong: Any) -> str:
    """Which elements of a mask are set: by dimension if that says it all, else by flat number."""
    many, size = int(wrong.sum()), wrong.size
    if many == size:
        return f"all {size:,} elements" if size != 1 else "the only element"
    told = f"{many:,} of {size:,} elements"
    places = [np.unique(axis) for axis in np.nonzero(wrong)]
    if wrong.ndim > 1 and prod(map(len, places)) != many:
        return f"in flat order {_ranges(np.flatnonzero(wrong))}, {told}"
    pairs = zip(places, wrong.shape, strict=True)
    box = (":" if len(place) == extent else _ranges(place) for place, extent in pairs)
    return f"[{', '.join(box)}], {told}"


def _ranges(numbers: Any) -> str:
    """Ascending numbers as ranges; of very many the first."""
    ends = np.flatnonzero(np.diff(numbers) != 1)
    starts = [numbers[0], *numbers[ends + 1]]
    texts = [
        f"{first:,}" if first == last else f"{first:,}-{last:,}"
        for first, last in zip(starts, [*numbers[ends], numbers[-1]], strict=True)
    ]
    more = [f"and more up to {numbers[-1]:,}"] if len(texts) > _SHOWN else []
    return " ".join([", ".join(texts[:_SHOWN]), *more])


def beside(inputs: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """The inputs that broadcast to an output, in its shape."""
    found = {}
    for name, array in inputs.items():
        pairs = zip(array.shape[::-1], shape[::-1], strict=False)
        if array.ndim <= len(shape) and all(a in (1, b) for a, b in pairs):
            found[name] = np.broadcast_to(array, shape)
    return found


def patterns(
    expected: Any, found: Any, wrong: Any, inputs: Mapping[str, Any], fraction: int = 23
) -> tuple[str, ...]:
    """All that hold, those that say most first; ``wrong`` is a mask of elements.

    ``fraction``: the bits of the fraction in the output's dtype.
    """
    there = beside(inputs, expected.shape)
    should, was = expected[wrong], found[wrong]
    with np.errstate(all="ignore"):
        if _near(was, should).all():
            what = _rounded(should, was, fraction)
        else:
            unchanged = (name for name, a in there.items() if _is_like(was, a[wrong]))
            what = chain(
                _replaced(should, was),
                (f"the input {name} unchanged" for name in unchanged),
                _computed(should, was, inputs),
            )
        return (*what, *_where({**there, "what is expected": expected}, wrong))


def _near(one: Any, other: Any) -> Any:
    """Where numbers are the same except for rounding; NaN equals NaN, an infinity equals itself."""
    close = np.isfinite(other) & (np.abs(one - other) <= _NEAR * np.abs(other))
    return close | (one == other) | (np.isnan(one) & np.isnan(other))


def _is_like(one: Any, other: Any) -> bool:
    """Whether all numbers are near, and enough of them differ that this is no chance."""
    return bool(_near(one, other).all()) and len(np.unique(one[~np.isnan(one)])) >= _ENOUGH


def _replaced(should: Any, was: Any) -> Iterator[str]:
    """Zeros, NaN, infinities and numbers in place of each other."""
    found, place = _kind(was), _kind(should)
    if found and found != place and (place or found != "numbers"):
        yield f"{found} instead of {place or 'numbers'}"


def _kind(numbers: Any) -> str:
    kinds = {"NaN": np.isnan(numbers), "infinities": np.isinf(numbers), "zeros": numbers == 0}
    kinds["numbers"] = ~np.logical_or.reduce(list(kinds.values()))
    return next((kind for kind, there in kinds.items() if there.all()), "")


def _computed(should: Any, was: Any, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Every number follows from the expected one: by a factor, or its sign."""
    if not (np.isfinite(was) & np.isfinite(should) & (should != 0)).all():
        return
    factor = float(np.median(was / should))
    if not (factor and _near(was, factor * should).all()):
        return
    size = max(abs(factor), 1 / abs(factor))
    way = "large" if abs(factor) > 1 else "small"
    counts = (
        f"as many times too {way} as {name} has {of}"
        for name, array in inputs.items()
        for of, many in (("elements", array.size), ("columns", (array.shape or (1,))[-1]))
        if many > 1 and abs(size / many - 1) <= _NEAR
    )
    yield from counts
    if size > 1 + 2 * _NEAR and len(was) >= _ENOUGH:
        text = f"{round(size):,}" if abs(size / round(size) - 1) <= _NEAR else f"{size:.3g}"
        yield f"{text} times too {way}" + (", sign flipped" if factor < 0 else "")
    elif factor < 0:
        yield "sign flipped"


def _rounded(should: Any, was: Any, fraction: int) -> Iterator[str]:
    """Errors as rounding makes them: its direction, or a dtype with fewer digits."""
    mantissa, _ = np.frexp(was)
    for short in _SHORT if len(was) > _ENOUGH else ():
        digits = np.ldexp(mantissa, short.fraction + 1)
        if short.fraction < fraction and (digits == np.round(digits)).all():
            yield f"no more digits than {short} has"
    if len(was) > _ENOUGH and (np.abs(was) < np.abs(should)).all():
        yield "rounded towards zero"
    if len(was) > _ENOUGH and (np.abs(was) > np.abs(should)).all():
        yield "rounded away from zero"
    yield "small errors, as of rounding"


def _where(arrays: Mapping[str, Any], wrong: Any) -> Iterator[str]:
    """What an input, or the expected number, is in all wrong elements and in few others."""
    many = int(wrong.sum())

    def tells(mask: Any) -> bool:
        share = float(mask.mean())
        return bool(mask[wrong].all()) and share <= _MOST and share**many <= _CHANCE

    for name, array in arrays.items():
        yield from (
            f"only where {name} {words}" for words, of in _PLACES.items() if tells(of(array))
        )
        one = array[wrong][0]
        if np.isfinite(one) and one != 0 and tells(array == one):
            yield f"only where {name} is {one:.6g}"
        for words, mask in (
            ("large", array >= array[wrong].min()), ("small", array <= array[wrong].max()),
        ):  # fmt: skip
            if tells(mask) and (mask == wrong).all():
                yield f"only where {name} is {words}"

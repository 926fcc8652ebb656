"""What the wrong elements of an output have in common, in words.

A pattern of the kind ``what`` says what the wrong numbers are: "3 times too large", "the input self
unchanged". One of the kind ``where`` says by the inputs and the expected numbers where they are:
"only where self is NaN"; which places that are, ``elements`` says. Each holds for all wrong
elements, and says whether there are enough of them that this is no chance. The more a pattern says,
the earlier it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from npucall.dtypes import DTYPES

Reals: TypeAlias = NDArray[np.float64]
Kind: TypeAlias = Literal["what", "where"]

_NEAR = 2.0**-7
"""Numbers count as the same if they differ by no more than this, relative to their size. That is
the error of rounding to BF16."""
_SMALL = 2.0**-6
"""Errors up to this share of the number are those of rounding."""
_FEW, _ENOUGH = 256, 3
"""Numbers that are a sample of many; elements that show a pattern."""
_CHANCE, _MOST = 0.02, 0.75
"""A pattern is sure if it is at most this likely among elements that are wrong by chance, and if it
holds for no larger share of all elements."""
_SHORT = sorted((dtype for dtype in DTYPES if dtype.is_short), key=lambda dtype: dtype.fraction)


@dataclass(frozen=True)
class Pattern:
    """One thing that holds for all elements that are wrong."""

    kind: Kind
    words: str
    key: str = ""
    """The words without the parts that differ from case to case; cases of a cause share it."""
    sure: bool = True
    """Enough elements show it. If not, no element contradicts it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.words)


@dataclass(frozen=True, eq=False)
class Difference:
    """One output that is wrong. All arrays but inputs have its shape."""

    expected: Reals
    found: Reals
    wrong: NDArray[np.bool_]
    """The elements that are outside the tolerance; there is one at least."""
    inputs: Mapping[str, Reals] = field(default_factory=dict)
    """Tensors as they were sent, whatever their shapes."""
    fraction: int = 23
    """Bits of the fraction in the output's dtype."""

    @cached_property
    def beside(self) -> dict[str, Reals]:
        """The inputs that broadcast to the output, in its shape."""
        shape, there = self.expected.shape, {}
        for name, array in self.inputs.items():
            pairs = zip(array.shape[::-1], shape[::-1], strict=False)
            if array.ndim <= len(shape) and all(a in (1, b) for a, b in pairs):
                there[name] = np.broadcast_to(array, shape)
        return there

    @cached_property
    def should(self) -> Reals:
        """What was expected of the elements that are wrong, in flat order."""
        return self.expected[self.wrong]

    @cached_property
    def was(self) -> Reals:
        """What was found in their place."""
        return self.found[self.wrong]

    def sure(self, there: Any) -> bool:
        """Whether it is no chance that all wrong elements are among those of this mask."""
        share = float(there.mean())
        return share <= _MOST and share ** len(self.should) <= _CHANCE


def patterns(seen: Difference) -> tuple[Pattern, ...]:
    """All that hold; those that say most come first."""
    if not seen.wrong.any():
        return ()
    with np.errstate(all="ignore"):
        what = (_rounded,) if _near(seen.was, seen.should).all() else WHAT
        return (
            *(
                Pattern("what", words, key, bool(sure))
                for look in what
                for words, key, sure in look(seen)
            ),
            *(
                Pattern("where", f"only {words}", f"only {key or words}", seen.sure(mask) and sure)
                for look in WHERE
                for words, key, mask, sure in look(seen)
            ),
        )


_Told: TypeAlias = "Iterator[tuple[str, str, bool]]"
"""Words, their key (empty: the words), and whether enough numbers show it."""


def _near(one: Any, other: Any) -> Any:
    """Where numbers are the same except for rounding; NaN equals NaN, an infinity equals itself."""
    close = np.isfinite(other) & (np.abs(one - other) <= _NEAR * np.abs(other))
    return close | (one == other) | (np.isnan(one) & np.isnan(other))


def _few(numbers: Any) -> Any:
    """Some of many numbers, from everywhere among them."""
    return numbers[:: max(1, len(numbers) // _FEW)]


def _alike(one: Any, other: Any) -> bool:
    """Whether all numbers of two flat arrays are near; of many, a few are looked at first."""
    return bool(_near(_few(one), _few(other)).all() and _near(one, other).all())


def _varied(numbers: Any) -> bool:
    """Enough different numbers that agreement is no chance."""
    return len(np.unique(_few(numbers))) >= _ENOUGH or len(np.unique(numbers)) >= _ENOUGH


def _replaced(seen: Difference) -> _Told:
    """Zeros, NaN, infinities and numbers in place of each other; an input in place of a result."""
    found, place = _all_of(seen.was), _all_of(seen.should)
    if found == "zeros" and place in ("numbers", ""):
        yield "zeros instead of values", "", True
    elif found and place and place != found:
        yield f"{found} instead of {place}", "", True
    elif not place and found in ("NaN", "infinities"):
        yield f"{found} instead of numbers", "", True
    for name, array in seen.beside.items():
        if found != "NaN" and _alike(seen.was, array[seen.wrong]):
            yield f"the input {name} unchanged", "", _varied(seen.was)


def _all_of(numbers: Any) -> str:
    kinds = {"NaN": np.isnan(numbers), "infinities": np.isinf(numbers), "zeros": numbers == 0}
    kinds["numbers"] = ~np.logical_or.reduce(list(kinds.values()))
    return next((kind for kind, there in kinds.items() if there.all()), "")


def _computed(seen: Difference) -> _Told:
    """Every number follows from the expected one: by a factor, or its sign."""
    should, was, usable, enough = *_numbers(seen), len(seen.should) >= _ENOUGH
    everything = (seen.wrong | (seen.expected == 0) | ~np.isfinite(seen.expected)).all()
    who = "all elements" if everything else "wrong elements"
    factor = float(np.median(_few(was) / _few(should))) if usable else 0.0
    if should.all() and _alike(was, -should) and not np.isnan(should).any():
        yield f"{who}: sign flipped", "sign flipped", True
    elif factor and abs(factor - 1) > 2 * _NEAR and _alike(was, factor * should):
        size = _times(abs(factor)) + (", sign flipped" if factor < 0 else "")
        yield f"{who} {size}", size, enough
        yield from ((words, "", enough) for words in _by_count(seen, factor))


def _by_count(seen: Difference, factor: float) -> Iterator[str]:
    """A sum in place of a mean, or the other way."""
    for name, array in seen.inputs.items():
        for of, many in {
            "elements": array.size,
            "columns": array.shape[-1] if array.ndim else 1,
        }.items():
            for share, how in ((factor / many, "large"), (factor * many, "small")):
                if many > 1 and abs(share - 1) <= _NEAR:
                    yield f"as many times too {how} as {name} has {of}"


def _times(factor: float) -> str:
    size = max(factor, 1 / factor)
    text = f"{round(size):,}" if abs(size / round(size) - 1) <= _NEAR else f"{size:.3g}"
    return f"{text} times too {'large' if factor > 1 else 'small'}"


def _rounded(seen: Difference) -> _Told:
    """Errors as rounding makes them: its direction, or a dtype with fewer digits."""
    should, was, usable = _numbers(seen)
    if not usable or (np.abs(was - should) > _SMALL * np.abs(should)).any():
        return
    sure, (mantissa, _) = len(was) > _ENOUGH, np.frexp(was)
    for short in _SHORT:
        digits = np.ldexp(mantissa, short.fraction + 1)
        if short.fraction < seen.fraction and (digits == np.round(digits)).all():
            yield f"no more digits than {short} has", "", sure
    if (np.abs(was) < np.abs(should)).all():
        yield "rounded towards zero", "", sure
    if (np.abs(was) > np.abs(should)).all():
        yield "rounded away from zero", "", sure
    yield "small errors, as of rounding", "", True


def _numbers(seen: Difference) -> tuple[Any, Any, bool]:
    """Both sides, and whether all are finite and none expected to be zero."""
    should, was = seen.should, seen.was
    return should, was, bool(np.isfinite(was).all() and np.isfinite(should).all() and should.all())


_Place: TypeAlias = "Iterator[tuple[str, str, Any, bool]]"
"""Words, their key (empty: the words), a mask that has all wrong elements, and whether that can be
sure."""
_CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "is NaN": np.isnan,
    "is infinite": np.isinf,
    "is zero": lambda a: a == 0,
    "is no normal number": lambda a: (a != 0) & (np.abs(a) < 2.0**-126),
}
_SIGNS: dict[str, Callable[[Any], Any]] = {
    "is negative": lambda a: a < 0,
    "is positive": lambda a: a > 0,
}
_WANTED = "what is expected"


def _special(seen: Difference) -> _Place:
    """An input, or the expected number, is NaN, infinite, zero, or an input is one number."""
    for name, array in seen.beside.items():
        yield from _fitting(seen, name, array, _CONDITIONS)
        one = array[seen.wrong][0]
        if np.isfinite(one) and one != 0 and (array[seen.wrong] == one).all():
            yield f"where {name} is {one:.6g}", "", array == one, True
    yield from _fitting(seen, _WANTED, seen.expected, _CONDITIONS)


def _signs(seen: Difference) -> _Place:
    """An input, or the expected number, has the same sign in all wrong elements."""
    for name, array in (*seen.beside.items(), (_WANTED, seen.expected)):
        yield from _fitting(seen, name, array, _SIGNS)


def _fitting(
    seen: Difference, name: str, array: Any, conditions: Mapping[str, Callable[[Any], Any]]
) -> _Place:
    for words, condition in conditions.items():
        there = condition(array)
        if there[seen.wrong].all():
            yield f"where {name} {words}", "", there, True


def _sizes(seen: Difference) -> _Place:
    """An input is larger, or smaller, in all wrong elements than in all others."""
    for name, array in seen.beside.items():
        wrong, right = array[seen.wrong], array[~seen.wrong & ~np.isnan(array)]
        if not right.size or np.isnan(wrong).any():
            continue
        if (low := wrong.min()) > right.max():
            yield (
                f"where {name} is at least {low:.6g}",
                f"where {name} is large",
                array >= low,
                True,
            )
        if (high := wrong.max()) < right.min():
            yield (
                f"where {name} is at most {high:.6g}",
                f"where {name} is small",
                array <= high,
                True,
            )


WHAT: tuple[Callable[[Difference], _Told], ...] = (_replaced, _computed, _rounded)
WHERE: tuple[Callable[[Difference], _Place], ...] = (
    _special, _sizes, _signs,
)  # fmt: skip

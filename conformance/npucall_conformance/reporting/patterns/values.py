"""What is wrong with the elements that are wrong: "3 times too large", "the input unchanged"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import DTYPES
from npucall_conformance.reporting.patterns.difference import NEAR, Difference, Pattern, alike, few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ENOUGH = 3
"""One element may show a pattern by chance; so many are enough."""
_FAR = 4
"""Elements by which an output may be shifted."""
_SMALL = 2.0**-6
"""Errors up to this share of the number are those of rounding."""
_SHORT = sorted((dtype for dtype in DTYPES if dtype.is_short), key=lambda dtype: dtype.fraction)


def what(words: str, *, sure: bool = True, key: str = "") -> Pattern:
    """A pattern of this kind."""
    return Pattern("what", words, key or words, sure)


def specials(seen: Difference) -> Iterator[Pattern]:
    """Zeros, NaN, infinities and numbers that are in place of each other."""
    found = _all_of(seen.was)
    if not found:
        return
    place = _all_of(seen.should)
    if found == "zeros" and place in ("numbers", ""):
        yield what("zeros instead of values")
    elif place and place != found:
        yield what(f"{found} instead of {place}")
    elif not place and found in ("NaN", "infinities"):
        yield what(f"{found} instead of numbers")


def _all_of(numbers: Any) -> str:
    if np.isnan(numbers).all():
        return "NaN"
    if np.isinf(numbers).all():
        return "infinities"
    if (numbers == 0).all():
        return "zeros"
    return "numbers" if np.isfinite(numbers).all() and (numbers != 0).all() else ""


def unchanged(seen: Difference) -> Iterator[Pattern]:
    """The output has an input itself, where a result should be."""
    for name, array in seen.beside.items():
        if alike(seen.was, array[seen.wrong]) and not np.isnan(seen.was).all():
            yield what(f"the input {name} unchanged", sure=_varied(seen.was))


def scaled(seen: Difference) -> Iterator[Pattern]:
    """Every element is the expected one times the same number, or has the other sign."""
    should, was, usable = _numbers(seen)
    who = "all elements" if _everything(seen) else "wrong elements"
    if alike(was, -should) and not np.isnan(should).any() and should.all():
        yield what(f"{who}: sign flipped", key="sign flipped")
        return
    if not usable:
        return
    factor = float(np.median(few(was) / few(should)))
    if not np.isfinite(factor) or factor == 0 or not alike(was, factor * should):
        return
    if abs(factor - 1) <= 2 * NEAR:
        return
    sure = seen.count >= _ENOUGH
    size = _times(abs(factor)) + (", sign flipped" if factor < 0 else "")
    yield what(f"{who} {size}", sure=sure, key=size)
    for name, array in seen.inputs.items():
        for count, of in ((array.size, "elements"), (array.shape[-1:] or (1,), "columns")):
            many = count if isinstance(count, int) else count[0]
            yield from _by_count(factor, many, f"{name} has {of}", sure=sure)


def _by_count(factor: float, many: int, said: str, *, sure: bool) -> Iterator[Pattern]:
    """A sum in place of a mean, or the other way."""
    if many > 1 and abs(factor / many - 1) <= NEAR:
        yield what(f"as many times too large as {said}", sure=sure)
    if many > 1 and abs(factor * many - 1) <= NEAR:
        yield what(f"as many times too small as {said}", sure=sure)


def _times(factor: float) -> str:
    larger = factor > 1
    size = factor if larger else 1 / factor
    whole = round(size)
    text = f"{whole:,}" if abs(size / whole - 1) <= NEAR else f"{size:.3g}"
    return f"{text} times too {'large' if larger else 'small'}"


def shifted_by_a_number(seen: Difference) -> Iterator[Pattern]:
    """Every element has the same distance from what it should be."""
    should, was, usable = _numbers(seen)
    if not usable or seen.count < _ENOUGH or not _varied(should):
        return
    apart = was - should
    step = float(np.median(few(apart)))
    if step and (np.abs(apart - step) <= NEAR * abs(step)).all():
        size = f"{abs(step):.3g} too {'large' if step > 0 else 'small'}"
        yield what(f"all elements {size}" if _everything(seen) else f"wrong elements {size}",
                   key=size)  # fmt: skip


def without_sign(seen: Difference) -> Iterator[Pattern]:
    """The output has the absolute value of the number."""
    if alike(seen.was, np.abs(seen.should)) and (seen.should < 0).all():
        yield what("without their sign", sure=seen.count >= _ENOUGH)


def cut_off(seen: Difference) -> Iterator[Pattern]:
    """Numbers end where they should go on."""
    size = np.abs(seen.was)
    beyond = (np.abs(seen.should) > size) & (np.sign(seen.should) == np.sign(seen.was))
    if (size == size[0]).all() and size[0] > 0 and np.isfinite(size[0]) and beyond.all():
        yield what(f"cut off at {size[0]:,.6g}", sure=_varied(seen.should))


def the_same_everywhere(seen: Difference) -> Iterator[Pattern]:
    """All wrong elements have the same number."""
    one = (seen.was == seen.was[0]).all() and seen.was[0] != 0
    if one and seen.count >= _ENOUGH and _varied(seen.should):
        yield what(f"{seen.was[0]:.6g} in all of them", key="one number in all of them")


def of_other_places(seen: Difference) -> Iterator[Pattern]:
    """The right numbers at wrong places."""
    expected, found = seen.expected.reshape(-1), seen.found.reshape(-1)
    if not _varied(expected) or len(expected) <= _ENOUGH:
        return
    wrong = np.flatnonzero(seen.wrong)
    for step, words in _steps(seen.expected.shape):
        for places in (few(wrong), wrong):
            valid = places[(places >= step) & (places < len(expected) + step)]
            if len(valid) < _ENOUGH or not alike(found[valid], expected[valid - step]):
                break
        else:
            yield what(words)
    if alike(found, expected[::-1]):
        yield what("in reverse order")
    if seen.expected.ndim > 1 and alike(found, seen.expected.T.reshape(-1)):
        yield what("rows and columns exchanged")
    ends = [np.array([side.min(), side.max()]) for side in (found, expected)]
    if alike(*ends) and alike(np.sort(found), np.sort(expected)):
        yield what("the right numbers at wrong places")


def _steps(shape: tuple[int, ...]) -> Iterator[tuple[int, str]]:
    for step in range(1, _FAR + 1):
        by = "one element" if step == 1 else f"{step} elements"
        yield step, f"off by {by}"
        yield -step, f"off by {by}, from behind"
    if len(shape) > 1 and 1 < shape[-1] < np.prod(shape):
        yield shape[-1], "off by one row"
        yield -shape[-1], "off by one row, from behind"


def rounded(seen: Difference) -> Iterator[Pattern]:
    """Errors as rounding makes them: its direction, or a dtype with fewer digits."""
    should, was, usable = _numbers(seen)
    with np.errstate(all="ignore"):
        small = usable and (np.abs(was - should) <= _SMALL * np.abs(should)).all()
    if not small:
        return
    sure = seen.count > _ENOUGH
    for short in _SHORT:
        if short.fraction < seen.fraction and _to_fraction(was, short.fraction).all():
            yield what(f"no more digits than {short} has", sure=sure)
    if (np.abs(was) < np.abs(should)).all():
        yield what("rounded towards zero", sure=sure)
    if (np.abs(was) > np.abs(should)).all():
        yield what("rounded away from zero", sure=sure)
    yield what("small errors, as of rounding")


def _to_fraction(numbers: Any, bits: int) -> Any:
    """Which numbers have no more bits in their fraction."""
    mantissa, _ = np.frexp(numbers[np.isfinite(numbers)])
    scaled = np.ldexp(mantissa, bits + 1)
    return scaled == np.round(scaled)


def _numbers(seen: Difference) -> tuple[Any, Any, bool]:
    """Both sides, and whether all are finite and none expected to be zero."""
    should, was = seen.should, seen.was
    return should, was, bool(np.isfinite(was).all() and np.isfinite(should).all() and should.all())


def _everything(seen: Difference) -> bool:
    """Every element is wrong, except those that no factor can make wrong."""
    return bool((seen.wrong | (seen.expected == 0) | ~np.isfinite(seen.expected)).all())


def _varied(numbers: Any) -> bool:
    """Enough different numbers that agreement is no chance."""
    return len(np.unique(few(numbers))) >= _ENOUGH or len(np.unique(numbers)) >= _ENOUGH


VALUES: tuple[Callable[[Difference], Iterator[Pattern]], ...] = (
    specials, unchanged, scaled, without_sign, cut_off, of_other_places, shifted_by_a_number,
    the_same_everywhere, rounded,
)  # fmt: skip
"""The more a pattern says, the earlier it comes."""

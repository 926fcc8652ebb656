"""Arrays from one dtype to another: NumPy's bits, and float16 without NumPy's slowness.

NumPy converts to float16 one number after the other [src:float16-conversion], and raises a
floating-point flag for each that becomes inexact below the normal numbers: then one takes 60 ns,
where others take 2. It reads subnormal ones at 8 ns. Here tables and shifted bits do both, in a few
passes over whole arrays. float64 becomes bfloat16, or a float of 8 bits, with one rounding here,
and with two in NumPy. For everything else NumPy is good enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npucall.dtypes import DTYPES, AnyArray
from npucall.memory import fresh_array

_WORTH_IT = 1 << 10
"""Elements from which on a few passes cost less than 60 ns for each."""
_PIECE = 1 << 16
"""Most elements converted at a time, so that the temporary arrays stay in cache."""
_BEYOND = 1 << 16
"""Numbers from here on are infinite as a float16, and have no addend."""
_EXPONENTS = -14, 15
"""Of the normal float16; subnormal ones have the first."""
_DIGITS = 10
"""Bits of a float16 after its leading one."""
_MAGNITUDE, _LEAST_NORMAL, _INFINITE = np.uint16(0x7FFF), 0x0400, 0x7C00
"""All bits of a float16 but the sign, and those of two numbers."""
_FEW = 16
"""One subnormal number among so many costs less than to look them all up."""
_KEPT_BITS, _BIAS = np.uint32(0x8FFFE000).view(np.int32), np.float32(2.0**112)
"""What of a shifted float16 are sign, exponent and digits, and how far apart the exponents are."""


def converted(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """A new row-major array of that dtype."""
    result = fresh_array(array.shape, dtype)
    convert(result, array)
    return result


def convert(target: AnyArray, source: AnyArray) -> None:
    """Writes an array, broadcast, into another: rounded to nearest even, infinite beyond the range.

    The bits are those of ``np.copyto(target, source, casting="unsafe")``, but of float64 in what
    NumPy has by ``ml_dtypes``, such as bfloat16, which it rounds twice.
    """
    if source.dtype.kind == "c" and target.dtype.kind not in "cb":
        source = source.real  # without NumPy's warning
    if (source.dtype, target.dtype) in _ROUNDED_TWICE:
        way: Any = _round_once
        source = np.broadcast_to(source, target.shape)
    else:
        way = None if source.size < _WORTH_IT else _WAYS.get((source.dtype, target.dtype))
    if way is None or source.shape != target.shape:
        np.copyto(target, source, casting="unsafe")
    elif source.size <= _PIECE:
        way(target, source)
    else:
        axis = next(axis for axis, extent in enumerate(source.shape) if extent > 1)
        middle = source.shape[axis] // 2
        for half in slice(middle), slice(middle, None):
            index = (*(slice(None),) * axis, half)
            convert(target[index], source[index])


def _widen(target: AnyArray, source: AnyArray) -> None:
    """Shifts the bits to their places in float32, and corrects the exponent; or looks them up.

    Infinities and NaN are looked up, and subnormal numbers unless they are few: processors stumble
    over each.
    """
    magnitude = source.view(np.uint16) & _MAGNITUDE
    finite = magnitude.max() < _INFINITE
    magnitude -= np.uint16(1)  # after this, 0 is the largest
    subnormal = np.count_nonzero(magnitude < _LEAST_NORMAL - 1)
    if not finite or subnormal * _FEW > source.size:
        np.take(_SINGLES, source.view(np.uint16), out=target, mode="clip")
        return
    bits = target.view(np.int32)
    np.copyto(bits, source.view(np.int16))  # the sign fills the upper half
    np.left_shift(bits, 23 - _DIGITS, out=bits)
    np.bitwise_and(bits, _KEPT_BITS, out=bits)
    np.multiply(target, _BIAS, out=target)


def _round(target: AnyArray, source: AnyArray) -> None:
    """Adds to each number one that is so large that the sum has the bits of its float16 last.

    To a number x whose float16 has the unit u, ``(2**digits + bits of sign and exponent) * u`` is
    added, of x's sign, ``digits`` being those of the format after the leading one. The unit of the
    sum is u, so the processor rounds x to a multiple of u, to nearest even; and the lowest 16 bits
    of the sum are x / u, rounded, plus the bits of sign and exponent, which is the float16.
    """
    addends = _ADDENDS[source.dtype]
    bits = source.view(addends.bits)
    kinds = np.right_shift(bits, addends.digits).astype(np.intp)
    total = np.take(addends.of_kind, kinds, mode="clip")
    total += source
    np.copyto(target.view(np.uint16), total.view(addends.bits), casting="unsafe")
    if not -_BEYOND < source.min() <= source.max() < _BEYOND:
        _round_what_is_not_finite(target, source)


def _round_what_is_not_finite(target: AnyArray, source: AnyArray) -> None:
    """Writes infinities, NaN and what becomes infinite, so that NumPy raises no flag for them."""
    beyond = ~(np.abs(source) < _BEYOND)
    values = source[beyond]
    large = np.isfinite(values)
    values[large] = np.copysign(np.inf, values[large])
    target[beyond] = values.astype(np.float16)


def _round_once(target: AnyArray, source: AnyArray) -> None:
    """Rounds float64 to a type of ``ml_dtypes``; NumPy goes by way of float32, and rounds twice.

    What float32 cannot hold is cut off there, and its last bit set instead: that is no tie then.
    """
    with np.errstate(over="ignore"):
        single = source.astype(np.float32)
    bits = single.view(np.uint32)
    held = single.astype(np.float64)
    bits -= np.abs(held) > np.abs(source)
    bits |= held != source
    np.copyto(target, single, casting="unsafe")


class _Addends(NamedTuple):
    """What is added to the numbers of a format, by their kind: the bits of sign and exponent."""

    bits: np.dtype[Any]
    digits: np.generic
    of_kind: AnyArray


def _addends(real: type[np.float32 | np.float64]) -> _Addends:
    info = np.finfo(real)
    bits = np.dtype(f"u{info.dtype.itemsize}")
    digits, exponent_bits = info.nmant, info.bits - 1 - info.nmant
    kinds = np.arange(1 << (1 + exponent_bits))
    negative = kinds >> exponent_bits
    field = kinds & ((1 << exponent_bits) - 1)
    least, largest = _EXPONENTS
    exponent = np.clip(field - ((1 << (exponent_bits - 1)) - 1), least, largest)
    half = (negative << 15) | ((exponent - least) << _DIGITS)
    magnitude = np.ldexp(2.0**digits + half, exponent - _DIGITS)
    of_kind = np.where(negative, -magnitude, magnitude).astype(real)
    return _Addends(bits, bits.type(digits), of_kind)


def _singles() -> AnyArray:
    """Every float16 as a float32. Processors of Arm call a signalling NaN among them invalid."""
    with np.errstate(invalid="ignore"):
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


_SINGLES = _singles()
_ADDENDS = {np.dtype(real): _addends(real) for real in (np.float32, np.float64)}
_HALF = np.dtype(np.float16)
_WAYS: dict[tuple[np.dtype[Any], np.dtype[Any]], Callable[[AnyArray, AnyArray], None]] = {
    (_HALF, np.dtype(np.float32)): _widen,
    (np.dtype(np.float32), _HALF): _round,
    (np.dtype(np.float64), _HALF): _round,
}
_ROUNDED_TWICE = {(np.dtype(np.float64), dtype.numpy) for dtype in DTYPES if not dtype.is_of_numpy}

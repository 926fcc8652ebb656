"""What two element types promote to, stated a second time [src:promotion].

Within a kind the wider type wins, and between kinds the one that can hold the other's idea of a
number: BOOL, integers, floats, complex numbers. Exceptions stand below.
"""

from __future__ import annotations

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    DType,
)

_SIGNED = (INT8, INT16, INT32, INT64)
_INTEGERS = (*_SIGNED, UINT8)
_FLOATS = (FLOAT16, BF16, FLOAT, DOUBLE)
_COMPLEX = (COMPLEX64, COMPLEX128)
_KNOWN = (BOOL, *_INTEGERS, *_FLOATS, *_COMPLEX)
"""All others promote with themselves alone."""


def common_type(first: DType, second: DType) -> DType | None:
    """The type that two tensors are computed in; None where there is none.

    Only types count: neither ranks nor values.
    """
    if first is second:
        return first
    if first not in _KNOWN or second not in _KNOWN:
        return None
    for kind, join in ((_COMPLEX, _complex), (_FLOATS, _floating), (_INTEGERS, _whole)):
        if first in kind or second in kind:
            return join(first, second)
    return None


def _complex(first: DType, second: DType) -> DType:
    """Twice the precision as soon as one of them has it."""
    return COMPLEX128 if {first, second} & {COMPLEX128, DOUBLE} else COMPLEX64


def _floating(first: DType, second: DType) -> DType:
    """A float wins over integers of any size; the two short ones meet in FLOAT."""
    floats = [each for each in (first, second) if each in _FLOATS]
    if {*floats} == {FLOAT16, BF16}:
        return FLOAT
    return max(floats, key=lambda each: each.itemsize)


def _whole(first: DType, second: DType) -> DType:
    """The wider one; UINT8 beside INT8 needs 16 bits, since neither holds the other."""
    if {first, second} == {INT8, UINT8}:
        return INT16
    integers = [each for each in (first, second) if each is not BOOL]
    return max(integers, key=lambda each: each.itemsize)

"""What two types promote to, two shapes stretch to, and which dtype an operator computes in.

The kinds of types are, in order: BOOL, integers, floats, complex numbers. Within a kind the wider
type wins; between kinds the type of the later kind wins [src:promotion]. The functions below have
the exceptions. Shapes are those of [src:broadcasting].
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

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
from npucall.tensors import Shape

if TYPE_CHECKING:
    from npucall_conformance.stating.parts import DTypes


def common_shape(*shapes: Shape) -> Shape | None:
    """The shape that all of them stretch to; None where there is none.

    Dimensions are matched from the right. In one dimension, all extents other than 1 must be equal.
    An extent of 1 stretches to the others, also to 0.
    """
    found = []
    for extents in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        stretched = {extent for extent in extents if extent != 1}
        if len(stretched) > 1:
            return None
        found.append(stretched.pop() if stretched else 1)
    return tuple(reversed(found))


_SIGNED = (INT8, INT16, INT32, INT64)
_INTEGERS = (*_SIGNED, UINT8)
_FLOATS = (FLOAT16, BF16, FLOAT, DOUBLE)
_COMPLEX = (COMPLEX64, COMPLEX128)
_KNOWN = (BOOL, *_INTEGERS, *_FLOATS, *_COMPLEX)
"""Each other type promotes only with itself."""


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
    """COMPLEX128 if one of them has that precision, otherwise the shorter one."""
    return COMPLEX128 if {first, second} & {COMPLEX128, DOUBLE} else COMPLEX64


def _floating(first: DType, second: DType) -> DType:
    """A float wins over integers of any size; the two short ones meet in FLOAT."""
    floats = [each for each in (first, second) if each in _FLOATS]
    if {*floats} == {FLOAT16, BF16}:
        return FLOAT
    return max(floats, key=lambda each: each.itemsize)


def _whole(first: DType, second: DType) -> DType:
    """The wider one; UINT8 and INT8 together need 16 bits, since neither can hold the other."""
    if {first, second} == {INT8, UINT8}:
        return INT16
    integers = [each for each in (first, second) if each is not BOOL]
    return max(integers, key=lambda each: each.itemsize)


def is_room(found: DType, held: DType) -> bool:
    """Whether a tensor of a dtype holds results of another: of its kind or an earlier one."""
    kinds = ("bool", "int", "float", "complex")
    return kinds.index(found.kind) <= kinds.index(held.kind)


def dtype_of(*names: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: that of the first of these parameters that is there."""
    return lambda dtypes: dtypes[next((name for name in names if name in dtypes), names[0])]


def promotion(*names: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: these are promoted one after the other; absent ones do not count."""

    def kernel(dtypes: DTypes) -> DType:
        first, *rest = [dtypes[name] for name in names if name in dtypes]
        for dtype in rest:
            first = common_type(first, dtype) or FLOAT
        return first

    return kernel


def float16_if_all(*names: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: FLOAT16 if all of them are, otherwise FLOAT."""
    return lambda dtypes: FLOAT16 if all(dtypes[n] is FLOAT16 for n in names) else FLOAT


def never(_: DType) -> bool:
    """No kernel dtype makes every step round."""
    return False

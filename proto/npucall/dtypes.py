"""The element types: one row each, with ACL's code, CANN's name and the NumPy dtype.

What else is known of a type follows from its row; no other table names types. Also: which type two
of them promote to, and which can be cast to which, as CANN decides it [src:can-cast].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]
"""A NumPy array of any dtype and shape."""


class Array(Protocol):
    """What an operator takes for a tensor: anything that NumPy can read as an array.

    NumPy arrays, and CPU tensors of other libraries such as ``torch.Tensor``. Formulas get NumPy
    arrays; the protocol says what they do with them.
    """

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    def __array__(self, dtype: Any = ..., /) -> AnyArray: ...
    def __neg__(self) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """An element type. There is one object for each, so ``is`` and ``==`` mean the same."""

    name: str
    """CANN's name without its prefix: FLOAT, BF16."""
    acl: int
    """Code in ``aclDataType``; on the wire it is one more."""
    numpy: np.dtype[Any]
    kind: str
    """float, int, bool, complex, or other (8-bit floats, with which no operator computes)."""

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.numpy.itemsize

    @cached_property
    def wire(self) -> int:
        """Value in ``npucall.v1.DataType``."""
        return self.acl + 1

    @property
    def is_short(self) -> bool:
        """Whether it is a float shorter than FLOAT: formulas compute in FLOAT then, and round."""
        return self.kind == "float" and self.itemsize < FLOAT.itemsize

    @property
    def is_of_numpy(self) -> bool:
        """Whether NumPy has it itself; it has the others by ``ml_dtypes``."""
        return self.numpy.isbuiltin == 1

    @cached_property
    def short(self) -> str:
        """Kind and bits: f32, bf16, s64, u8, b8."""
        letter = "u" if self.numpy.kind == "u" else _LETTERS[self.kind]
        is_brain = self.kind == "float" and not self.is_of_numpy
        return f"{'bf' if is_brain else letter}{8 * self.itemsize}"

    @cached_property
    def fraction(self) -> int:
        """Bits of the fraction of a float; 0 for all that is none."""
        return int(self._float.nmant) if self._is_float else 0

    @cached_property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number of a float."""
        return int(self._float.minexp)

    @cached_property
    def largest(self) -> float:
        """The largest finite number of a float; infinite for all that is none."""
        return float(self._float.max) if self._is_float else math.inf

    @property
    def _is_float(self) -> bool:
        return self.kind in ("float", "other")

    @property
    def _float(self) -> Any:
        finfo: Any = ml_dtypes.finfo
        return finfo(self.numpy)

    def __repr__(self) -> str:
        return self.name


_LETTERS = {"float": "f", "int": "s", "bool": "b", "complex": "c", "other": "x"}


def _row(name: str, acl: int, numpy: Any, kind: str) -> DType:
    return DType(name, acl, np.dtype(numpy), kind)


FLOAT = _row("FLOAT", 0, np.float32, "float")
FLOAT16 = _row("FLOAT16", 1, np.float16, "float")
INT8 = _row("INT8", 2, np.int8, "int")
INT32 = _row("INT32", 3, np.int32, "int")
UINT8 = _row("UINT8", 4, np.uint8, "int")
INT16 = _row("INT16", 6, np.int16, "int")
UINT16 = _row("UINT16", 7, np.uint16, "int")
UINT32 = _row("UINT32", 8, np.uint32, "int")
INT64 = _row("INT64", 9, np.int64, "int")
UINT64 = _row("UINT64", 10, np.uint64, "int")
DOUBLE = _row("DOUBLE", 11, np.float64, "float")
BOOL = _row("BOOL", 12, np.bool_, "bool")
COMPLEX64 = _row("COMPLEX64", 16, np.complex64, "complex")
COMPLEX128 = _row("COMPLEX128", 17, np.complex128, "complex")
BF16 = _row("BF16", 27, ml_dtypes.bfloat16, "float")
FLOAT8_E5M2 = _row("FLOAT8_E5M2", 35, ml_dtypes.float8_e5m2, "other")
FLOAT8_E4M3FN = _row("FLOAT8_E4M3FN", 36, ml_dtypes.float8_e4m3fn, "other")
FLOAT8_E8M0 = _row("FLOAT8_E8M0", 37, ml_dtypes.float8_e8m0fnu, "other")

DTYPES = tuple(value for value in list(globals().values()) if isinstance(value, DType))
BY_WIRE = {dtype.wire: dtype for dtype in DTYPES}
BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}

FLOATS = (FLOAT, FLOAT16, BF16)
HALF_AND_SINGLE = (FLOAT, FLOAT16)

_PROMOTION_ORDER = (FLOAT, FLOAT16, DOUBLE, BF16, INT8, UINT8, INT16, INT32, INT64, BOOL)
# Row and column in _PROMOTION_ORDER; symmetric [src:promotion].
_PROMOTION = """f32 f16 f64 bf16 s8 u8 s16 s32 s64 b8
f32 f32 f64 f32  f32  f32  f32  f32  f32  f32
f32 f16 f64 f32  f16  f16  f16  f16  f16  f16
f64 f64 f64 f64  f64  f64  f64  f64  f64  f64
f32 f32 f64 bf16 bf16 bf16 bf16 bf16 bf16 bf16
f32 f16 f64 bf16 s8   s16  s16  s32  s64  s8
f32 f16 f64 bf16 s16  u8   s16  s32  s64  u8
f32 f16 f64 bf16 s16  s16  s16  s32  s64  s16
f32 f16 f64 bf16 s32  s32  s32  s32  s64  s32
f32 f16 f64 bf16 s64  s64  s64  s64  s64  s64
f32 f16 f64 bf16 s8   u8   s16  s32  s64  b8
"""
_SHORT = {dtype.short: dtype for dtype in _PROMOTION_ORDER}
_PROMOTED = {
    (row, column): _SHORT[cell]
    for row, line in zip(_PROMOTION_ORDER, _PROMOTION.split("\n")[1:-1], strict=True)
    for column, cell in zip(_PROMOTION_ORDER, line.split(), strict=True)
}


def dtype_named(text: str) -> DType:
    """The dtype of a name such as f32, FLOAT or float32.

    Raises ValueError.
    """
    for dtype in DTYPES:
        if text.lower() in (dtype.short, dtype.name.lower(), str(dtype.numpy)):
            return dtype
    raise ValueError(f"dtype: expected one such as f32, f16 or bf16, found {text!r}")


def promote(first: DType, second: DType) -> DType | None:
    """The type in which CANN computes with two tensors, or None if it has none.

    Looks at types only, unlike torch: rank-0 tensors and numbers are not special. Complex types:
    double with complex64, or anything with complex128, gives complex128.
    """
    if first is second:
        return first
    if "complex" in (first.kind, second.kind):
        return _promote_complex(first, second)
    return _PROMOTED.get((first, second))


def _promote_complex(first: DType, second: DType) -> DType | None:
    both = {first, second}
    if not all(dtype.kind == "complex" or dtype in _PROMOTION_ORDER for dtype in both):
        return None
    return COMPLEX128 if both & {COMPLEX128, DOUBLE} else COMPLEX64


def can_cast(source: DType, target: DType) -> bool:
    """Whether CANN casts ``source`` to ``target``: no complex to real, float to int, or to BOOL."""
    if source.kind == "complex" and target.kind != "complex":
        return False
    if source.kind in ("float", "other") and target.kind == "int":
        return False
    return target is not BOOL or source is BOOL

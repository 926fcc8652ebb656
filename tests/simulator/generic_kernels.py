"""Formulas of operators that npucall does not declare: small, in NumPy, for tests.

A formula takes the C arguments in their order: arrays for tensors, NumPy numbers for scalars,
dtypes for ``aclDataType``, lists, and None for null pointers. It writes into its outputs. Its
parameters have the names of the C prototype.
"""

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from npucall.dtypes import AnyArray

Formula = Callable[..., None]

FORMULAS: dict[str, Formula] = {}
"""Formulas by the C name of their operator."""


def wide(array: AnyArray) -> AnyArray:
    """Half precision as float32, as kernels compute; everything else as it is."""
    half = array.dtype in (np.float16, ml_dtypes.bfloat16)
    return array.astype(np.float32) if half else array


def formula(name: str) -> Callable[[Formula], Formula]:
    """Registers the formula of an operator."""

    def register(function: Formula) -> Formula:
        FORMULAS[name] = function
        return function

    return register


@formula("aclnnRsub")
def rsub(self: AnyArray, other: AnyArray, alpha: Any, out: AnyArray) -> None:
    """``other - alpha * self``."""
    widened = wide(self)
    out[...] = wide(other) - alpha.astype(widened.dtype) * widened


@formula("aclnnExp2")
def exp2(self: AnyArray, out: AnyArray) -> None:
    """``2 ** self``."""
    out[...] = np.exp2(wide(self))


@formula("aclnnReduceNansum")
def reduce_nansum(
    self: AnyArray,
    dim: Sequence[int],
    keep_dim: bool,
    dtype: np.dtype[Any],
    out: AnyArray,
) -> None:
    """The sum over ``dim`` with 0 for NaN, over all dimensions if none is named."""
    axes = tuple(dim) or tuple(range(self.ndim))
    out[...] = np.nansum(wide(self.astype(dtype)), axis=axes, keepdims=keep_dim)


@formula("aclnnCumsum")
def cumsum(self: AnyArray, dim: int, dtype: np.dtype[Any], out: AnyArray) -> None:
    """The sums of what stands before each element along ``dim``, and of it."""
    out[...] = wide(self.astype(dtype)).cumsum(dim)


@formula("aclnnInplaceVendorRelu")
def inplace_vendor_relu(self_ref: AnyArray) -> None:
    """``self_ref = max(self_ref, 0)``."""
    np.maximum(self_ref, self_ref.dtype.type(0), out=self_ref)


@formula("aclnnSplitWithSize")
def split_with_size(
    self: AnyArray, split_size: Sequence[int], dim: int, out: Sequence[AnyArray]
) -> None:
    """The parts of ``self`` along ``dim``, of the sizes given."""
    parts = np.split(self, np.cumsum(split_size)[:-1], axis=dim)
    for target, part in zip(out, parts, strict=True):
        target[...] = part


@formula("aclnnForeachAddScalarList")
def foreach_add_scalar_list(
    x: Sequence[AnyArray], scalars: Sequence[Any], out: Sequence[AnyArray]
) -> None:
    """Each tensor plus its scalar."""
    for source, scalar, target in zip(x, scalars, out, strict=True):
        target[...] = wide(source) + scalar.astype(wide(source).dtype)


@formula("aclnnResize")
def resize(self: AnyArray, scales: Sequence[float], mode: str, out: AnyArray) -> None:
    """The nearest element of an image, enlarged by a factor for each axis."""
    if mode != "nearest":
        raise ValueError(f"mode: expected 'nearest', found {mode!r}")
    grids = [(np.arange(n) / s).astype(int) for n, s in zip(out.shape, scales, strict=True)]
    out[...] = self[np.ix_(*grids)]


@formula("aclnnVendorSums")
def vendor_sums(
    self: AnyArray, which: list[bool], of_rows: AnyArray | None, of_columns: AnyArray | None
) -> None:
    """The sums of rows and of columns, as ``which`` asks for them."""
    for axis, (asked, out) in enumerate(zip(which, (of_columns, of_rows), strict=True)):
        if asked != (out is not None):
            raise ValueError(f"which: expected what outputs there are, found {which}")
        if out is not None:
            out[...] = wide(self).sum(axis)


@formula("aclnnVendorScale")
def vendor_scale(self: AnyArray, factor: float, out: AnyArray) -> None:
    """``self * factor``."""
    out[...] = wide(self) * wide(self).dtype.type(factor)

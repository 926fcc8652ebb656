"""Faults in how results are rounded to what they are answered in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute import operands
from npucall.dtypes import BF16, FLOAT, FLOAT16
from npucall.operators.mul import mul
from npucall_client.conformance.stating.rounding import ulp

from .seeded import Seed, changed, fault

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from npucall.dtypes import AnyArray, DType

RIGHT = operands.convert
BITS = {2: np.uint16, 4: np.uint32}


def towards_zero(exact: AnyArray, right: AnyArray) -> Any:
    """Where the number is to be one less in size, and where one more."""
    return np.abs(right) > np.abs(exact), False


def away_from_zero(exact: AnyArray, right: AnyArray) -> Any:
    return False, np.abs(right) < np.abs(exact)


def half_away(dtype: DType) -> Callable[[AnyArray, AnyArray], Any]:
    """Only ties differ: those whose even neighbour is nearer to zero."""

    def which(exact: AnyArray, right: AnyArray) -> Any:
        tie = np.abs(exact - right) == ulp(exact, dtype) / 2
        return False, tie & (np.abs(right) < np.abs(exact))

    return which


def moved(dtype: DType, which: Callable[[AnyArray, AnyArray], Any]) -> Seed:
    """Results in that dtype are moved to a neighbour."""

    def convert(target: AnyArray, source: AnyArray) -> None:
        RIGHT(target, source)
        if target.dtype != dtype.numpy or source.dtype.kind != "f" or source.itemsize == 2:
            return
        with np.errstate(all="ignore"):
            right = target.astype(np.float64)
            less, more = which(source.astype(np.float64), right)
            told = np.isfinite(right) & np.isfinite(source)
            bits = target.view(BITS[target.dtype.itemsize])
            bits += (told & more).astype(bits.dtype)
            bits -= (told & less).astype(bits.dtype)

    return converting(convert)


def through(dtype: DType, first: DType) -> Seed:
    """Results in a dtype are rounded to another one before."""

    def convert(target: AnyArray, source: AnyArray) -> None:
        if target.dtype == dtype.numpy and source.dtype.kind == "f" and source.itemsize > 2:
            with np.errstate(all="ignore"):
                source = source.astype(first.numpy).astype(np.float64)
        RIGHT(target, source)

    return converting(convert)


def converting(convert: Callable[[AnyArray, AnyArray], None]) -> Seed:
    def converted(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        result = np.empty(array.shape, dtype)
        convert(result, array)
        return result

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operands, "convert", convert)
        monkeypatch.setattr(operands, "converted", converted)

    return seed


def cut_off_product(facts: Any, self: Any, other: Any) -> Any:
    """A product in FLOAT, cut off there."""
    if facts.dtype != np.float32:
        return self * other
    exact = self.astype(np.float64) * other
    right = exact.astype(np.float32)
    bits = right.view(np.uint32)
    bits -= (np.isfinite(right) & (np.abs(right.astype(np.float64)) > np.abs(exact))).astype(
        np.uint32
    )
    return right


ROUNDING = (
    fault("BF16 is cut off", "aclnnGelu", moved(BF16, towards_zero),
          found_in="grid size", spared="invalid"),
    fault("FLOAT16 is cut off", "aclnnMseLoss", moved(FLOAT16, towards_zero),
          found_in="grid size", spared="invalid"),
    fault("FLOAT is cut off", "aclnnMul", changed(mul, formula=cut_off_product),
          found_in="grid size", spared="empty"),
    fault("BF16 is rounded away from zero", "aclnnSoftmax", moved(BF16, away_from_zero),
          found_in="grid size", spared="invalid"),
    fault("ties of BF16 are rounded away from zero", "aclnnKlDivBackward",
          moved(BF16, half_away(BF16)), found_in="edge", spared="invalid"),
    fault("ties of FLOAT16 are rounded away from zero", "aclnnMean",
          moved(FLOAT16, half_away(FLOAT16)), found_in="edge", spared="invalid"),
    fault("BF16 is rounded through FLOAT16", "aclnnSilu", through(BF16, FLOAT16),
          found_in="size", spared="invalid"),
    fault("FLOAT16 is rounded through BF16", "aclnnTanh", through(FLOAT16, BF16),
          found_in="grid size", spared="invalid"),
    fault("DOUBLE becomes BF16 through FLOAT", "aclnnCast", through(BF16, FLOAT),
          found_in="edge", spared="grid invalid"),
    fault("BF16 is cut off on a device", "aclnnGelu", moved(BF16, towards_zero),
          found_in="size", spared="grid edge", profile="cann-standard"),
    fault("FLOAT16 is rounded away from zero on a device", "aclnnMseLossBackward",
          moved(FLOAT16, away_from_zero), found_in="size", spared="edge",
          profile="cann-standard"),
)  # fmt: skip

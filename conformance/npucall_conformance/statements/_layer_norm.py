"""Layer normalisation in loops and in arrays, for its statements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT16
from npucall.errors import AttributeValueError
from npucall.tensors import Shape
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import Arguments, Reals
from npucall_conformance.stating.domains import Draw
from npucall_conformance.stating.parts import Attributes, Invalid, Setup

SHAPES: dict[str, Any] = {
    "attributes": {"normalized_shape": (lambda base: [base[-1]], list)},
    "base_shapes": ((4, 6), (3, 5, 7), (2, 3, 4, 5)),
    "rank_shapes": ((5,), (1, 3), (2, 1, 3, 1, 1, 2, 1, 2), (2, 1, 3, 1, 2)),
    "sized": lambda count: (max(count // 96, 1), 96),
    "large_shape": (331, 307),
    "large": (
        Setup("many-rows", (12_301, 8)),
        Setup("long-rows", (3, 33_011)),
        Setup("one-row", (1, 100_003)),
    ),
}
"""Of rows along the last axis, and of all of a tensor as one."""


def lead(k: Arguments) -> Shape:
    """The extents before those that are normalised."""
    return tuple(k["input"].shape[: k["input"].ndim - len(k["normalized_shape"])])


def ones(k: Arguments) -> Shape:
    return lead(k) + (1,) * len(k["normalized_shape"])


def tail(k: Arguments) -> Shape:
    return tuple(k["normalized_shape"])


def rows(k: Arguments, name: str) -> Reals:
    """A tensor as a matrix: a row for each place that is normalised."""
    found: Reals = k[name].reshape(math.prod(lead(k)), math.prod(tail(k)))
    return found


def weights(k: Arguments, name: str, none: float) -> Reals:
    """A weight or a bias as one row; without one, the number ``none``."""
    given: Reals | None = k[name]
    return np.full(math.prod(tail(k)), none) if given is None else given.reshape(-1)


def moments(row: list[float], eps: float) -> tuple[float, float]:
    """Mean and rstd of a row, in Python; 0 and NaN of none."""
    if not row:
        return 0.0, reals.NAN
    mean = reals.total(row) / len(row)
    variance = reals.total([(x - mean) * (x - mean) for x in row]) / len(row) + eps
    return mean, reals.divide(1.0, math.sqrt(variance) if variance >= 0 else reals.NAN)


def row_gradient(g: list[float], w: list[float], normal: list[float], rstd: float) -> list[float]:
    """The gradient of a row, in Python."""
    d = [a * b for a, b in zip(g, w, strict=True)]
    mean = reals.total(d) / len(d)
    share = reals.total([a * b for a, b in zip(d, normal, strict=True)]) / len(d)
    return [rstd * (a - mean - b * share) for a, b in zip(d, normal, strict=True)]


def forward_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    of_row = tuple(attributes["normalized_shape"])
    return {"input": base, "weight": of_row, "bias": of_row}


def backward_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    of_row = tuple(attributes["normalized_shape"])
    one = base[: len(base) - len(of_row)] + (1,) * len(of_row)
    of_rows = {"mean": one, "rstd": one, "weight": of_row, "bias": of_row}
    return {"grad_out": base, "input": base, **of_rows}


def _of_rows(draw: Draw) -> Any:
    count = math.prod(draw.shape)
    return draw["input"].reshape(count, -1) if draw["input"].size else np.zeros((count, 1))


def means(draw: Draw) -> Any:
    """What the forward operator gives for the rows that were drawn."""
    return _of_rows(draw).mean(-1).reshape(draw.shape)


def deviations(draw: Draw) -> Any:
    """Of very narrow rows less than it gives, since what is computed grows by it."""
    return (1 / np.sqrt(_of_rows(draw).var(-1) + 0.01)).reshape(draw.shape)


def tails(*found: tuple[int, ...], **more: Any) -> tuple[Invalid, ...]:
    """Extents that do not fit."""
    blames = more.pop("blames", ("normalized_shape",))
    error = more.pop("error", AttributeValueError)
    return tuple(
        Invalid(f"tail-{'x'.join(map(str, each)) or 'none'}", {"normalized_shape": each}, blames,
                error, **more)
        for each in found
    )  # fmt: skip


MIXED = tuple(
    Setup(dtypes={"weight": dtype, "bias": dtype}, only=(dtype,)) for dtype in (FLOAT16, BF16)
)
"""A weight and a bias of the input's dtype; in other cases they are FLOAT."""

"""What the tests of arithmetic operators have in common: dtypes, shapes, and two inputs' checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BOOL, COMPLEX64, DOUBLE, INT8, INT32, INT64, UINT16, DType
from npucall.errors import DTypeError, ShapeError

from .faults import NINE, Fault, Table, dtype, null, shape
from .subject import THREE, TWO

INTEGERS = "INT8 INT16 INT32 INT64 UINT8"
OLDER = f"{TWO} DOUBLE {INTEGERS} BOOL COMPLEX64 COMPLEX128"
NEWER = f"{THREE} DOUBLE {INTEGERS} BOOL COMPLEX64 COMPLEX128"
PAIR = ("self", "other")
# Of self and other.
STRETCHED = [
    {"self": one, "other": other}
    for one, other in (
        ((4, 6), (4, 6)),
        ((4, 1), (4, 6)),
        ((4, 6), (6,)),
        ((), (4, 6)),
        ((4, 1), (1, 6)),
        ((), ()),
        ((2, 1, 1, 2, 1, 2, 1, 2), (2, 1, 3, 1, 1, 2, 1, 1)),
    )
]


def pair(one: DType, other: DType, **more: Any) -> dict[str, Any]:
    """The dtypes of self and other."""
    return {"self": {"dtype": one}, "other": {"dtype": other}, **more}


def shapes() -> list[Fault]:
    """What is wrong with the shapes of two inputs that broadcast."""
    return [
        *shape(NINE, *PAIR),
        Fault({"other": {"shape": (4, 3)}}, ShapeError, PAIR),
        *shape((3, 2), "out"),
        *shape((1, 2, 3), "out"),
    ]


def uncastable(*kinds: DType) -> list[Fault]:
    """Outputs that the promoted dtype cannot be cast to."""
    return [Fault({"out": {"dtype": kind}}, DTypeError, ("out",)) for kind in kinds]


# --- Sum and difference ---------------------------------------------------------------------------

PROTOTYPE = "const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out"
"""As the header has it [src:cann-headers]."""


def scaled(operator: Any) -> Table:
    """The checks of a sum or a difference, in order [src:add-sub]."""
    return Table(
        operator,
        {"alpha": Scalar(INT64, 1)},
        [
            *null(*PAIR, "alpha", "out"),
            *dtype(UINT16, *PAIR),
            Fault({"alpha": Scalar(COMPLEX64, 1)}, DTypeError, ("alpha",)),
            Fault(pair(INT32, INT8, alpha=Scalar(DOUBLE, 1.0)), DTypeError, ("alpha",)),
            Fault(pair(BOOL, BOOL, alpha=Scalar(DOUBLE, 1.0)), DTypeError, ("alpha",)),
            *uncastable(INT64, BOOL, UINT16),
            *shapes(),
        ],
    )


# alpha, self, other, sum, difference
_CELLS: list[tuple[float, ...]] = [
    (1.0, 3.0, 1.0, 4.0, 2.0),
    (2.0, 3.0, 1.5, 6.0, 0.0),
    (-0.5, 3.0, 1.0, 2.5, 3.5),
    (0.0, 3.0, 1.0, 3.0, 3.0),
    (0.0, 3.0, np.inf, np.nan, np.nan),
    (1.0, np.inf, 1.0, np.inf, np.inf),
    (1.0, np.inf, -np.inf, np.nan, np.inf),
    (1.0, np.inf, np.inf, np.inf, np.nan),
    (np.inf, 1.0, -2.0, -np.inf, np.inf),
    (1.0, np.nan, 1.0, np.nan, np.nan),
    (1.0, 1.0, np.nan, np.nan, np.nan),
    (np.nan, 1.0, 1.0, np.nan, np.nan),
]
SUMS = [(*row[:3], row[3]) for row in _CELLS]
DIFFERENCES = [(*row[:3], row[4]) for row in _CELLS]


def summands(tensors: dict[str, Any], _: Any, *, alpha: float) -> Any:
    """The size of what is added up."""
    return np.abs(tensors["self"]) + np.abs(alpha * tensors["other"])


def torch_of(name: str) -> Any:
    """torch's sum or difference, by the name of its function."""

    def result(tensors: dict[str, Any], *, alpha: float) -> Any:
        import torch

        one, other = (torch.tensor(np.asarray(tensors[each])) for each in PAIR)
        return getattr(torch, name)(one, other, alpha=alpha).numpy()

    return result

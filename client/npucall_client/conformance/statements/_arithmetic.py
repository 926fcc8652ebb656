"""What statements of arithmetic have in common: two operands, their dtypes and defects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    DType,
)
from npucall.errors import DTypeError, ShapeError
from npucall_client.conformance import defects, reals
from npucall_client.conformance.domains import mixed, normal, uniform
from npucall_client.conformance.statement import In, Invalid, Out, Setup

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_client.conformance.statement import DTypes

PAIR = ("self", "other")
NAN, INF = reals.NAN, reals.INFINITY
INTEGERS = (INT8, INT16, INT32, INT64, UINT8)
EDGES = (0.0, -0.0, 1.0, -2.5, 300.0, 1e-4, INF, -INF, NAN)


def operands() -> tuple[In, In]:
    """Two inputs of numbers."""
    return In("self", normal(2.0)), In("other", normal(2.0))


def result(dtype: Callable[[DTypes], DType]) -> Out:
    """The output: of the shape that both broadcast to."""
    return Out("out", shape=lambda k: k.shape(*PAIR), dtype=dtype)


def beside(*pairs: tuple[DType, DType], **more: Any) -> tuple[Setup, ...]:
    """Operands of two dtypes; numbers are small, so that no integer wraps around."""
    numbers = {"self": (7.0, 0.0, 5.0, 6.0), "other": (1.0, 0.0, 2.0, 6.0)}
    return tuple(
        Setup(values=numbers, dtypes=dict(zip(PAIR, pair, strict=True)), **more) for pair in pairs
    )


MIXED_PAIRS = (
    *((each, each) for each in (*INTEGERS, BOOL, DOUBLE)),
    (INT8, UINT8), (UINT8, INT32), (BOOL, INT16), (INT64, FLOAT16), (FLOAT, INT8), (BF16, INT32),
    (DOUBLE, FLOAT16), (INT32, DOUBLE), (BOOL, FLOAT),
)  # fmt: skip


def shapes() -> tuple[Invalid, ...]:
    """What is wrong with two shapes that broadcast, and that of the output."""
    return (
        *defects.ranks(*PAIR),
        *defects.shapes("self", (5, 3), blames=PAIR),
        *defects.shapes("other", (4, 3), blames=PAIR),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
    )


def listed(*names: str) -> tuple[Invalid, ...]:
    """Dtypes that no arithmetic takes, and BF16 where there is none."""
    return (*defects.dtypes(*names, found=UINT16), *defects.no_bfloat16(*names))


def complex_beside(output: str = "out") -> tuple[Invalid, ...]:
    """A complex input makes a complex result, which no real output holds."""
    change = {"self": {"dtype": COMPLEX64}}
    return (Invalid("complex-self", change, (output,), DTypeError),)


def positive() -> In:
    """Numbers that have logarithms."""
    return In("self", mixed(uniform(0.01, 8), uniform(0.9, 1.1)))


CASTS = tuple(
    Setup(dtypes={"self": one, "out": other})
    for one, other in (
        (FLOAT, FLOAT16), (FLOAT16, FLOAT), (FLOAT, BF16), (BF16, FLOAT16), (FLOAT16, DOUBLE),
        (DOUBLE, FLOAT),
    )
)  # fmt: skip
"""Outputs narrower and wider than the input."""


def of_rank_9() -> tuple[Invalid, ...]:
    """Nine dimensions of self, and of the output, which has its shape."""
    change = {name: {"shape": defects.NINE} for name in ("self", "out")}
    return (Invalid("rank-9-both", change, ("self",), ShapeError, block="rank"),)

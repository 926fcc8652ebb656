"""What statements of arithmetic have in common: two operands, their dtypes and defects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    DType,
)
from npucall.errors import DTypeError, ShapeError
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.domains import mixed, normal, uniform
from npucall_conformance.stating.parts import DTypes, In, Invalid, Out, Setup

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


def any_byte(*others: DType, name: str = "self", other: str = "other") -> tuple[Setup, ...]:
    """BOOL of any bytes together with other dtypes."""
    return tuple(
        Setup(
            "any-byte", (10,), dtypes={name: BOOL, other: each}, raw={name: ANY_BYTE}, telling=True
        )
        for each in others
    )


COMPLEX = (1 + 2j, -0.5j, 3.0, -1.25 + 0.75j, 1e-3 - 1e3j)
OTHERS = (0.5 - 1j, 2 + 0.25j, -1.5j, -3.0, 7 + 1e-2j)


def complex_pairs(**more: Any) -> tuple[Setup, ...]:
    """Complex numbers together with other complex numbers, and with real ones."""
    real = tuple(abs(number) for number in OTHERS)
    return (
        *(
            Setup("complex", values={"self": COMPLEX, "other": OTHERS},
                  dtypes={"self": one, "other": other}, **more)
            for one in (COMPLEX64, COMPLEX128)
            for other in (COMPLEX64, COMPLEX128)
        ),
        *(
            Setup("complex", values={"self": COMPLEX, "other": real},
                  dtypes={"self": one, "other": other}, **more)
            for one, other in ((COMPLEX64, FLOAT), (COMPLEX64, DOUBLE), (COMPLEX128, FLOAT16))
        ),
    )  # fmt: skip


def beside(*pairs: tuple[DType, DType], **more: Any) -> tuple[Setup, ...]:
    """Operands of two dtypes; numbers are small, so that no integer wraps around."""
    numbers = {"self": (7.0, 0.0, 5.0, 6.0), "other": (1.0, 0.0, 1.0, 1.0)}
    return tuple(
        Setup(values=numbers, dtypes=dict(zip(PAIR, pair, strict=True)), **more) for pair in pairs
    )


ANY_BYTE = b"\x00\x02\x01\x80\xff"
"""BOOL as who writes C may have it: every byte but 0 is true."""
EVERY_PAIR = tuple(
    (one, other)
    for one in (*FLOATS, DOUBLE, *INTEGERS, BOOL)
    for other in (*FLOATS, DOUBLE, *INTEGERS, BOOL)
)
"""The whole table of promotions, except for complex numbers."""


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
    return tuple(
        row
        for name in names
        for row in (*defects.dtypes(name, found=UINT16), *defects.no_bfloat16(name))
    )


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

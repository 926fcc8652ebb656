"""Written calls of functions, sums and losses."""

from __future__ import annotations

import cmath
import math
from typing import Any

from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    COMPLEX128,
    FLOAT,
    INT8,
    INT32,
    INT64,
    DType,
)
from npucall_conformance.stating.written import WrittenCall, alone, dtype_of, of

_TOP32 = 2**31 - 1
_POINTS = (1 + 2j, -3 + 0.5j, 0.25 - 2j, 0j)


def each_of(function: Any, dtype: DType, points: tuple[complex, ...] = _POINTS) -> tuple[Any, Any]:
    """Points, and the results of a function at them."""
    return of(dtype, *points), of(dtype, *(function(point) for point in points))


def summed(note: str, numbers: Any, result: Any, **attributes: Any) -> WrittenCall:
    """A sum, over all dimensions by default."""
    asked = {"dims": (), "keep_dims": False, "dtype": dtype_of(result), **attributes}
    return WrittenCall(note, {"self": numbers}, (result,), asked)


EXP = (
    alone(
        "large", of(INT64, -200, 0, 1, -50, 80), of(FLOAT, 0, 1, *map(math.exp, (1, -50, 80))), 8
    ),
    alone("complex", *each_of(cmath.exp, COMPLEX64)),
    alone("complex", *each_of(cmath.exp, COMPLEX128)),
)
_NEAR_1 = (1 + 2.0**-10, 1 - 2.0**-12, 1 + 2.0**-20, 1 - 2.0**-7)
LOG = (
    alone("near-1", of(FLOAT, *_NEAR_1), of(FLOAT, *map(math.log, _NEAR_1)), 4),
    alone("complex", *each_of(cmath.log, COMPLEX64, (1 + 2j, -3 + 0.5j, 0.25 - 2j, -1 + 0j))),
    alone("complex", *each_of(cmath.log, COMPLEX128, (1 + 2j, -3 + 0.5j, 0.25 - 2j, -1 + 0j))),
)


def _sigmoid(x: complex) -> complex:
    """The sigmoid of a complex number, computed so that it does not overflow."""
    power = cmath.exp(x if x.real < 0 else -x)
    return (power if x.real < 0 else 1) / (1 + power)


SIGMOID = tuple(
    alone("complex", *each_of(_sigmoid, dtype, (*_POINTS, -200 + 1j, 200 - 3j)))
    for dtype in (COMPLEX64, COMPLEX128)
)
_NEAR_END = (1 - 2.0**-10, 1 - 2.0**-20, 1 - 2.0**-24)


def _slope(name: str, values: tuple[float, ...], slope: Any) -> WrittenCall:
    inputs = {"grad_output": of(FLOAT, *[1.5] * len(values)), name: of(FLOAT, *values)}
    return WrittenCall("near-1", inputs, (of(FLOAT, *(1.5 * slope(y) for y in values)),), cost=4)


REDUCE_SUM = (
    summed("digits", of(INT32, 2**24 + 1, 1, 1), of(INT32, 2**24 + 3, shape=())),
    summed("wraps", of(INT32, _TOP32, 1), of(INT32, -_TOP32 - 1, shape=())),
    summed("digits", of(INT64, _TOP32, 1, 1), of(INT64, 2**31 + 1, shape=())),
    summed("wider", of(INT8, 100, 100, 100), of(INT64, 300, shape=())),
    summed("wraps", of(INT8, 100, 100, 100), of(INT8, 44, shape=())),
    summed("truths", of(BOOL, 1, 1), of(BOOL, 1, shape=())),
    summed("truths", of(BOOL, 0, 0, 1, 1, shape=(2, 2)), of(BOOL, 0, 1), dims=(1,)),
    summed("truths", of(BOOL, 1, 1, 1), of(INT32, 3, shape=())),
    summed("complex", of(COMPLEX64, 1 + 2j, 3 - 1j), of(COMPLEX64, 4 + 1j, shape=())),
)


def mean(note: str, numbers: Any, result: Any) -> WrittenCall:
    """A mean of everything."""
    asked = {"dim": (), "keep_dim": False, "dtype": dtype_of(result)}
    return WrittenCall(note, {"self": numbers}, (result,), asked)


MEAN = (
    mean("digits", of(INT32, 2**24 + 1, 2**24 + 3), of(INT32, 2**24 + 2, shape=())),
    mean("towards-0", of(INT64, -7, 0), of(INT64, -3, shape=())),
    mean("thirds", of(COMPLEX128, 1 + 2j, 3 - 1j, 3 + 1j), of(COMPLEX128, (7 + 2j) / 3, shape=())),
    mean("complex", of(COMPLEX64, 1 + 2j, 3 - 1j), of(COMPLEX64, 2 + 0.5j, shape=())),
)
_LABELS = {"reduction": 2, "ignore_index": 0}
NLL_LOSS = (
    WrittenCall(
        "ignores-0",
        {
            "self": of(FLOAT, -1, -2, -3, -4, shape=(2, 2)),
            "target": of(INT64, 0, 1),
            "weight": of(FLOAT, 1, 3),
        },
        (of(FLOAT, 12, shape=()), of(FLOAT, 3, shape=())),
        _LABELS,
    ),
)
NLL_LOSS_BACKWARD = (
    WrittenCall(
        "ignores-0",
        {
            "grad_output": of(FLOAT, 1),
            "self": of(FLOAT, -1, -2, -3, -4, shape=(2, 2)),
            "target": of(INT64, 0, 1),
            "weight": of(FLOAT, 1, 3),
            "total_weight": of(FLOAT, 4),
        },
        (of(FLOAT, 0, 0, 0, -3, shape=(2, 2)),),
        _LABELS,
    ),
)
NLL_LOSS2D_BACKWARD = (
    WrittenCall(
        "ignores-0",
        {
            "grad_output": of(FLOAT, 1, shape=()),
            "self": of(FLOAT, -1, -2, -3, -4, shape=(1, 2, 1, 2)),
            "target": of(INT64, 0, 1, shape=(1, 1, 2)),
            "weight": of(FLOAT, 1, 3),
            "total_weight": of(FLOAT, 4),
        },
        (of(FLOAT, 0, 0, 0, -3, shape=(1, 2, 1, 2)),),
        _LABELS,
    ),
)
SOFTPLUS_BACKWARD = (
    WrittenCall(
        "at-the-threshold",
        {"grad_output": of(FLOAT, 1, 1), "self": of(FLOAT, 1, 1.5)},
        (of(FLOAT, 1 / (1 + math.exp(-2)), 1),),
        {"beta": 2.0, "threshold": 2.0},
        4,
    ),
)
MATMUL = (
    WrittenCall(
        "lower-digits",
        {"self": of(FLOAT, 1 + 2.0**-12, shape=(1, 1)), "mat2": of(FLOAT, 1, shape=(1, 1))},
        (of(FLOAT, 1, shape=(1, 1)),),
        {"cube_math_type": 2},
    ),
)
PRELU = (
    WrittenCall(
        "as-many-channels-as-columns",
        {"self": of(FLOAT, *[-1] * 8, shape=(2, 2, 2)), "weight": of(FLOAT, 2, 3)},
        (of(FLOAT, -2, -2, -3, -3, -2, -2, -3, -3, shape=(2, 2, 2)),),
    ),
)
TANH_BACKWARD = (_slope("output", _NEAR_END, lambda y: (1 - y) * (1 + y)),)
SIGMOID_BACKWARD = (_slope("output", _NEAR_END, lambda y: (1 - y) * y),)

"""Written calls of conversions and arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
)
from npucall_conformance.stating.written import WrittenCall, alone, dtype_of, of, pair

NAN, INF = math.nan, math.inf
_TOP32 = 2**31 - 1


def cast(note: str, source: Any, target: Any, *, free: bool = False) -> WrittenCall:
    """A conversion; ``free``: devices may answer anything."""
    attributes = {"dtype": dtype_of(target)}
    return WrittenCall(note, {"self": source}, (target,), attributes, open_on_devices=free)


CAST = (
    cast(
        "digits",
        of(INT32, 2**24 + 1, -(2**24) - 3, _TOP32, 70000),
        of(FLOAT, 2**24, -(2**24) - 4, 2**31, 70000),
    ),
    cast(
        "digits",
        of(INT64, 2**40, -(2**40) - 2**20, 2**62, 4097),
        of(FLOAT, 2**40, -(2**40) - 2**20, 2**62, 4097),
    ),
    cast(
        "digits",
        of(INT64, 2**53, -(2**53) + 1, 2**40 + 1),
        of(DOUBLE, 2**53, -(2**53) + 1, 2**40 + 1),
    ),
    cast("large", of(FLOAT, 2.0**33, -(2.0**40), 2.0**24), of(INT64, 2**33, -(2**40), 2**24)),
    cast("no-sign", of(UINT8, 127, 128, 200, 255), of(FLOAT, 127, 128, 200, 255)),
    cast("no-sign", of(UINT8, 127, 128, 200, 255), of(INT32, 127, 128, 200, 255)),
    cast("wraps", of(UINT8, 127, 128, 200, 255), of(INT8, 127, -128, -56, -1)),
    cast("wraps", of(INT64, 300, -129, 2**40 + 5, -1), of(INT8, 44, 127, 5, -1)),
    cast("wraps", of(INT32, 40000, -40000, 70000), of(INT16, -25536, 25536, 4464)),
    cast(
        "ends",
        of(FLOAT, 300, -300, 1e12, -1e12, NAN, INF, -INF),
        of(INT8, 127, -128, 127, -128, 0, 127, -128),
        free=True,
    ),
    cast("ends", of(FLOAT, 3e9, -3e9, NAN), of(INT32, _TOP32, -_TOP32 - 1, 0), free=True),
    cast("truth", of(FLOAT, 0.5, -0.25, 0.0, -0.0, NAN, 2), of(BOOL, 1, 1, 0, 0, 1, 1)),
    cast("truth", of(COMPLEX64, 5j, 0j, 0.5), of(BOOL, 1, 0, 1)),
    cast("real-part", of(COMPLEX64, -3 + 4j, 5j, 2.5 - 1j), of(FLOAT, -3, 0, 2.5)),
    cast("real-part", of(COMPLEX128, -3 + 4j, 5j, 2.5 - 1j), of(INT32, -3, 0, 2)),
    cast("no-imaginary-part", of(FLOAT, 1.5, -2), of(COMPLEX64, 1.5, -2)),
    cast(
        "ties",
        of(FLOAT, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20),
        of(BF16, 1, 1 + 2**-6, -1, 1 + 2**-7),
    ),
    cast(
        "ties",
        of(FLOAT, 1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11, 1 + 2**-11 + 2**-20),
        of(FLOAT16, 1, 1 + 2**-9, -1, 1 + 2**-10),
    ),
)
ADD = (
    pair(
        "wraps", of(INT8, 100, -100, 127), of(INT8, 100, -100, 1), of(INT8, -56, 56, -128), alpha=1
    ),
    pair("wraps", of(UINT8, 250, 255), of(UINT8, 10, 1), of(UINT8, 4, 0), alpha=1),
    pair(
        "wraps",
        of(INT32, _TOP32, 2**24),
        of(INT32, 1, 1),
        of(INT32, -_TOP32 - 1, 2**24 + 1),
        alpha=1,
    ),
    pair(
        "digits", of(INT64, 2**40, 2**53), of(INT64, 2**40, 1), of(INT64, 2**41, 2**53 + 1), alpha=1
    ),
    pair("alpha", of(INT64, 5), of(INT64, 2**33), of(INT64, 5 + 3 * 2**33), alpha=3),
    pair("alpha", of(INT64, 5), of(INT64, 2), of(INT64, 5 + 2**26 + 2), alpha=2**25 + 1),
    pair(
        "complex",
        of(COMPLEX64, 1 + 2j, -1j),
        of(COMPLEX64, 3 - 1j, 2),
        of(COMPLEX64, 7, 4 - 1j),
        alpha=2,
    ),
    pair("complex", of(COMPLEX64, 1 + 2j), of(DOUBLE, 0.1), of(COMPLEX128, 1.1 + 2j), alpha=1),
    pair(
        "fractions",
        of(INT32, 2, -3),
        of(FLOAT16, 0.3, 0.3),
        of(FLOAT16, 2 + float(np.float16(0.3)), -3 + float(np.float16(0.3))),
        alpha=1,
    ),
    pair("truths", of(BOOL, 0, 0, 1, 1), of(BOOL, 0, 1, 0, 1), of(BOOL, 0, 1, 1, 1), alpha=1),
)
SUB = (
    pair("wraps", of(UINT8, 3, 0), of(UINT8, 5, 1), of(UINT8, 254, 255), alpha=1),
    pair("wraps", of(INT32, -_TOP32 - 1), of(INT32, 1), of(INT32, _TOP32), alpha=1),
    pair(
        "digits",
        of(INT64, 2**40, 2**53 + 1),
        of(INT64, 3, 2),
        of(INT64, 2**40 - 3, 2**53 - 1),
        alpha=1,
    ),
    pair("alpha", of(INT64, 5), of(INT64, 2**33), of(INT64, 5 - 3 * 2**33), alpha=3),
    pair(
        "complex",
        of(COMPLEX64, 1 + 2j, -1j),
        of(COMPLEX64, 3 - 1j, 2),
        of(COMPLEX64, -5 + 4j, -4 - 1j),
        alpha=2,
    ),
)
MUL = (
    pair(
        "digits",
        of(INT32, 2**24 + 1, -(2**24) - 3),
        of(INT32, 3, 5),
        of(INT32, 3 * 2**24 + 3, -5 * 2**24 - 15),
    ),
    pair("wraps", of(INT32, 70000, 2**20), of(INT32, 70000, 2**20), of(INT32, 605032704, 0)),
    pair("wraps", of(INT8, 100, 127), of(INT8, 3, 127), of(INT8, 44, 1)),
    pair("wraps", of(UINT8, 20, 255), of(UINT8, 20, 255), of(UINT8, 144, 1)),
    pair(
        "digits",
        of(INT64, 2**40, 2**31 + 1),
        of(INT64, 3, 2**30),
        of(INT64, 3 * 2**40, 2**61 + 2**30),
    ),
    pair(
        "complex",
        of(COMPLEX64, 1 + 2j, -1 - 1j, 1j),
        of(COMPLEX64, 3 - 4j, 2 + 3j, 1j),
        of(COMPLEX64, 11 + 2j, 1 - 5j, -1),
    ),
    pair(
        "complex",
        of(COMPLEX128, 1 + 2.0**-40 + 1j),
        of(COMPLEX128, 2 - 1j),
        of(COMPLEX128, 3 + 2.0**-39 + 1j * (1 - 2.0**-40)),
    ),
    pair(
        "complex",
        of(COMPLEX64, 3 + 1j),
        of(DOUBLE, 1 + 2.0**-40),
        of(COMPLEX128, (3 + 1j) * (1 + 2.0**-40)),
    ),
    pair(
        "subnormal",
        of(FLOAT, 2.0**-70, 3 * 2.0**-75, -(2.0**-80)),
        of(FLOAT, 2.0**-60, 2.0**-60, 2.0**-60),
        of(FLOAT, 2.0**-130, 3 * 2.0**-135, -(2.0**-140)),
    ),
)
MULS = (
    alone(
        "subnormal",
        of(FLOAT16, 2.0**-8, 3 * 2.0**-12),
        of(FLOAT16, 2.0**-16, 3 * 2.0**-20),
        other=2.0**-8,
    ),
    alone(
        "subnormal",
        of(FLOAT, 2.0**-120, -5 * 2.0**-125),
        of(FLOAT, 2.0**-130, -5 * 2.0**-135),
        other=2.0**-10,
    ),
    alone("digits", of(INT64, 2**40 + 1), of(INT64, 3 * 2**40 + 3), other=3),
    alone("wraps", of(INT8, 100), of(INT8, 44), other=3),
    alone("complex", of(COMPLEX64, 1 + 2j), of(COMPLEX64, 2.5 + 5j), other=2.5),
)
DIV = (
    pair(
        "complex",
        of(COMPLEX64, 11 + 2j, 1 - 5j),
        of(COMPLEX64, 3 - 4j, 2 + 3j),
        of(COMPLEX64, 1 + 2j, -1 - 1j),
    ),
    pair(
        "subnormal",
        of(FLOAT, 2.0**-120, 3 * 2.0**-125),
        of(FLOAT, 1024, 1024),
        of(FLOAT, 2.0**-130, 3 * 2.0**-135),
    ),
    pair("fractions", of(INT32, 7, -7, 2**24 + 1), of(INT32, 2, 2, 1), of(FLOAT, 3.5, -3.5, 2**24)),
)

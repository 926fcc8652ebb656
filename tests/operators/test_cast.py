"""aclnnCast: every dtype into every other, the ends of integers, and what is dropped."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.operators.cast import cast

from .calls import FLOATS, INF, LOCAL, NAN
from .defects import table_of

TAKEN = table_of(cast).statement.takes["Ascend910B"]


def test_every_dtype_becomes_every_other() -> None:
    numbers, wrong = [0, 1, 2, 3, 100], []
    for one, other in product(TAKEN, TAKEN):
        found = LOCAL.run(cast, np.array(numbers).astype(one.numpy), other)
        expected = np.array(
            [bool(n) for n in numbers] if "BOOL" in (one.name, other.name) else numbers
        )
        if found.dtype != other.numpy or (found.astype(np.complex128) != expected).any():
            wrong.append((one, other, found))
    assert not wrong


@each("kind", [*FLOATS, np.float64])
def test_of_a_float_an_integer_loses_the_fraction_nan_is_0_and_the_range_ends(kind: Any) -> None:
    x = np.array([2.75, -2.75, NAN, INF, -INF, 1e4, -1e4, 0.5, -0.5], kind)
    for to in (np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64):
        least, most = np.iinfo(to).min, np.iinfo(to).max
        expected = [2, -2, 0, most, least, int(x[5]), int(x[6]), 0, 0]
        found = LOCAL.run(cast, x, np.dtype(to))
        assert found.tolist() == [min(max(n, least), most) for n in expected]


def test_the_ends_of_64_bits_are_met_exactly() -> None:
    x = np.array([2.0**63, -(2.0**63), 2.0**63 - 1024, 2.0**64, -1.0])
    assert LOCAL.run(cast, x, np.int64).tolist() == [
        2**63 - 1, -(2**63), 2**63 - 1024, 2**63 - 1, -1,
    ]  # fmt: skip
    assert LOCAL.run(cast, x, np.uint64).tolist() == [2**63, 0, 2**63 - 1024, 2**64 - 1, 0]


def test_integers_wrap_around() -> None:
    found = LOCAL.run(cast, np.array([300, -1, 2**40 + 5]), np.uint8)
    assert found.tolist() == [44, 255, 5]


def test_everything_but_0_is_true() -> None:
    x = np.array([0.0, -0.0, NAN, 1e-40, INF], np.float32)
    assert LOCAL.run(cast, x, np.bool_).tolist() == [False, False, True, True, True]
    imaginary = LOCAL.run(cast, np.array([0j, 1j]), np.bool_)
    assert imaginary.tolist() == [False, True]


@pytest.mark.filterwarnings("error")
def test_of_a_complex_number_the_real_part_remains() -> None:
    x = np.array([1.5 + 2j, -3.75 - 1j], np.complex64)
    for kind, expected in (
        (np.float64, [1.5, -3.75]),
        (np.int32, [1, -3]),
        (np.float16, [1.5, -3.75]),
    ):
        assert LOCAL.run(cast, x, np.dtype(kind)).tolist() == expected


def test_floats_are_rounded_to_nearest_even() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65520.0, 2.0**-25, 3 * 2.0**-25], np.float32)
    expected = [1.0, 1 + 2.0**-9, INF, 0.0, 2.0**-23]
    assert LOCAL.run(cast, x, np.float16).tolist() == expected

"""aclnnAdd, and what it shares with aclnnSub: alpha, integers, and the checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import DTypeError
from npucall.operators.add import add
from npucall.operators.sub import sub
from npucall.products import ASCEND_910

from .arithmetic import (
    NEWER,
    OLDER,
    PAIR,
    PROTOTYPE,
    STRETCHED,
    SUMS,
    pair,
    scaled,
    summands,
    torch_of,
)
from .faults import Fault
from .gradients import BF16, FLOATS, LOCAL, title
from .subject import WITH_BF16, Cells, Subject, every

SUBJECT = Subject(
    scaled(add),
    PROTOTYPE,
    documented=(*WITH_BF16, ASCEND_910),
    newer=NEWER,
    older=OLDER,
    typed=(*PAIR, "out"),
    attributes={"alpha": 1.0},
    cells=Cells("alpha self other", SUMS),
    torch=torch_of("add"),
    calls=every(*STRETCHED, alpha=(1.0, -0.75)),
    noise=summands,
    casts=(*FLOATS, np.float64, np.complex64),
    stretches=True,
)
both = pytest.mark.parametrize("operator", [add, sub], ids=title)


@pytest.mark.parametrize(
    ("kind", "alpha", "total", "difference"),
    [
        (np.int8, 1, [-126, -128, 8], [124, -128, 2]),  # 127 + 3, -128 + 0, 5 + 3
        (np.uint8, 1, [130, 128, 8], [124, 128, 2]),
        (np.int64, -2, [121, -128, -1], [133, -128, 11]),
        (np.bool_, 1, [True, True, True], [False, True, False]),
        (np.bool_, 0, [True, True, True], [True, True, True]),
    ],
    ids=str,
)
def test_integers_wrap_around_and_truth_values_are_joined_or_compared(
    kind: Any, alpha: int, total: list[Any], difference: list[Any]
) -> None:
    one, other = np.array([127, -128, 5]).astype(kind), np.array([3, 0, 3]).astype(kind)
    assert LOCAL.run(add, one, other, alpha).tolist() == total
    assert LOCAL.run(sub, one, other, alpha).tolist() == difference


@both
def test_alpha_is_converted_to_the_promoted_dtype(operator: Any) -> None:
    one = np.zeros(1, np.float16)
    assert LOCAL.run(operator, one, one + 1, 0.1)[0] in (np.float16(0.1), -np.float16(0.1))
    wide = LOCAL.run(operator, np.zeros(1), np.ones(1), 0.1)
    assert abs(wide[0]) == 0.1  # all 53 bits
    assert abs(LOCAL.run(operator, one.astype(np.int8), np.ones(1, np.int8), 257)[0]) == 1


@pytest.mark.parametrize(
    ("promoted", "alphas"),
    [
        ((INT32, INT8), {INT8, INT32, INT64, BOOL}),
        ((BOOL, BOOL), {INT8, INT32, INT64, BOOL}),
        ((FLOAT, INT8), {INT8, INT32, INT64, BOOL, FLOAT, DOUBLE, FLOAT16}),
        ((COMPLEX64, INT8), {INT8, INT32, INT64, BOOL, FLOAT, DOUBLE, FLOAT16, COMPLEX64}),
    ],
    ids=["integers", "truth values", "floats", "complex numbers"],
)
@both
def test_alpha_has_a_dtype_that_can_be_cast_to_the_promoted_one(
    operator: Any, promoted: Any, alphas: set[Any]
) -> None:
    checks = scaled(operator)
    taken = set()
    for kind in (INT8, INT32, INT64, BOOL, FLOAT, DOUBLE, FLOAT16, COMPLEX64):
        changes = pair(*promoted, alpha=Scalar(kind, 1), out={"dtype": COMPLEX64})
        if promoted == (BOOL, BOOL):
            changes["out"] = {"dtype": BOOL}
        if checks.refusal(Fault(changes, DTypeError, ("alpha",))) is None:
            taken.add(kind)
    assert taken == alphas


@both
def test_complex_numbers_are_added_as_such(operator: Any) -> None:
    one, other = np.array([1 + 2j, 3j], np.complex64), np.array([2, 4], np.int16)
    sign = 1 if operator is add else -1
    found = LOCAL.run(operator, one, other, 0.5)
    assert found.dtype == np.complex64
    np.testing.assert_array_equal(found, one + sign * 0.5 * other)


@pytest.mark.parametrize("kind", [np.float16, BF16], ids=title)
def test_the_product_with_alpha_is_not_rounded_before_the_sum(kind: Any) -> None:
    unit = float(np.spacing(np.array(1, np.float32))) * 2.0 ** (13 if kind is np.float16 else 16)
    other = np.array([1 + unit], kind)
    # (1 + u)^2 = 1 + 2u + u^2: rounded before, the sum would be 0.
    found = LOCAL.run(add, np.array([-(1 + 2 * unit)], kind), other, 1 + unit)
    assert float(found[0]) == unit**2

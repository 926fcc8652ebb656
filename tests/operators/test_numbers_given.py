"""Numbers given as aclScalars: their dtypes, their precision, and values that are refused."""

from typing import Any

import numpy as np
from tests.rows import each

from npucall.declare.parameters import Kind, Scalar
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    DTYPES,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    DType,
)
from npucall.errors import PARAM_INVALID, AttributeValueError
from npucall.operators.elu_backward import elu_backward
from npucall.operators.hardtanh import hardtanh
from npucall.operators.hardtanh_backward import hardtanh_backward
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.operators.smooth_l1_loss_backward import smooth_l1_loss_backward
from npucall.products import A2, ASCEND_910, Product

from .calls import INF, LOCAL, NAN, drawn, refusal, results, usual
from .defects import TABLES, Table

COMPLEX = {COMPLEX64, COMPLEX128}
INTEGERS = {INT8, INT16, INT32, INT64, UINT8}
LISTED = {
    "aclnnHardtanh": INTEGERS,
    "aclnnInplaceHardtanh": INTEGERS,
    "aclnnLeakyReluBackward": {*INTEGERS, BOOL},
    "aclnnFloorDivides": {*INTEGERS, BOOL},
    "aclnnInplaceFloorDivides": {*INTEGERS, BOOL},
}
"""What these take in addition to floats; the others take every number that is not complex."""
SCALARS = [
    (table, attribute.name)
    for table in TABLES
    for attribute in table.operator.attributes
    if attribute.kind is Kind.SCALAR
]


@each("table name", SCALARS)
@each("product", [A2, ASCEND_910])
def test_a_number_may_have_these_dtypes(table: Table, name: str, product: Product) -> None:
    if product.soc not in table.statement.takes:
        return
    expected: set[DType] = {*DTYPES} - COMPLEX
    if more := LISTED.get(table.operator.name):
        expected = {FLOAT, FLOAT16, DOUBLE, *more} | ({BF16} if product.bfloat16 else set())
    changes = {kind: {name: Scalar(kind, 1)} for kind in DTYPES}
    taken = {k for k, c in changes.items() if refusal(table.operator, c, product) is None}
    assert taken == expected


@each("table name", SCALARS)
def test_a_number_counts_as_float32_unless_it_is_one_of_the_kernels_dtype(
    table: Table, name: str
) -> None:
    if name in table.statement.in_kernel:
        return
    case, *_ = usual(table.statement, DOUBLE if DOUBLE in table.statement.dtypes else FLOAT)
    tensors, attributes = drawn(case)
    found, expected = (
        results(LOCAL.run(table.operator, **tensors, **{**attributes, name: number}))
        for number in (0.1, float(np.float32(0.1)))
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_refused(operator: Any, changes: dict[str, Any], *, refused: bool) -> None:
    """With an error about the values that are changed."""
    answer = (AttributeValueError, PARAM_INVALID, tuple(changes))
    assert refusal(operator, changes) == (answer if refused else None)


@each(
    "slope is_result refused",
    [
        (-0.5, False, False),
        (-0.5, True, True),
        (0.0, True, False),
        (-0.0, True, False),
        (NAN, True, False),
        (-1e-60, True, False),  # 0 as a float32
        (-1e-30, True, True),
        (-INF, True, True),
    ],
)
def test_a_number_below_0_is_refused_for_a_result_only(
    slope: float, is_result: bool, refused: bool
) -> None:
    changes = {"negative_slope": slope, "self_is_result": is_result}
    assert_refused(leaky_relu_backward, changes, refused=refused)
    assert_refused(elu_backward, {"alpha": slope, "is_result": is_result}, refused=refused)


@each(
    "low high refused",
    [
        (Scalar(DOUBLE, 0.5), Scalar(DOUBLE, 0.25), True),
        (Scalar(DOUBLE, 0.5), Scalar(INT32, 0), True),
        (Scalar(DOUBLE, -0.5), Scalar(INT32, 0), False),
        (Scalar(INT32, 0), Scalar(DOUBLE, -0.5), False),  # as integers both are 0
        (Scalar(INT32, 0), Scalar(DOUBLE, -1.0), True),
        (Scalar(INT8, 3), Scalar(FLOAT, 3.5), False),
        (Scalar(INT8, 4), Scalar(FLOAT, 3.5), True),
        (Scalar(INT64, 2**53 + 1), Scalar(INT64, 2**53), True),
        (Scalar(INT64, 2), Scalar(FLOAT, INF), False),
        (Scalar(INT64, 2), Scalar(FLOAT, -INF), True),
        (Scalar(INT64, 2), Scalar(FLOAT, NAN), False),
        (Scalar(DOUBLE, NAN), Scalar(INT32, 0), False),
        (Scalar(DOUBLE, 1.0), Scalar(DOUBLE, 1.0), False),
    ],
)
def test_the_lower_end_of_hardtanh_may_not_be_above_the_upper_one(
    low: Scalar, high: Scalar, refused: bool
) -> None:
    changes = {"clip_value_min": low, "clip_value_max": high}
    assert_refused(hardtanh, changes, refused=refused)


@each(
    "beta refused",
    [
        *((beta, True) for beta in (-1.0, -INF, NAN, -1e-40)),
        *((beta, False) for beta in (0.0, -0.0, -1e-60, 1e-40, INF)),
    ],
)
def test_a_beta_is_0_or_more_as_a_float32(beta: float, refused: bool) -> None:
    assert_refused(smooth_l1_loss_backward, {"beta": beta}, refused=refused)


def test_a_number_beyond_float32_is_infinite() -> None:
    x = np.array([np.finfo(np.float32).max, INF], np.float32)
    found = LOCAL.run(hardtanh_backward, np.ones(2, np.float32), x, -1e300, 1e300)
    assert found.tolist() == [1, 0]

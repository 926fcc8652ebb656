"""aclnnLeakyReluBackward: prototype, values, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.declare.prepare import prepare
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    DTYPES,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
)
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators import CATALOGUE
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.products import ASCEND_310P, ASCEND_910, product_of

from .faults import INVALID, NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every, steps

SLOPE = Scalar(DOUBLE, 0.1)
BELOW_0 = Scalar(DOUBLE, -0.5)

# The checks, in order [src:leaky-relu]
TABLE = Table(
    leaky_relu_backward,
    {"negative_slope": SLOPE, "self_is_result": False},
    [
        *null("grad_output", "self", "negative_slope", "out"),
        *dtype(INT32, "grad_output", "self"),
        Fault({"negative_slope": Scalar(COMPLEX64, 1)}, DTypeError, ("negative_slope",)),
        *shape(NINE, "grad_output", "self"),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        *shape((3, 2), "out"),
        Fault(
            {"self_is_result": True, "negative_slope": BELOW_0},
            AttributeValueError,
            ("negative_slope", "self_is_result"),
        ),
        *dtype(INT64, "out"),
    ],
)
# self, slope, grad_output, result
CELLS = [
    (2.0, 0.5, 3.0, 3.0),
    (-2.0, 0.5, 3.0, 1.5),
    (-2.0, -0.5, 3.0, -1.5),
    (0.0, 0.5, 3.0, 1.5),
    (-0.0, 0.5, 3.0, 1.5),
    (NAN, 0.5, 3.0, 1.5),
    (INF, 0.5, 3.0, 3.0),
    (-INF, 0.5, 3.0, 1.5),
    (2.0, 0.5, INF, INF),
    (-2.0, 0.0, INF, NAN),
    (2.0, NAN, 3.0, 3.0),
    (-2.0, NAN, 3.0, NAN),
    (-2.0, 0.5, NAN, NAN),
]


def gradient(g: Any, x: Any, slope: Any = 0.5, **more: Any) -> Any:
    return LOCAL.run(leaky_relu_backward, g, x, slope, **more)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* negativeSlope, "
        "bool selfIsResult, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    attributes={"negative_slope": 0.125, "self_is_result": False},
    values={"self": steps(255)},
    cells=Cells("self negative_slope grad_output", CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(leaky_relu_backward, "leaky_relu_backward"),
    calls=(
        *every(negative_slope=(0.125, -2.5), self_is_result=(False,)),
        *every(negative_slope=(0.25,), self_is_result=(True,)),
    ),
    casts=(*FLOATS, np.float64, np.complex64),
    stretches=True,
)


@pytest.mark.parametrize("kind", [FLOAT, FLOAT16, DOUBLE, BF16], ids=str)
def test_the_slope_is_used_as_a_float32_whatever_its_dtype_is(kind: Any) -> None:
    slope = Scalar(kind, float(kind.numpy.type(0.1)))
    ones = np.ones(1)
    expected = float(np.float32(slope.value))  # 0.1 as that dtype, then as float32
    assert gradient(ones, -ones, slope) == [expected]


@pytest.mark.parametrize("kind", [INT8, INT16, INT32, INT64, UINT8, BOOL], ids=str)
def test_the_slope_may_be_an_integer(kind: Any) -> None:
    ones = np.ones(1, np.float16)
    assert gradient(ones * 3, -ones, Scalar(kind, 1)) == [3]


@pytest.mark.parametrize(
    ("soc", "more"), [("Ascend910B1", {BF16}), ("Ascend310P3", set()), ("Ascend310B1", set())]
)
def test_the_slope_may_be_bf16_where_the_product_has_it(soc: str, more: set[Any]) -> None:
    faults = {
        kind: Fault({"negative_slope": Scalar(kind, 0)}, DTypeError, ("negative_slope",))
        for kind in DTYPES
    }
    taken = {kind for kind, fault in faults.items() if TABLE.refusal(fault, soc=soc) is None}
    assert taken == {FLOAT, FLOAT16, DOUBLE, INT8, INT16, INT32, INT64, UINT8, BOOL} | more


def test_inputs_broadcast_and_promote() -> None:
    g = np.array([[1], [2]], np.float16)
    found = gradient(g, np.array([-1, 1, -1], np.float32))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[0.5, 1, 0.5], [1, 2, 1]])


@pytest.mark.parametrize(
    ("slope", "is_result", "refused"),
    [
        (-0.5, False, False),
        (0.0, True, False),
        (-0.0, True, False),
        (NAN, True, False),
        (-1e-60, True, False),  # 0 as a float32
        (-1e-30, True, True),
        (-INF, True, True),
    ],
)
def test_a_slope_below_0_is_refused_for_a_result_only(
    slope: float, is_result: bool, refused: bool
) -> None:
    changes = {"negative_slope": Scalar(DOUBLE, slope), "self_is_result": is_result}
    blamed = ("negative_slope", "self_is_result")
    answer = (AttributeValueError, INVALID, blamed) if refused else None
    assert TABLE.refusal(Fault(changes, AttributeValueError, blamed)) == answer


def test_self_is_result_changes_no_number() -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    np.testing.assert_array_equal(
        gradient(x, x, self_is_result=True), gradient(x, x, self_is_result=False)
    )


@pytest.mark.parametrize(
    ("empty", "other", "done"), [("self", "grad_output", True), ("grad_output", "self", False)]
)
def test_only_an_empty_self_ends_the_checks_but_the_output_is_empty_either_way(
    empty: str, other: str, done: bool
) -> None:
    changes = {empty: {"shape": (0, 3)}, other: {"shape": (1, 3)}, "out": {"shape": (0, 3)}}
    call = TABLE.call(Fault(changes, ShapeError, ()))
    assert prepare(call, product_of("Ascend910B1"), CATALOGUE).done is done
    arrays = {empty: np.ones((0, 3)), other: np.ones((1, 3))}
    assert LOCAL.run(leaky_relu_backward, **arrays, negative_slope=1).shape == (0, 3)


@pytest.mark.torch
def test_double_is_computed_in_float64() -> None:
    pytest.importorskip("torch")
    assert SUBJECT.torch is not None
    tensors = SUBJECT.draw(np.float64)
    expected = SUBJECT.torch(tensors, **SUBJECT.attributes)
    np.testing.assert_array_equal(SUBJECT.run(tensors), expected)

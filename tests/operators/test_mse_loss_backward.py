"""aclnnMseLossBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT16, INT32
from npucall.errors import AttributeValueError, DTypeError, ShapeError

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import BF16, FLOATS, INF, NAN, aten, title
from .losses import (
    MEAN,
    MSE,
    NONE,
    STRETCHED,
    SUM,
    assert_rounded,
    drawn,
    exact,
    one,
    run,
    wide,
)

INPUTS = ("grad_output", "self", "target")
# operators.md 2.3, in order
TABLE = Table(
    MSE,
    {"reduction": 1},
    [
        *null(*INPUTS, "out"),
        *dtype(FLOAT16, "grad_output", "target"),
        Fault({name: {"dtype": INT32} for name in INPUTS}, DTypeError, ("self",)),
        *dtype(INT32, "out"),
        Fault({"reduction": 3}, AttributeValueError, ("reduction",)),
        *shape(NINE, *INPUTS),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
    ],
)
UNREACHABLE: set[str] = set()
# grad_output, self, target, result without a mean
CELLS = [
    (1.0, 3.0, 1.0, 4.0),
    (-0.5, 3.0, 1.0, -2.0),
    (2.0, 1.0, 1.0, 0.0),
    (2.0, -1.0, 1.5, -10.0),
    (1.0, INF, 1.0, INF),
    (1.0, 1.0, INF, -INF),
    (1.0, INF, INF, NAN),
    (0.0, INF, 1.0, NAN),
    (INF, 2.0, 1.0, INF),
    (INF, 1.0, 1.0, NAN),
    (NAN, 2.0, 1.0, NAN),
    (1.0, NAN, 1.0, NAN),
    (1.0, 1.0, NAN, NAN),
]


def torch_gradient(tensors: dict[str, Any], reduction: int) -> Any:
    return aten("mse_loss_backward", *wide(tensors).values(), reduction)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.1
    assert MSE.prototype == (
        "aclnnStatus aclnnMseLossBackwardGetWorkspaceSize("
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "x", "t", "expected"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, g: float, x: float, t: float, expected: float
) -> None:
    np.testing.assert_array_equal(one(MSE, kind, g, x, t), expected)


def test_a_mean_divides_by_the_elements_of_self_also_where_others_stretch_it() -> None:
    ones, x = np.ones((4, 2)), np.array([3.0, 5.0])
    found = exact(MSE, {"grad_output": ones, "self": x, "target": np.zeros(2)}, reduction=MEAN)
    np.testing.assert_array_equal(found, [[3, 5]] * 4)  # 2 * x / 2, and not / 8


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(("g", "x", "t", "out"), STRETCHED)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_in_float64_the_gradient_is_torchs(
    reduction: int, g: Any, x: Any, t: Any, out: tuple[int, ...]
) -> None:
    tensors = drawn(MSE, (), grad_output=g, self=x, target=t)
    found = exact(MSE, tensors, reduction=reduction)
    assert found.shape == out
    np.testing.assert_allclose(found, torch_gradient(tensors, reduction), rtol=1e-14)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(reduction: int, kind: Any) -> None:
    tensors = drawn(MSE, (30, 40), kind)
    found = run(MSE, tensors, reduction=reduction)
    assert_rounded(found, torch_gradient(tensors, reduction), kind)


def test_a_difference_beyond_float16_is_finite_once_the_mean_brings_it_back() -> None:
    tensors = {n: np.full(4, v, np.float16) for n, v in zip(INPUTS, (1, 6e4, -6e4), strict=True)}
    np.testing.assert_array_equal(run(MSE, tensors, reduction=MEAN), [60000] * 4)  # 240000 / 4


@pytest.mark.parametrize("kind", [np.float32, np.float16, BF16], ids=title)
def test_the_result_is_rounded_to_the_inputs_dtype_before_that_of_out(kind: Any) -> None:
    tensors = {n: np.full(3, v, np.float16) for n, v in zip(INPUTS, (1, 1, 0.5), strict=True)}
    found = run(MSE, tensors, np.empty(3, kind), reduction=MEAN)
    third = np.float16(1 / 3)
    np.testing.assert_array_equal(found, np.full(3, third).astype(kind))


@pytest.mark.parametrize("empty", INPUTS)
def test_any_empty_input_ends_the_call(empty: str) -> None:
    tensors = {name: np.ones((1, 1), np.float32) for name in INPUTS}
    found = run(MSE, {**tensors, empty: np.ones((0, 3), np.float32)})
    assert found.shape == (0, 3)


@pytest.mark.parametrize("fault", TABLE.faults, ids=str)
def test_a_defect_is_refused_with_its_class_status_and_parameter(fault: Fault) -> None:
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize(("first", "second"), TABLE.pairs(), ids=str)
def test_of_two_defects_the_one_that_is_checked_first_is_the_answer(
    first: Fault, second: Fault
) -> None:
    assert TABLE.refusal(first, second) == first.answer


def test_the_table_has_a_defect_for_every_check() -> None:
    assert TABLE.refusing() >= TABLE.may_refuse() - UNREACHABLE


@pytest.mark.parametrize("reduction", [-1, 3, 7, 2**40, 2**32 + 1])
def test_a_reduction_beyond_0_to_2_is_refused(reduction: int) -> None:
    fault = Fault({"reduction": reduction}, AttributeValueError, ("reduction",))
    assert TABLE.refusal(fault) == fault.answer

"""aclnnSoftMarginLossBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import AttributeValueError, ShapeError

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, NAN, aten, title
from .losses import (
    MEAN,
    NONE,
    SOFT_MARGIN,
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
# operators.md 2.3, in order; the reduction, which only the service checks, behind the empty exit
TABLE = Table(
    SOFT_MARGIN,
    {"reduction": 1},
    [
        *null(*INPUTS, "out"),
        *dtype(INT32, *INPUTS, "out"),
        *shape(NINE, *INPUTS),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
        Fault({"reduction": 3}, AttributeValueError, ("reduction",)),
    ],
)
UNREACHABLE = {"dtypes of self, target and grad_output promote to one"}  # any floats do
# grad_output, self, target, result without a mean
CELLS = [
    (2.0, 0.0, 1.0, -1.0),
    (2.0, 0.0, -1.0, 1.0),
    (2.0, 0.0, 0.5, -0.5),
    (2.0, 3.0, 0.0, 0.0),
    (2.0, INF, 1.0, 0.0),
    (2.0, -INF, -1.0, 0.0),
    (2.0, -INF, 1.0, NAN),
    (2.0, -88.5, 1.0, -2.0),
    (2.0, -89.0, 1.0, NAN),  # e^89 is beyond float32
    (2.0, 89.0, -1.0, NAN),
    (INF, 0.0, 1.0, -INF),
    (INF, INF, 1.0, NAN),
    (NAN, 0.0, 1.0, NAN),
    (2.0, NAN, 1.0, NAN),
    (2.0, 0.0, NAN, NAN),
    (2.0, 0.0, INF, NAN),
]


def torch_gradient(tensors: dict[str, Any], reduction: int) -> Any:
    return aten("soft_margin_loss_backward", *wide(tensors).values(), reduction)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.1
    assert SOFT_MARGIN.prototype == (
        "aclnnStatus aclnnSoftMarginLossBackwardGetWorkspaceSize("
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "x", "t", "expected"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, g: float, x: float, t: float, expected: float
) -> None:
    np.testing.assert_array_equal(one(SOFT_MARGIN, kind, g, x, t), expected)


@pytest.mark.parametrize("single", [-88.8, -88.7, 0.0, 88.7, 100.0])
def test_an_overflow_gives_nan_where_it_does_in_torch(single: float) -> None:
    tensors = {n: np.array([v], np.float32) for n, v in zip(INPUTS, (1, single, 1), strict=True)}
    expected = aten("soft_margin_loss_backward", *tensors.values(), NONE)
    found = run(SOFT_MARGIN, tensors, reduction=NONE)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-38)


def test_a_mean_divides_by_the_elements_of_the_result_unlike_torchs() -> None:
    shapes = ((4, 1), (2,), (4, 2))
    tensors = {n: np.full(s, v) for n, s, v in zip(INPUTS, shapes, (8.0, 0.0, 1.0), strict=True)}
    found = exact(SOFT_MARGIN, tensors, reduction=MEAN)
    np.testing.assert_array_equal(found, [[-0.5] * 2] * 4)  # -1 / 2 * 8 / 8
    np.testing.assert_array_equal(torch_gradient(tensors, MEAN), [[-2.0] * 2] * 4)  # / 2


@pytest.mark.parametrize(("g", "x", "t", "out"), STRETCHED)
@pytest.mark.parametrize("reduction", [NONE, SUM])
def test_in_float64_the_gradient_is_torchs(
    reduction: int, g: Any, x: Any, t: Any, out: tuple[int, ...]
) -> None:
    tensors = drawn(SOFT_MARGIN, (), grad_output=g, self=x, target=t)
    found = exact(SOFT_MARGIN, tensors, reduction=reduction)
    assert found.shape == out
    tensors["target"] = np.broadcast_to(tensors["target"], out).copy()  # torch wants one so large
    np.testing.assert_allclose(found, torch_gradient(tensors, reduction), rtol=1e-13)


@pytest.mark.parametrize(("g", "t"), [((), (4, 6)), ((4, 6), (6,)), ((4, 1), ())])
def test_in_float64_the_mean_is_torchs_where_self_is_not_stretched(g: Any, t: Any) -> None:
    tensors = drawn(SOFT_MARGIN, (4, 6), grad_output=g, target=t)
    found = exact(SOFT_MARGIN, tensors, reduction=MEAN)
    np.testing.assert_allclose(found, torch_gradient(tensors, MEAN), rtol=1e-13)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(reduction: int, kind: Any) -> None:
    tensors = drawn(SOFT_MARGIN, (30, 40), kind)
    found = run(SOFT_MARGIN, tensors, reduction=reduction)
    assert_rounded(found, torch_gradient(tensors, reduction), kind)


@pytest.mark.parametrize("name", [*INPUTS, "out"])
def test_double_is_refused_for_every_tensor(name: str) -> None:
    (fault,) = dtype(DOUBLE, name)
    assert TABLE.refusal(fault) == fault.answer


def test_inputs_of_different_dtypes_are_computed_in_the_promoted_one() -> None:
    tensors = drawn(SOFT_MARGIN, (4, 6), np.float16)
    tensors["self"] = tensors["self"].astype(np.float32)
    found = run(SOFT_MARGIN, tensors, reduction=NONE)
    assert_rounded(found, torch_gradient(tensors, NONE), np.float32)


def test_an_empty_self_ends_the_call_before_the_reduction_is_looked_at() -> None:
    tensors = {name: np.ones((0, 3), np.float32) for name in INPUTS}
    assert run(SOFT_MARGIN, tensors, reduction=7).shape == (0, 3)


@pytest.mark.parametrize("empty", ["grad_output", "target"])
def test_another_empty_input_gives_an_empty_output(empty: str) -> None:
    tensors = {name: np.ones((1, 1), np.float32) for name in INPUTS}
    found = run(SOFT_MARGIN, {**tensors, empty: np.ones((0, 3), np.float32)})
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

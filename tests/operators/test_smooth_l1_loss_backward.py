"""aclnnSmoothL1LossBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import AttributeValueError, ShapeError

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, aten, title
from .losses import (
    MEAN,
    NONE,
    SMOOTH_L1,
    STRETCHED,
    SUM,
    assert_rounded,
    drawn,
    exact,
    one,
    run,
    wide,
)

INPUTS = ("grad_out", "self", "target")
# operators.md 2.3, in order
TABLE = Table(
    SMOOTH_L1,
    {"reduction": 1, "beta": 1.0},
    [
        *null(*INPUTS, "grad_input"),
        *dtype(INT32, *INPUTS, "grad_input"),
        *shape(NINE, *INPUTS),
        Fault({"reduction": 3}, AttributeValueError, ("reduction",)),
        Fault({"beta": -1.0}, AttributeValueError, ("beta",)),
        Fault({"grad_out": {"shape": (4, 3)}}, ShapeError, ("grad_out", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_out", "self")),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "grad_input"),
    ],
)
# Any floats promote to one, which can be cast to any.
UNREACHABLE = {
    "dtypes of grad_out, self and target promote to one",
    "dtype of promotion is one that the product takes",
    "promotion can be cast to the dtype of grad_input",
}
# grad_out, self, target, beta, result without a mean
CELLS = [
    (3.0, 2.0, 0.0, 1.0, 3.0),
    (3.0, 0.0, 2.0, 1.0, -3.0),
    (3.0, 0.5, 0.0, 1.0, 1.5),
    (3.0, 0.0, 0.5, 2.0, -0.75),
    (3.0, 1.0, 0.0, 1.0, 3.0),
    (3.0, 0.0, 1.0, 1.0, -3.0),
    (3.0, 1.0, 1.0, 1.0, 0.0),
    (3.0, 0.25, 0.0, 0.0, 3.0),
    (3.0, 1.0, 1.0, 0.0, -3.0),  # torch's rule; an Atlas A2 gives 0
    (3.0, 1.0, 1.0, -0.0, -3.0),
    (3.0, 1.0, 0.0, INF, 0.0),
    (3.0, INF, 0.0, INF, 3.0),
    (3.0, -INF, 0.0, 1.0, -3.0),
    (3.0, INF, INF, 1.0, NAN),
    (3.0, NAN, 0.0, 1.0, NAN),
    (3.0, 0.0, NAN, 0.0, NAN),
    (INF, 2.0, 0.0, 1.0, INF),
    (INF, 1.0, 1.0, 1.0, NAN),
    (NAN, 2.0, 0.0, 1.0, NAN),
]


def torch_gradient(tensors: dict[str, Any], reduction: int, beta: float) -> Any:
    return aten("smooth_l1_loss_backward", *wide(tensors).values(), reduction, beta)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.1
    assert SMOOTH_L1.prototype == (
        "aclnnStatus aclnnSmoothL1LossBackwardGetWorkspaceSize("
        "const aclTensor* gradOut, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, float beta, aclTensor* gradInput, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "x", "t", "beta", "expected"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, g: float, x: float, t: float, beta: float, expected: float
) -> None:
    np.testing.assert_array_equal(one(SMOOTH_L1, kind, g, x, t, beta=beta), expected)


@pytest.mark.parametrize(("g", "x", "t", "beta", "expected"), CELLS)
def test_each_element_is_torchs(g: float, x: float, t: float, beta: float, expected: float) -> None:
    tensors = {n: np.array([v]) for n, v in zip(INPUTS, (g, x, t), strict=True)}
    np.testing.assert_array_equal(torch_gradient(tensors, NONE, beta), [expected])


def test_a_mean_divides_by_the_elements_of_self_also_where_others_stretch_it() -> None:
    tensors = {"grad_out": np.ones((4, 2)), "self": np.array([3.0, 0.5]), "target": np.zeros(2)}
    found = exact(SMOOTH_L1, tensors, reduction=MEAN, beta=1.0)
    np.testing.assert_array_equal(found, [[0.5, 0.25]] * 4)  # 1 / 2 and 0.5 / 2, and not / 8


@pytest.mark.parametrize(("g", "x", "t", "out"), STRETCHED)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0])
def test_in_float64_the_gradient_is_torchs(
    beta: float, reduction: int, g: Any, x: Any, t: Any, out: tuple[int, ...]
) -> None:
    tensors = drawn(SMOOTH_L1, (), grad_out=g, self=x, target=t)
    found = exact(SMOOTH_L1, tensors, reduction=reduction, beta=beta)
    assert found.shape == out
    np.testing.assert_allclose(found, torch_gradient(tensors, reduction, beta), rtol=1e-14)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0])
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(
    beta: float, reduction: int, kind: Any
) -> None:
    tensors = drawn(SMOOTH_L1, (30, 40), kind)
    found = run(SMOOTH_L1, tensors, reduction=reduction, beta=beta)
    assert_rounded(found, torch_gradient(tensors, reduction, beta), kind)


def test_beta_is_a_float32() -> None:
    tenth = float(np.float32(0.1))  # 0.10000000149
    tensors = {n: np.array([v]) for n, v in zip(INPUTS, (1.0, 0.05, 0.0), strict=True)}
    assert exact(SMOOTH_L1, tensors, beta=0.1) == [0.05 / tenth]


def test_beta_is_1_unless_it_is_given() -> None:
    tensors = {n: np.array([v], np.float32) for n, v in zip(INPUTS, (1, 0.9375, 0), strict=True)}
    assert LOCAL.run(SMOOTH_L1, **tensors) == [0.9375]


@pytest.mark.parametrize("beta", [-1.0, -INF, NAN, -1e-40])
def test_a_beta_below_0_or_of_nan_is_refused(beta: float) -> None:
    fault = Fault({"beta": beta}, AttributeValueError, ("beta",))
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize("beta", [0.0, -0.0, -1e-60, 1e-40, INF])
def test_a_beta_that_is_0_or_more_as_a_float32_is_taken(beta: float) -> None:
    assert TABLE.refusal(Fault({"beta": beta}, AttributeValueError, ("beta",))) is None


@pytest.mark.parametrize("name", [*INPUTS, "grad_input"])
def test_double_is_refused_for_every_tensor(name: str) -> None:
    (fault,) = dtype(DOUBLE, name)
    assert TABLE.refusal(fault) == fault.answer


def test_inputs_promote_before_they_are_subtracted() -> None:
    half, single = np.array([2048], np.float16), np.array([2049], np.float32)
    tensors = {"grad_out": half, "self": single, "target": half}
    found = run(SMOOTH_L1, tensors, reduction=NONE, beta=4.0)
    assert (found.dtype, found[0]) == (np.float32, 512)  # (2049 - 2048) / 4 * 2048


@pytest.mark.parametrize("empty", INPUTS)
def test_any_empty_input_ends_the_call(empty: str) -> None:
    tensors = {name: np.ones((1, 1), np.float32) for name in INPUTS}
    found = run(SMOOTH_L1, {**tensors, empty: np.ones((0, 3), np.float32)})
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

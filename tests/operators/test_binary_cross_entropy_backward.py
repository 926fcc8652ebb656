"""aclnnBinaryCrossEntropyBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import AttributeValueError, FormatError, ShapeError
from npucall.tensors import Format

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, NAN, aten, title
from .losses import BCE, MEAN, NONE, SUM, assert_rounded, drawn, exact, one, run, wide

# operators.md 2.3, in order
TABLE = Table(
    BCE,
    {"reduction": 1},
    [
        *null("grad_output", "self", "target", "out"),
        *shape(NINE, "out"),
        *dtype(INT32, "self", "grad_output", "target", "out", "weight"),
        Fault({"target": {"format": Format.NCL}}, FormatError, ("self",)),
        Fault({"weight": {"format": Format.NHWC}}, FormatError, ("self",)),
        *shape((3, 2), "out"),
        *shape((1, 2, 3), "target"),
        *shape((4, 3), "weight", "grad_output"),
        Fault({"reduction": 3}, AttributeValueError, ("reduction",)),
    ],
)
# Any floats promote to one, which can be cast to any; the calls of the table give an output.
UNREACHABLE = {
    "out not given: self have at most 8 dimensions",
    "dtypes of self, grad_output, target and weight promote to one",
    "promotion can be cast to the dtype of out",
}
# grad_output, self, target, weight, result without a mean; None is absent
CELLS = [
    (3.0, 0.5, 0.0, None, 6.0),
    (3.0, 0.5, 1.0, None, -6.0),
    (3.0, 0.5, 0.25, 2.0, 6.0),
    (3.0, 0.5, 0.5, 2.0, 0.0),
    (3.0, 0.0, 0.0, None, 0.0),
    (3.0, 1.0, 1.0, None, 0.0),
    (3.0, 0.5, 0.0, INF, INF),
    (3.0, 0.5, 0.5, INF, NAN),
    (INF, 0.5, 0.0, 1.0, INF),
    (NAN, 0.5, 0.0, 1.0, NAN),
    (3.0, NAN, 0.0, 1.0, NAN),
    (3.0, 0.5, NAN, 1.0, NAN),
    (3.0, 0.5, 0.0, NAN, NAN),
    (3.0, INF, 0.0, 1.0, INF),
    (3.0, -INF, 0.0, 1.0, -INF),
    (3.0, 0.5, INF, 1.0, -INF),
]
FITTING = [
    {},
    {"grad_output": (), "target": (), "weight": ()},
    {"grad_output": (4, 1), "target": (6,), "weight": (1, 6)},
    {"weight": (4, 1)},
]


def torch_gradient(tensors: dict[str, Any], reduction: int) -> Any:
    """torch's, which wants all shapes equal."""
    full = {name: np.broadcast_to(a, tensors["self"].shape) for name, a in wide(tensors).items()}
    g, x, t = (full[name].copy() for name in ("grad_output", "self", "target"))
    weight = full["weight"].copy() if "weight" in full else None
    return aten("binary_cross_entropy_backward", g, x, t, weight, reduction)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.1
    assert BCE.prototype == (
        "aclnnStatus aclnnBinaryCrossEntropyBackwardGetWorkspaceSize("
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weightOptional, int64_t reduction, aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "x", "t", "w", "expected"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, g: float, x: float, t: float, w: float | None, expected: float
) -> None:
    np.testing.assert_array_equal(one(BCE, kind, g, x, t, w), expected)


# self, target, result in float64: the variance is 1e-12 at least, also beyond 0 to 1
@pytest.mark.parametrize(
    ("x", "t", "expected"),
    [(0.0, 1.0, -1e12), (1.0, 0.0, 1e12), (2.0, 0.0, 2e12), (-1.0, 0.0, -1e12), (1e-13, 0.0, 0.1)],
)
def test_the_divisor_is_1e_12_at_least_as_in_torch(x: float, t: float, expected: float) -> None:
    tensors = {n: np.array([v]) for n, v in {"grad_output": 1.0, "self": x, "target": t}.items()}
    found = exact(BCE, tensors, reduction=NONE)
    np.testing.assert_allclose(found, [expected], rtol=1e-12)
    # torch's 1e-12 is of float32, also in float64
    np.testing.assert_allclose(torch_gradient(tensors, NONE), found, rtol=1e-8)
    single = {name: array.astype(np.float32) for name, array in tensors.items()}
    np.testing.assert_allclose(run(BCE, single, reduction=NONE), [expected], rtol=1e-6)


@pytest.mark.parametrize("shapes", FITTING)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_in_float64_the_gradient_is_torchs(reduction: int, weighted: bool, shapes: Any) -> None:
    tensors = drawn(BCE, (4, 6), **shapes)
    if not weighted:
        del tensors["weight"]
    found = exact(BCE, tensors, reduction=reduction)
    np.testing.assert_allclose(found, torch_gradient(tensors, reduction), rtol=1e-13)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(
    reduction: int, weighted: bool, kind: Any
) -> None:
    tensors = drawn(BCE, (30, 40), kind)
    if not weighted:
        del tensors["weight"]
    found = run(BCE, tensors, reduction=reduction)
    assert_rounded(found, torch_gradient(tensors, reduction), kind)


def test_an_absent_weight_is_one_of_ones() -> None:
    tensors = drawn(BCE, (4, 6), np.float16)
    tensors["weight"][...] = 1
    found = run(BCE, {**tensors, "weight": None})
    np.testing.assert_array_equal(found, run(BCE, tensors))


@pytest.mark.parametrize("name", ["grad_output", "self", "target", "weight"])
def test_an_output_that_is_not_given_has_the_promoted_dtype_of_all_inputs(name: str) -> None:
    tensors = drawn(BCE, (4, 6), np.float16)
    tensors[name] = tensors[name].astype(np.float32)
    found = run(BCE, tensors)
    assert_rounded(found, torch_gradient(tensors, MEAN), np.float32)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_the_result_is_cast_to_the_dtype_of_the_output(kind: Any) -> None:
    tensors = drawn(BCE, (4, 6), np.float16)
    found = run(BCE, tensors, np.empty((4, 6), kind))
    np.testing.assert_array_equal(found, run(BCE, tensors).astype(kind))


def test_a_self_of_nine_dimensions_is_refused_where_no_output_is_given() -> None:
    tensors = {name: np.ones(NINE, np.float32) for name in ("grad_output", "self", "target")}
    with pytest.raises(ShapeError, match="self: expected at most 8 dimensions") as caught:
        run(BCE, tensors)
    assert caught.value.aclnn_status == 161002


@pytest.mark.parametrize("name", ["out", "target", "weight", "grad_output"])
def test_shapes_beside_an_empty_self_are_not_looked_at(name: str) -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    (other,) = shape((4, 5), name)
    assert TABLE.refusal(empty, other) is None


def test_the_reduction_is_looked_at_beside_an_empty_self() -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    assert TABLE.refusal(empty, TABLE.faults[-1]) == TABLE.faults[-1].answer


def test_an_output_beside_an_empty_self_is_zeros() -> None:
    tensors = drawn(BCE, (0, 3), np.float32)
    found = run(BCE, tensors, np.full((2, 2), 7, np.float32))
    np.testing.assert_array_equal(found, np.zeros((2, 2)))


def test_a_call_may_do_without_a_weight() -> None:
    assert TABLE.refusal(Fault({"weight": None}, ShapeError, ())) is None


@pytest.mark.parametrize("name", ["grad_output", "self", "target", "weight", "out"])
def test_double_is_refused_for_every_tensor(name: str) -> None:
    (fault,) = dtype(DOUBLE, name)
    assert TABLE.refusal(fault) == fault.answer


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

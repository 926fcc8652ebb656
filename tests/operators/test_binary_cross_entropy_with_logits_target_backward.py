"""aclnnBinaryCrossEntropyWithLogitsTargetBackward: prototype, values against torch, checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, FormatError, ShapeError
from npucall.operators.binary_cross_entropy_with_logits_target_backward import (
    binary_cross_entropy_with_logits_target_backward,
)
from npucall.products import A2, A3
from npucall.tensors import Format

from .faults import INVALID, NINE, Fault, Table, dtypes, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, NAN, title
from .losses import assert_rounded, logits_gradient, wide
from .subject import MEAN, NONE, SUM, Cells, Subject, between, every

INPUTS = ("grad_output", "self", "target", "weight", "pos_weight")
# The checks, in order [src:bce-with-logits]
TABLE = Table(
    binary_cross_entropy_with_logits_target_backward,
    {"reduction": 1},
    [
        *null("grad_output", "self", "target", "grad_target"),
        *shape(NINE, "grad_target"),
        *dtypes(INT32, DOUBLE, of=(*INPUTS, "grad_target")),
        Fault({"grad_target": {"dtype": FLOAT16}}, DTypeError, ("grad_target",)),
        Fault({"target": {"format": Format.NCL}}, FormatError, ("self",)),
        Fault({"grad_target": {"format": Format.NHWC}}, FormatError, ("self",)),
        Fault({"target": {"shape": (3, 2)}}, ShapeError, ("self",)),
        Fault({"grad_target": {"shape": (3, 2)}}, ShapeError, ("self",)),
        *shape((1, 2, 3), "grad_output"),
        *shape((4, 3), "weight", "pos_weight"),
        *reductions_beyond_2(),
    ],
)
# Any floats promote to one; the calls of the table give an output.
UNREACHABLE = frozenset(
    {
        "grad_target not given: self have at most 8 dimensions",
        "dtypes of grad_output, self, target, weight and pos_weight promote to one",
    }
)
# grad_output, self, target, weight, pos_weight, result without a mean; None is absent
CELLS = [
    (3.0, 2.0, 1.0, None, None, -6.0),
    (3.0, -2.0, 0.0, None, None, 6.0),
    (3.0, 0.5, 0.0, 2.0, None, -3.0),
    (3.0, 0.0, 0.5, None, 1.0, 0.0),
    (3.0, 200.0, 0.0, None, 0.5, -600.0),
    (3.0, -200.0, 0.0, None, 0.5, 300.0),
    (3.0, INF, 0.0, None, None, -INF),
    (3.0, -INF, 0.0, None, 0.5, INF),
    (3.0, INF, 0.0, None, 0.5, -INF),
    (3.0, -INF, 0.0, None, 0.0, NAN),
    (INF, 2.0, 1.0, None, None, -INF),
    (3.0, 2.0, 1.0, INF, None, -INF),
    (3.0, 2.0, NAN, None, None, -6.0),  # the target does not matter
    (3.0, 2.0, INF, None, None, -6.0),
    (NAN, 2.0, 1.0, None, None, NAN),
    (3.0, NAN, 1.0, None, None, NAN),
    (3.0, NAN, 1.0, None, 2.0, NAN),
    (3.0, 2.0, 1.0, NAN, None, NAN),
    (3.0, 2.0, 1.0, None, NAN, NAN),
]
FITTING: list[dict[str, Any]] = [
    {},
    {"grad_output": (), "weight": (), "pos_weight": ()},
    {"grad_output": (12, 1), "weight": (17,), "pos_weight": (1, 17)},
    {"weight": (12, 1), "pos_weight": (12, 1)},
]
ABSENT = [(), ("weight",), ("pos_weight",), ("weight", "pos_weight")]


def torch_gradient(tensors: dict[str, Any], reduction: int) -> Any:
    return logits_gradient("target", tensors, reduction)


def terms(tensors: dict[str, Any], _: Any, reduction: int) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    t64 = wide(tensors)
    x, p = t64["self"], t64.get("pos_weight", np.ones(()))
    parts = np.logaddexp(0, x) + np.abs(p) * np.logaddexp(0, -x)
    scale = parts.size if reduction == MEAN else 1
    return parts * np.abs(t64["grad_output"]) * t64.get("weight", 1) / scale


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weightOptional, const aclTensor* posWeightOptional, "
        "int64_t reduction, aclTensor* gradTarget"
    ),
    documented=(A2, A3),
    legacy=(),
    unreachable=UNREACHABLE,
    attributes={"reduction": MEAN},
    values=dict.fromkeys(("target", "weight", "pos_weight"), between(0.02, 0.98)),
    cells=Cells("grad_output self target weight pos_weight", CELLS),
    torch=torch_gradient,
    calls=every(*FITTING, without=ABSENT, reduction=(NONE, MEAN, SUM)),
    noise=terms,
)


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_an_absent_weight_is_one_of_ones(name: str) -> None:
    tensors = SUBJECT.draw(np.float64)
    tensors[name][...] = 1
    found = SUBJECT.exact({**tensors, name: None})
    np.testing.assert_allclose(found, SUBJECT.exact(tensors), rtol=1e-12, atol=1e-15)


# ln sigmoid(20) is -2e-9, which only a large weight makes seen
@pytest.mark.parametrize(("x", "p"), [(-200, 2), (-20, 2), (20, 2), (20, 1e12), (200, 2)])
def test_large_logits_neither_overflow_nor_lose_the_gradient(x: float, p: float) -> None:
    tensors = {n: np.array([v], np.float32) for n, v in zip(INPUTS, (1, x, 0, 1, p), strict=True)}
    found = SUBJECT.run(tensors, reduction=NONE)
    expected = p * np.logaddexp(0, -x) - np.logaddexp(0, x)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_the_values_of_target_need_not_be_sent() -> None:
    assert [
        p.name for p in binary_cross_entropy_with_logits_target_backward.inputs if not p.read
    ] == ["target"]


@pytest.mark.torch
@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_everything_is_computed_in_float_and_rounded_once_to_the_dtype_of_target(
    kind: Any,
) -> None:
    tensors = SUBJECT.draw(np.float16)
    tensors["target"] = tensors["target"].astype(kind)
    found = SUBJECT.run(tensors)
    assert_rounded(found, torch_gradient(tensors, MEAN), kind, terms(tensors, None, MEAN))


@pytest.mark.parametrize("soc", ["Ascend950PR_9589", "Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_products_that_no_document_names_are_refused(soc: str) -> None:
    assert TABLE.refusal(soc=soc) == (DTypeError, INVALID, ("grad_output",))


def test_a_self_of_nine_dimensions_is_refused_where_no_output_is_given() -> None:
    tensors = {name: np.ones(NINE, np.float32) for name in INPUTS}
    with pytest.raises(ShapeError, match="self: expected at most 8 dimensions") as caught:
        SUBJECT.run(tensors)
    assert caught.value.aclnn_status == 161002


@pytest.mark.parametrize("absent", ABSENT)
def test_a_call_may_do_without_weights(absent: tuple[str, ...]) -> None:
    assert TABLE.refusal(Fault(dict.fromkeys(absent), ShapeError, ())) is None


@pytest.mark.parametrize("name", ["grad_target", "target", "weight", "pos_weight", "grad_output"])
def test_shapes_beside_an_empty_self_are_not_looked_at(name: str) -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    (other,) = shape((4, 5), name)
    assert TABLE.refusal(empty, other) is None


def test_the_reduction_is_looked_at_beside_an_empty_self() -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    assert TABLE.refusal(empty, TABLE.faults[-1]) == TABLE.faults[-1].answer

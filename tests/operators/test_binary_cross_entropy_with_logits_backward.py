"""aclnnBinaryCrossEntropyWithLogitsBackward: prototype, values against torch, checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, FormatError, ShapeError
from npucall.operators.binary_cross_entropy_with_logits_backward import (
    binary_cross_entropy_with_logits_backward,
)
from npucall.products import ASCEND_310P, ASCEND_910
from npucall.tensors import Format

from .faults import NINE, Fault, Table, dtypes, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, NAN, title
from .losses import assert_rounded, logits_gradient, wide
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, between, every

INPUTS = ("grad_output", "self", "target", "weight", "pos_weight")
# The checks, in order [src:bce-with-logits]
TABLE = Table(
    binary_cross_entropy_with_logits_backward,
    {"reduction": 1},
    [
        *null("grad_output", "self", "target", "out"),
        *shape(NINE, "out"),
        *dtypes(INT32, DOUBLE, of=(*INPUTS, "out")),
        Fault({"out": {"dtype": FLOAT16}}, DTypeError, ("out",)),
        Fault({"target": {"format": Format.NCL}}, FormatError, ("self",)),
        Fault({"out": {"format": Format.NHWC}}, FormatError, ("self",)),
        Fault({"target": {"shape": (3, 2)}}, ShapeError, ("self",)),
        Fault({"out": {"shape": (3, 2)}}, ShapeError, ("self",)),
        *shape((1, 2, 3), "grad_output"),
        *shape((4, 3), "weight", "pos_weight"),
        *reductions_beyond_2(),
    ],
)
# Any floats promote to one; the calls of the table give an output.
UNREACHABLE = frozenset(
    {
        "out not given: self have at most 8 dimensions",
        "dtypes of grad_output, self, target, weight and pos_weight promote to one",
    }
)
# grad_output, self, target, weight, pos_weight, result without a mean; None is absent
CELLS = [
    (3.0, 0.0, 0.0, None, None, 1.5),
    (3.0, 0.0, 1.0, None, None, -1.5),
    (3.0, 0.0, 0.25, 2.0, None, 1.5),
    (3.0, 0.0, 1.0, None, 4.0, -6.0),
    (3.0, 0.0, 0.5, 2.0, 4.0, -4.5),  # (4 / 2 + 1 / 2) / 2 - 4 / 2 is -0.75
    (3.0, INF, 1.0, None, None, 0.0),
    (3.0, INF, 0.0, None, None, 3.0),
    (3.0, -INF, 0.0, None, None, 0.0),
    (3.0, -INF, 1.0, None, None, -3.0),
    (3.0, -INF, 1.0, None, 4.0, -12.0),
    (3.0, INF, 1.0, None, 4.0, 0.0),
    (INF, 0.0, 1.0, None, None, -INF),
    (3.0, 0.0, 1.0, INF, None, -INF),
    (3.0, 0.0, 1.0, None, INF, NAN),
    (NAN, 0.0, 1.0, None, None, NAN),
    (3.0, NAN, 1.0, None, None, NAN),
    (3.0, 0.0, NAN, None, None, NAN),
    (3.0, 0.0, 1.0, NAN, None, NAN),
    (3.0, 0.0, 1.0, None, NAN, NAN),
]
FITTING: list[dict[str, Any]] = [
    {},
    {"grad_output": (), "weight": (), "pos_weight": ()},
    {"grad_output": (12, 1), "weight": (17,), "pos_weight": (1, 17)},
    {"weight": (12, 1), "pos_weight": (12, 1)},
]
ABSENT = [(), ("weight",), ("pos_weight",), ("weight", "pos_weight")]


def torch_gradient(tensors: dict[str, Any], reduction: int) -> Any:
    return logits_gradient("self", tensors, reduction)


def terms(tensors: dict[str, Any], _: Any, reduction: int) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    t64 = wide(tensors)
    s = 1 / (1 + np.exp(-t64["self"]))
    p, t = t64.get("pos_weight", np.ones(())), t64["target"]
    parts = np.abs((p * t + 1 - t) * s) + np.abs(p * t)
    scale = parts.size if reduction == MEAN else 1
    return parts * np.abs(t64["grad_output"]) * t64.get("weight", 1) / scale


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weightOptional, const aclTensor* posWeightOptional, "
        "int64_t reduction, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
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


@pytest.mark.parametrize("x", [-85.0, -20.0, 20.0, 85.0, 200.0])
def test_large_logits_neither_overflow_nor_lose_the_gradient(x: float) -> None:
    tensors = {n: np.array([v], np.float32) for n, v in zip(INPUTS, (1, x, 0, 1, 1), strict=True)}
    found = SUBJECT.run(tensors, reduction=NONE)
    np.testing.assert_allclose(found, [1 / (1 + np.exp(-x))], rtol=1e-6)  # e^-85 is 1.2e-37


@pytest.mark.torch
@pytest.mark.parametrize("name", INPUTS)
def test_inputs_of_different_dtypes_are_computed_in_the_promoted_one(name: str) -> None:
    tensors = SUBJECT.draw(np.float16)
    tensors[name] = tensors[name].astype(np.float32)
    found = SUBJECT.run(tensors)
    kind = np.float32 if name == "target" else np.float16
    assert_rounded(found, torch_gradient(tensors, MEAN), kind, terms(tensors, None, MEAN))


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_the_result_has_the_dtype_of_target(kind: Any) -> None:
    tensors = SUBJECT.draw(np.float32)
    tensors["target"] = tensors["target"].astype(kind)
    assert SUBJECT.run(tensors).dtype == kind


def test_a_self_of_nine_dimensions_is_refused_where_no_output_is_given() -> None:
    tensors = {name: np.ones(NINE, np.float32) for name in INPUTS}
    with pytest.raises(ShapeError, match="self: expected at most 8 dimensions") as caught:
        SUBJECT.run(tensors)
    assert caught.value.aclnn_status == 161002


@pytest.mark.parametrize("absent", ABSENT)
def test_a_call_may_do_without_weights(absent: tuple[str, ...]) -> None:
    assert TABLE.refusal(Fault(dict.fromkeys(absent), ShapeError, ())) is None


@pytest.mark.parametrize("name", ["out", "target", "weight", "pos_weight", "grad_output"])
def test_shapes_beside_an_empty_self_are_not_looked_at(name: str) -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    (other,) = shape((4, 5), name)
    assert TABLE.refusal(empty, other) is None


def test_the_reduction_is_looked_at_beside_an_empty_self() -> None:
    empty = Fault({"self": {"shape": (0, 3)}}, ShapeError, ())
    assert TABLE.refusal(empty, TABLE.faults[-1]) == TABLE.faults[-1].answer

"""aclnnBinaryCrossEntropyWithLogits: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import COMPLEX64, DOUBLE, FLOAT16, INT32
from npucall.errors import ShapeError
from npucall.operators.binary_cross_entropy_with_logits import binary_cross_entropy_with_logits
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, dtypes, null, reductions_beyond_2, shape
from .gradients import INF, NAN
from .losses import functional, of_terms
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, between, every

INPUTS = ("self", "target", "weight", "pos_weight")
# The checks, in order [src:bce-with-logits]
TABLE = Table(
    binary_cross_entropy_with_logits,
    {"reduction": 0},
    [
        *null("self", "target", "out"),
        *dtypes(INT32, DOUBLE, of=("self", "target", "out")),
        *dtype(FLOAT16, "out"),
        *reductions_beyond_2(),
        *shape(NINE, *INPUTS),
        Fault({"target": {"shape": (3,)}}, ShapeError, ("self",)),
        *(fault for n in INPUTS[2:] for s in ((2, 2, 3), (2,)) for fault in shape(s, n)),
        *shape((3, 2), "out"),
        *shape((), "out"),
        Fault({"reduction": 1}, ShapeError, ("out",)),
        *dtype(COMPLEX64, "weight", "pos_weight"),
    ],
)
# self, target, weight, pos_weight, element
CELLS = [
    (0.0, 0.25, None, None, np.log(2)),
    (0.0, 1.0, 2.0, None, 2 * np.log(2)),
    (0.0, 1.0, None, 4.0, 4 * np.log(2)),
    (300.0, 0.0, None, None, 300.0),
    (300.0, 1.0, None, None, 0.0),
    (-300.0, 0.0, None, None, 0.0),
    (-300.0, 1.0, None, None, 300.0),
    (-300.0, 1.0, 0.5, 3.0, 450.0),
    (INF, 0.0, None, None, INF),
    (INF, 0.5, None, None, INF),
    (INF, 1.0, None, None, NAN),
    (-INF, 0.0, None, None, NAN),
    (-INF, 0.5, None, None, NAN),
    (-INF, 1.0, None, None, NAN),
    (0.0, INF, None, None, NAN),
    (0.0, 1.0, INF, None, INF),
    (0.0, 0.0, None, INF, NAN),
    (0.0, 1.0, None, INF, INF),
    (NAN, 0.5, None, None, NAN),
    (0.0, NAN, None, None, NAN),
    (0.0, 1.0, NAN, None, NAN),
    (0.0, 1.0, None, NAN, NAN),
]
FITTING: list[dict[str, Any]] = [
    {},
    {"weight": (), "pos_weight": ()},
    {"weight": (12, 1), "pos_weight": (17,)},
    dict.fromkeys(INPUTS, ()),
    dict.fromkeys(INPUTS, (2, 1, 3, 1, 1, 2, 1, 2)),
]


def terms(tensors: dict[str, Any]) -> Any:
    """The size of what is added up, where it may cancel."""
    x, t = tensors["self"], tensors["target"]
    weight = 1 + (tensors.get("pos_weight", 1) - 1) * t
    parts = (1 - t) * np.abs(x) + weight * np.logaddexp(0, -x)
    return np.asarray(parts * tensors.get("weight", 1))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclTensor* target, const aclTensor* weightOptional, "
        "const aclTensor* posWeightOptional, int64_t reduction, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    typed=("self", "target", "out"),
    attributes={"reduction": MEAN},
    values=dict.fromkeys(INPUTS[1:], between(0.02, 0.98)),
    cells=Cells("self target weight pos_weight", CELLS),
    torch=functional("binary_cross_entropy_with_logits", "self", "target"),
    calls=every(
        *FITTING,
        without=[(), ("weight",), ("pos_weight",), ("weight", "pos_weight")],
        reduction=(NONE, MEAN, SUM),
    ),
    noise=of_terms(terms),
)


def test_a_sum_of_float16_is_right_in_a_wider_output() -> None:
    tensors = {"self": np.full(7, 10000, np.float16), "target": np.zeros(7, np.float32)}
    found = SUBJECT.run(tensors, reduction=SUM)
    assert (found.dtype, found.item()) == (np.float32, 70000)


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_a_weight_is_rounded_to_the_dtype_of_self_and_target(name: str) -> None:
    tensors = {"self": np.zeros(2, np.float16), "target": np.ones(2, np.float16)}
    wide = np.float32([1 + 2.0**-12, 3])
    expected = SUBJECT.run({**tensors, name: wide.astype(np.float16)}, reduction=NONE)
    np.testing.assert_array_equal(SUBJECT.run({**tensors, name: wide}, reduction=NONE), expected)
    mixed = {**tensors, "self": np.zeros(2, np.float32), name: np.float32([1 + 2.0**-12] * 4096)}
    mixed |= {n: np.resize(mixed[n], 4096) for n in ("self", "target")}
    found = SUBJECT.run(mixed, reduction=SUM)  # in FLOAT nothing of it is lost
    assert found == np.float16(4097 * np.log(2))


@pytest.mark.parametrize("kind", [np.int32, np.bool_, np.float64, np.uint8])
def test_weights_may_have_any_real_dtype(kind: Any) -> None:
    tensors = SUBJECT.draw(np.float32)
    for name in ("weight", "pos_weight"):
        weight = (tensors[name] > 0.5).astype(kind)
        expected = SUBJECT.run({**tensors, name: weight.astype(np.float32)})
        np.testing.assert_array_equal(SUBJECT.run({**tensors, name: weight}), expected)


def test_of_nothing_all_of_an_output_of_any_shape_is_filled() -> None:
    tensors = {n: np.zeros((0, 3), np.float32) for n in ("self", "target")}
    weight = np.zeros((4, 5), np.float32)  # whose shape nobody looks at
    for reduction, expected in ((NONE, 0), (MEAN, NAN), (SUM, 0)):
        found = SUBJECT.run(
            {**tensors, "weight": weight},
            out=np.full((2, 3), 7, np.float32),
            reduction=reduction,
        )
        np.testing.assert_array_equal(found, np.full((2, 3), expected))


@pytest.mark.parametrize("x", [-1e30, -85.0, 85.0, 1e30])
def test_large_logits_do_not_overflow(x: float) -> None:
    tensors = {"self": np.float32([x]), "target": np.float32([0])}
    found = SUBJECT.run(tensors, reduction=NONE)
    np.testing.assert_array_equal(found, np.float32([max(x, 0)]))  # what is left cancels


@pytest.mark.parametrize("other", [np.float16, np.float32])
def test_the_output_has_the_dtype_of_target(other: Any) -> None:
    one = np.float32 if other is np.float16 else np.float16
    tensors = {"self": np.zeros(2, one), "target": np.ones(2, other)}
    found = SUBJECT.run(tensors, reduction=NONE)
    np.testing.assert_array_equal(found, np.full(2, np.log(2)).astype(other))

"""aclnnL1Loss: prototype, values against torch, integers, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8, UINT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.l1_loss import l1_loss
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, NAN
from .losses import stretched
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, aten_of, every

INPUTS = ("self", "target")


def pair(one: Any, other: Any, **more: Any) -> dict[str, Any]:
    """The dtypes of self and target."""
    return {"self": {"dtype": one}, "target": {"dtype": other}, **more}


# The checks, in order [src:l1-loss]
TABLE = Table(
    l1_loss,
    {"reduction": 0},
    [
        *null(*INPUTS, "out"),
        *reductions_beyond_2(),
        *dtype(INT64, "self"),
        Fault(pair(BOOL, FLOAT16), DTypeError, ("self",)),
        Fault(pair(INT64, INT64, reduction=1, out={"shape": ()}), DTypeError, INPUTS),
        Fault(pair(FLOAT, UINT16), DTypeError, INPUTS),
        Fault({"self": {"dtype": DOUBLE}}, DTypeError, INPUTS),
        Fault({"target": {"dtype": DOUBLE}}, DTypeError, INPUTS),
        Fault(pair(INT32, INT32), DTypeError, INPUTS),
        Fault(pair(UINT8, INT8), DTypeError, INPUTS),
        *dtype(INT32, "out"),
        *shape(NINE, *INPUTS),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
        Fault({"reduction": 2}, ShapeError, ("out",)),
        Fault({"reduction": 1, "out": {"shape": (1,)}}, ShapeError, ("out",)),
    ],
)
# self, target, element
CELLS = [
    (3.0, 1.0, 2.0),
    (1.0, 3.0, 2.0),
    (1.0, 1.0, 0.0),
    (-0.0, 0.0, 0.0),
    (INF, 1.0, INF),
    (1.0, INF, INF),
    (-INF, INF, INF),
    (INF, INF, NAN),
    (NAN, 1.0, NAN),
    (1.0, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclTensor* target, int64_t reduction, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer="FLOAT FLOAT16 BF16 INT64",
    older="FLOAT FLOAT16 INT64",
    attributes={"reduction": MEAN},
    cells=Cells("self target", CELLS),
    torch=aten_of(l1_loss, "l1_loss"),
    calls=every({}, *stretched(*INPUTS), reduction=(NONE, MEAN, SUM)),
    casts=FLOATS,
    stretches=True,
)


def test_int64_is_computed_in_integers_without_a_reduction_and_as_a_sum() -> None:
    large = 2**53
    tensors = {"self": np.array([large + 1, 5]), "target": np.array([[0], [2]])}
    elements = [[large + 1, 5], [large - 1, 3]]
    np.testing.assert_array_equal(SUBJECT.run(tensors, reduction=NONE), elements)
    found = SUBJECT.run(tensors, reduction=SUM)
    assert (found.dtype, found.item()) == (np.int64, 2 * large + 8)


@pytest.mark.parametrize(
    ("one", "other", "promoted"),
    [
        (INT32, INT64, INT64),
        (BOOL, INT64, INT64),
        (FLOAT, INT8, FLOAT),
        (FLOAT16, INT64, FLOAT16),
    ],
    ids=str,
)
def test_only_the_promoted_dtype_counts(one: Any, other: Any, promoted: Any) -> None:
    tensors = {"self": np.array([1, 0], one.numpy), "target": np.array([0, 1], other.numpy)}
    found = SUBJECT.run(tensors, reduction=NONE)
    assert found.dtype == promoted.numpy
    np.testing.assert_array_equal(found, [1, 1])


def test_an_integer_self_beside_a_floating_target_passes_where_something_is_reduced() -> None:
    tensors = {"self": np.array([3, 1]), "target": np.array([1, 0.5], np.float32)}
    assert SUBJECT.run(tensors, reduction=MEAN) == 1.25
    assert SUBJECT.run(tensors, reduction=SUM) == 2.5


def test_integers_lose_what_their_promoted_dtype_has_not_before_the_difference() -> None:
    tensors = {"self": np.array([2048], np.float16), "target": np.array([2049])}
    np.testing.assert_array_equal(SUBJECT.run(tensors, reduction=NONE), [0])


def test_a_sum_beyond_float16_is_infinite_in_a_wider_output_too() -> None:
    tensors = {n: np.full(2, v, np.float16) for n, v in zip(INPUTS, (60000, 0), strict=True)}
    assert SUBJECT.run(tensors, out=np.empty((), np.float32), reduction=SUM) == INF
    assert SUBJECT.run(tensors, reduction=MEAN) == 60000  # though the sum is beyond
    wide = {n: a.astype(np.float32) for n, a in tensors.items()}
    assert SUBJECT.run(wide, reduction=SUM) == 120000

"""aclnnBinaryCrossEntropy: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.binary_cross_entropy import binary_cross_entropy
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import Fault, Table, dtypes, null, reductions_beyond_2, shape
from .gradients import INF, NAN
from .losses import functional
from .subject import (
    MEAN,
    NONE,
    SUM,
    WITH_BF16,
    Cells,
    Subject,
    between,
    every,
    of_one_shape,
)

INPUTS = ("self", "target", "weight")
# The checks, in order [src:binary-cross-entropy]
TABLE = Table(
    binary_cross_entropy,
    {"reduction": 0},
    [
        *null("self", "target", "out"),
        *dtypes(INT32, DOUBLE, of=("self", "target", "out", "weight")),
        *(
            Fault({name: {"dtype": FLOAT16}}, DTypeError, ("self",))
            for name in ("target", "weight", "out")
        ),
        Fault({"weight": None, "target": {"dtype": FLOAT16}}, DTypeError, ("self",)),
        Fault({"weight": None, "out": {"dtype": FLOAT16}}, DTypeError, ("self",)),
        Fault({"target": {"shape": (3,)}}, ShapeError, ("self",)),
        Fault({"target": {"shape": (3, 2)}}, ShapeError, ("self",)),
        *shape((3,), "weight"),
        *reductions_beyond_2(),
        *shape((3, 2), "out"),
        *shape((), "out"),
        Fault({"reduction": 1}, ShapeError, ("out",)),
    ],
)
# self, target, weight, element
CELLS = [
    (0.0, 1.0, None, 100.0),
    (0.0, 0.0, None, 0.0),
    (1.0, 0.0, None, 100.0),
    (1.0, 1.0, None, 0.0),
    (0.0, 0.25, None, 25.0),
    (0.5, 0.25, None, np.log(2)),
    (0.5, 0.25, 2.0, 2 * np.log(2)),
    (0.0, 1.0, -0.5, -50.0),
    (0.0, 2.0, None, 200.0),
    (0.0, INF, None, NAN),
    (0.5, INF, None, NAN),
    (0.0, 1.0, INF, INF),
    (0.0, 0.0, INF, NAN),
    (0.5, 0.5, 0.0, 0.0),
    (-0.5, 1.0, None, NAN),
    (1.5, 1.0, None, NAN),
    (INF, 0.5, None, NAN),
    (-INF, 0.5, None, NAN),
    (NAN, 0.5, None, NAN),
    (0.5, NAN, None, NAN),
    (0.5, 0.5, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclTensor* target, const aclTensor* weight, "
        "int64_t reduction, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    attributes={"reduction": MEAN},
    values=dict.fromkeys(INPUTS, between(0.02, 0.98)),
    cells=Cells("self target weight", CELLS),
    torch=functional("binary_cross_entropy", "self", "target"),
    calls=every(
        *of_one_shape(" ".join(INPUTS), (12, 17), (), (2, 1, 3, 1, 1, 2, 1, 2)),
        without=[(), ("weight",)],
        reduction=(NONE, MEAN, SUM),
    ),
)


@pytest.mark.parametrize("shapes", [((1,), ()), ((), (1, 1)), ((1, 1), (1,))], ids=str)
def test_one_element_goes_into_one_element_of_any_rank(shapes: Any) -> None:
    tensors = {n: np.full(shapes[0], 0.5, np.float32) for n in INPUTS}
    found = SUBJECT.run(tensors, out=np.empty(shapes[1], np.float32), reduction=NONE)
    assert found.shape == shapes[1]
    np.testing.assert_array_equal(found, np.full(shapes[1], np.float32(np.log(2) / 2)))


def test_of_nothing_all_of_an_output_of_any_shape_is_filled() -> None:
    tensors = {n: np.zeros((0, 3), np.float32) for n in INPUTS}
    for reduction, expected in ((NONE, 0), (MEAN, NAN), (SUM, 0)):
        found = SUBJECT.run(tensors, out=np.full((2, 3), 7, np.float32), reduction=reduction)
        np.testing.assert_array_equal(found, np.full((2, 3), expected))


def test_tensors_may_have_more_than_8_dimensions() -> None:
    nine = (1,) * 8 + (3,)
    tensors = {n: np.full(nine, 0.5, np.float32) for n in INPUTS}
    assert SUBJECT.run(tensors, reduction=NONE).shape == nine
    assert SUBJECT.run(tensors, reduction=SUM) == np.float32(1.5 * np.log(2))


def test_a_tiny_probability_keeps_its_digits() -> None:
    tensors = {"self": np.float32([1e-9]), "target": np.float32([0]), "weight": None}
    np.testing.assert_allclose(SUBJECT.run(tensors, reduction=NONE), 1e-9, rtol=1e-6)

"""aclnnSoftMarginLossBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import ShapeError
from npucall.operators.soft_margin_loss_backward import soft_margin_loss_backward
from npucall.products import ASCEND_910

from .faults import NINE, Fault, Table, dtypes, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, NAN, aten
from .losses import assert_rounded, stretched, wide
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, every, signs

INPUTS = ("grad_output", "self", "target")
# The checks, in order [src:soft-margin-loss]; after the exit for empty tensors, the service
# checks the reduction
TABLE = Table(
    soft_margin_loss_backward,
    {"reduction": 1},
    [
        *null(*INPUTS, "out"),
        *dtypes(INT32, DOUBLE, of=(*INPUTS, "out")),
        *shape(NINE, *INPUTS),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
        *reductions_beyond_2(),
    ],
)
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
    """torch's, which wants a target as large as the result."""
    g, x, t = wide(tensors).values()
    full = np.broadcast_to(t, np.broadcast_shapes(g.shape, x.shape, t.shape)).copy()
    return aten("soft_margin_loss_backward", g, x, full, reduction)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910),
    unreachable=frozenset(
        {"dtypes of self, target and grad_output promote to one"}
    ),  # any floats do
    attributes={"reduction": MEAN},
    values={"target": signs},
    cells=Cells("grad_output self target", CELLS),
    torch=torch_gradient,
    calls=(
        *every(*stretched(*INPUTS), reduction=(NONE, SUM)),
        *every({}, {"grad_output": ()}, {"target": (17,)}, {"target": ()}, reduction=(MEAN,)),
    ),
    casts=FLOATS,
    stretches=True,
)


@pytest.mark.torch
@pytest.mark.parametrize("single", [-88.8, -88.7, 0.0, 88.7, 100.0])
def test_an_overflow_gives_nan_where_it_does_in_torch(single: float) -> None:
    tensors = {n: np.array([v], np.float32) for n, v in zip(INPUTS, (1, single, 1), strict=True)}
    expected = aten("soft_margin_loss_backward", *tensors.values(), NONE)
    found = SUBJECT.run(tensors, reduction=NONE)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-38)


@pytest.mark.torch
def test_a_mean_divides_by_the_elements_of_the_result_unlike_torchs() -> None:
    shapes = ((4, 1), (2,), (4, 2))
    tensors = {n: np.full(s, v) for n, s, v in zip(INPUTS, shapes, (8.0, 0.0, 1.0), strict=True)}
    found = SUBJECT.exact(tensors, reduction=MEAN)
    np.testing.assert_array_equal(found, [[-0.5] * 2] * 4)  # -1 / 2 * 8 / 8
    np.testing.assert_array_equal(torch_gradient(tensors, MEAN), [[-2.0] * 2] * 4)  # / 2


@pytest.mark.torch
def test_inputs_of_different_dtypes_are_computed_in_the_promoted_one() -> None:
    tensors = SUBJECT.draw(np.float16)
    tensors["self"] = tensors["self"].astype(np.float32)
    found = SUBJECT.run(tensors, reduction=NONE)
    assert_rounded(found, torch_gradient(tensors, NONE), np.float32)


def test_an_empty_self_ends_the_call_before_the_reduction_is_looked_at() -> None:
    tensors = {name: np.ones((0, 3), np.float32) for name in INPUTS}
    assert SUBJECT.run(tensors, reduction=7).shape == (0, 3)


@pytest.mark.parametrize("empty", ["grad_output", "target"])
def test_another_empty_input_gives_an_empty_output(empty: str) -> None:
    tensors = {name: np.ones((1, 1), np.float32) for name in INPUTS}
    found = SUBJECT.run({**tensors, empty: np.ones((0, 3), np.float32)})
    assert found.shape == (0, 3)

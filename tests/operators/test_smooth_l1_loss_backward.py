"""aclnnSmoothL1LossBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import AttributeValueError, ShapeError
from npucall.operators.smooth_l1_loss_backward import smooth_l1_loss_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtypes, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, LOCAL, NAN, aten
from .losses import stretched, wide
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, aten_of, every

INPUTS = ("grad_out", "self", "target")
# The checks, in order [src:smooth-l1-loss]
TABLE = Table(
    smooth_l1_loss_backward,
    {"reduction": 1, "beta": 1.0},
    [
        *null(*INPUTS, "grad_input"),
        *dtypes(INT32, DOUBLE, of=(*INPUTS, "grad_input")),
        *shape(NINE, *INPUTS),
        *reductions_beyond_2(),
        Fault({"beta": -1.0}, AttributeValueError, ("beta",)),
        Fault({"grad_out": {"shape": (4, 3)}}, ShapeError, ("grad_out", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_out", "self")),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "grad_input"),
    ],
)
# Any floats promote to one, which can be cast to any.
UNREACHABLE = frozenset(
    {
        "dtypes of grad_out, self and target promote to one",
        "dtype of promotion is one that the product takes",
        "promotion can be cast to the dtype of grad_input",
    }
)
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


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOut, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, float beta, aclTensor* gradInput"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=UNREACHABLE,
    attributes={"reduction": MEAN, "beta": 0.75},
    cells=Cells("grad_out self target beta", CELLS),
    torch=aten_of(smooth_l1_loss_backward, "smooth_l1_loss_backward"),
    calls=(
        *every(*stretched(*INPUTS), reduction=(NONE, MEAN, SUM), beta=(0.5,)),
        *every(reduction=(NONE, MEAN, SUM), beta=(0.0, 3.0)),
    ),
    casts=FLOATS,
    stretches=True,
)


@pytest.mark.torch
@pytest.mark.parametrize(("g", "x", "t", "beta", "expected"), CELLS)
def test_each_element_is_torchs(g: float, x: float, t: float, beta: float, expected: float) -> None:
    tensors = {n: np.array([v]) for n, v in zip(INPUTS, (g, x, t), strict=True)}
    np.testing.assert_array_equal(torch_gradient(tensors, NONE, beta), [expected])


def test_a_mean_divides_by_the_elements_of_self_also_where_others_stretch_it() -> None:
    tensors = {"grad_out": np.ones((4, 2)), "self": np.array([3.0, 0.5]), "target": np.zeros(2)}
    found = SUBJECT.exact(tensors, reduction=MEAN, beta=1.0)
    np.testing.assert_array_equal(found, [[0.5, 0.25]] * 4)  # 1 / 2 and 0.5 / 2, and not / 8


def test_beta_is_a_float32() -> None:
    tenth = float(np.float32(0.1))  # 0.10000000149
    tensors = {n: np.array([v]) for n, v in zip(INPUTS, (1.0, 0.05, 0.0), strict=True)}
    assert SUBJECT.exact(tensors, beta=0.1) == [0.05 / tenth]


def test_beta_is_1_unless_it_is_given() -> None:
    tensors = {n: np.array([v], np.float32) for n, v in zip(INPUTS, (1, 0.9375, 0), strict=True)}
    assert LOCAL.run(smooth_l1_loss_backward, **tensors) == [0.9375]


@pytest.mark.parametrize("beta", [-1.0, -INF, NAN, -1e-40])
def test_a_beta_below_0_or_of_nan_is_refused(beta: float) -> None:
    fault = Fault({"beta": beta}, AttributeValueError, ("beta",))
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize("beta", [0.0, -0.0, -1e-60, 1e-40, INF])
def test_a_beta_that_is_0_or_more_as_a_float32_is_taken(beta: float) -> None:
    assert TABLE.refusal(Fault({"beta": beta}, AttributeValueError, ("beta",))) is None


def test_inputs_promote_before_they_are_subtracted() -> None:
    half, single = np.array([2048], np.float16), np.array([2049], np.float32)
    tensors = {"grad_out": half, "self": single, "target": half}
    found = SUBJECT.run(tensors, reduction=NONE, beta=4.0)
    assert (found.dtype, found[0]) == (np.float32, 512)  # (2049 - 2048) / 4 * 2048

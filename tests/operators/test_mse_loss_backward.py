"""aclnnMseLossBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.mse_loss_backward import mse_loss_backward
from npucall.products import ASCEND_310P

from .faults import NINE, Fault, Table, dtype, null, reductions_beyond_2, shape
from .gradients import BF16, FLOATS, INF, NAN, title
from .losses import stretched
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, aten_of, every

INPUTS = ("grad_output", "self", "target")
# The checks, in order [src:mse-loss]
TABLE = Table(
    mse_loss_backward,
    {"reduction": 1},
    [
        *null(*INPUTS, "out"),
        *dtype(FLOAT16, "grad_output", "target"),
        Fault({name: {"dtype": INT32} for name in INPUTS}, DTypeError, ("self",)),
        *dtype(INT32, "out"),
        *reductions_beyond_2(),
        *shape(NINE, *INPUTS),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
    ],
)
# grad_output, self, target, result without a mean
CELLS = [
    (1.0, 3.0, 1.0, 4.0),
    (-0.5, 3.0, 1.0, -2.0),
    (2.0, 1.0, 1.0, 0.0),
    (2.0, -1.0, 1.5, -10.0),
    (1.0, INF, 1.0, INF),
    (1.0, 1.0, INF, -INF),
    (1.0, INF, INF, NAN),
    (0.0, INF, 1.0, NAN),
    (INF, 2.0, 1.0, INF),
    (INF, 1.0, 1.0, NAN),
    (NAN, 2.0, 1.0, NAN),
    (1.0, NAN, 1.0, NAN),
    (1.0, 1.0, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_310P),
    attributes={"reduction": MEAN},
    cells=Cells("grad_output self target", CELLS),
    torch=aten_of(mse_loss_backward, "mse_loss_backward"),
    calls=every({}, *stretched(*INPUTS), reduction=(NONE, MEAN, SUM)),
    casts=FLOATS,
    stretches=True,
)


def test_a_mean_divides_by_the_elements_of_self_also_where_others_stretch_it() -> None:
    ones, x = np.ones((4, 2)), np.array([3.0, 5.0])
    found = SUBJECT.exact({"grad_output": ones, "self": x, "target": np.zeros(2)}, reduction=MEAN)
    np.testing.assert_array_equal(found, [[3, 5]] * 4)  # 2 * x / 2, and not / 8


def test_a_difference_beyond_float16_is_finite_once_the_mean_brings_it_back() -> None:
    tensors = {n: np.full(4, v, np.float16) for n, v in zip(INPUTS, (1, 6e4, -6e4), strict=True)}
    np.testing.assert_array_equal(SUBJECT.run(tensors, reduction=MEAN), [60000] * 4)  # 240000 / 4


@pytest.mark.parametrize("kind", [np.float32, np.float16, BF16], ids=title)
def test_the_result_is_rounded_to_the_inputs_dtype_before_that_of_out(kind: Any) -> None:
    tensors = {n: np.full(3, v, np.float16) for n, v in zip(INPUTS, (1, 1, 0.5), strict=True)}
    found = SUBJECT.run(tensors, out=np.empty(3, kind), reduction=MEAN)
    third = np.float16(1 / 3)
    np.testing.assert_array_equal(found, np.full(3, third).astype(kind))

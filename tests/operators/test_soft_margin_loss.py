"""aclnnSoftMarginLoss: prototype, values against torch, and its checks in order."""

from __future__ import annotations

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, INT32
from npucall.errors import ShapeError
from npucall.operators.soft_margin_loss import soft_margin_loss
from npucall.products import ASCEND_310P, ASCEND_910
from npucall_client import CallWarning

from .faults import NINE, Fault, Table, dtypes, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .losses import functional, stretched
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, every

INPUTS = ("self", "target")
# The checks, in order [src:soft-margin-loss]
TABLE = Table(
    soft_margin_loss,
    {"reduction": 0},
    [
        *null(*INPUTS, "out"),
        *dtypes(INT32, DOUBLE, of=(*INPUTS, "out")),
        *shape(NINE, *INPUTS),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
        Fault({"reduction": 2}, ShapeError, ("out",)),
        Fault({"reduction": 7, "out": {"shape": (1,)}}, ShapeError, ("out",)),
    ],
)
# self, target, element
CELLS = [
    (-2.0, 0.0, np.log(2)),
    (-300.0, 1.0, 300.0),
    (300.0, -1.0, 300.0),
    (300.0, 1.0, 0.0),
    (-89.0, 1.0, 89.0),  # infinite in torch and on Atlas A2
    (INF, 1.0, 0.0),
    (-INF, 1.0, INF),
    (INF, -1.0, INF),
    (INF, 0.0, NAN),
    (0.0, INF, NAN),
    (NAN, 1.0, NAN),
    (1.0, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclTensor* target, int64_t reduction, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    attributes={"reduction": MEAN},
    cells=Cells("self target", CELLS),
    torch=functional("soft_margin_loss", *INPUTS),
    calls=every({}, *stretched(*INPUTS), reduction=(NONE, MEAN, SUM)),
    casts=FLOATS,
    stretches=True,
)


@pytest.mark.parametrize("code", [3, 7, -1, 2**40])
def test_any_other_reduction_is_a_sum_with_a_warning(code: int) -> None:
    tensors = SUBJECT.draw(np.float32)
    answer = LOCAL.execute(soft_margin_loss, **tensors, reduction=code)
    assert len(answer.warnings) == 1
    np.testing.assert_array_equal(answer.value, SUBJECT.run(tensors, reduction=SUM))
    nothing = {name: array[:0] for name, array in tensors.items()}
    with pytest.warns(CallWarning, match="reduction"):
        assert SUBJECT.run(nothing, reduction=code) == 0


def test_a_tiny_loss_keeps_its_digits() -> None:
    tensors = {"self": np.float32([40]), "target": np.float32([1])}
    found = SUBJECT.run(tensors, reduction=NONE)
    np.testing.assert_allclose(found, np.exp(-40.0), rtol=1e-6)

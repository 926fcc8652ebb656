"""aclnnMseLoss: prototype, values against torch, and its checks in order."""

from __future__ import annotations

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16, INT8, INT32, INT64, UINT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.mse_loss import mse_loss
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtypes, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, NAN
from .losses import stretched
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, aten_of, every

INPUTS = ("self", "target")
# The checks, in order [src:mse-loss]
TABLE = Table(
    mse_loss,
    {"reduction": 0},
    [
        *null(*INPUTS, "out"),
        Fault({"target": {"dtype": UINT16}}, DTypeError, INPUTS),
        Fault({"self": {"dtype": DOUBLE}}, DTypeError, INPUTS),
        Fault({name: {"dtype": INT64} for name in INPUTS}, DTypeError, INPUTS),
        Fault({"self": {"dtype": INT8}, "target": {"dtype": FLOAT16}}, DTypeError, ("self",)),
        Fault({"self": {"dtype": FLOAT16}, "target": {"dtype": INT8}}, DTypeError, ("target",)),
        *dtypes(INT32, DOUBLE, of=("out",)),
        *reductions_beyond_2(),
        *shape(NINE, *INPUTS),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "out"),
        Fault({"reduction": 2}, ShapeError, ("out",)),
        Fault({"reduction": 1, "out": {"shape": (1,)}}, ShapeError, ("out",)),
    ],
)
# self, target, element
CELLS = [
    (3.0, 1.0, 4.0),
    (1.0, 3.5, 6.25),
    (1.0, 1.0, 0.0),
    (INF, 1.0, INF),
    (1.0, -INF, INF),
    (INF, INF, NAN),
    (-INF, INF, INF),
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
    torch=aten_of(mse_loss, "mse_loss"),
    calls=every({}, *stretched(*INPUTS), reduction=(NONE, MEAN, SUM)),
    casts=FLOATS,
    stretches=True,
)


def test_squares_beyond_float16_are_finite_once_the_mean_brings_them_back() -> None:
    # F13 of [src:worked-examples]; torch is infinite, since it rounds each square
    tensors = {"self": np.array([300, 0, 0], np.float16), "target": np.zeros(3, np.float16)}
    assert SUBJECT.run(tensors, reduction=MEAN) == 30000
    np.testing.assert_array_equal(SUBJECT.run(tensors, reduction=NONE), [INF, 0, 0])
    found = SUBJECT.run(tensors, out=np.empty((), np.float32), reduction=SUM)
    assert found == INF  # 90000 is rounded to the inputs' dtype first

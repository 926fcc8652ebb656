"""aclnnSmoothL1Loss: prototype, values against torch, and its checks in order."""

from __future__ import annotations

import numpy as np
import pytest

from npucall.dtypes import COMPLEX64, DOUBLE, INT32, INT64
from npucall.errors import AttributeValueError, ShapeError
from npucall.operators.smooth_l1_loss import smooth_l1_loss
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, dtypes, null, reductions_beyond_2, shape
from .gradients import FLOATS, INF, NAN
from .losses import functional, stretched
from .subject import MEAN, NONE, SUM, WITH_BF16, Cells, Subject, every

INPUTS = ("self", "target")
# The checks, in order [src:smooth-l1-loss]
TABLE = Table(
    smooth_l1_loss,
    {"reduction": 0, "beta": 1.0},
    [
        *null(*INPUTS, "result"),
        *dtypes(INT32, DOUBLE, of=INPUTS),
        *dtype(INT64, "result"),
        *reductions_beyond_2(),
        *shape(NINE, *INPUTS),
        Fault({"target": {"shape": (4, 3)}}, ShapeError, INPUTS),
        *shape((3, 2), "result"),
        *(Fault({"beta": b}, AttributeValueError, ("beta",)) for b in (-1.0, -INF, NAN)),
        Fault({"reduction": 1}, ShapeError, ("result",)),
        Fault({"reduction": 2, "self": {"shape": (0, 3)}, "target": {"shape": (1, 3)}},
              ShapeError, ("result",)),
    ],
)  # fmt: skip
# self, target, beta, element
CELLS = [
    (2.0, 1.0, 1.0, 0.5),
    (1.5, 1.0, 1.0, 0.125),
    (1.0, 1.5, 1.0, 0.125),
    (1.0, 4.0, 2.0, 2.0),
    (1.0, 1.0, 0.0, 0.0),
    (3.0, 1.0, 0.0, 2.0),
    (3.0, 1.0, INF, 0.0),
    (INF, 1.0, INF, NAN),
    (INF, 1.0, 1.0, INF),
    (1.0, -INF, 1.0, INF),
    (INF, INF, 1.0, NAN),
    (INF, INF, 0.0, NAN),
    (NAN, 1.0, 1.0, NAN),
    (1.0, NAN, 0.0, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclTensor* target, int64_t reduction, float beta, "
        "aclTensor* result"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    attributes={"reduction": MEAN},
    cells=Cells("self target beta", CELLS),
    torch=functional("smooth_l1_loss", *INPUTS),
    calls=every({}, *stretched(*INPUTS), reduction=(NONE, MEAN, SUM), beta=(1.0, 0.0, 2.5)),
    casts=FLOATS,
    stretches=True,
)


def test_a_beta_counts_as_a_float32() -> None:
    below = np.nextafter(np.float32(0.1), np.float32(0))
    tensors = {"self": np.float32([0.1, below]), "target": np.zeros(2, np.float32)}
    tenth = np.float32(0.1)
    far, near = tenth - np.float32(0.5) * tenth, np.float32(0.5) * below * below / tenth
    np.testing.assert_array_equal(SUBJECT.run(tensors, reduction=NONE, beta=0.1), [far, near])


@pytest.mark.parametrize("one", [(1,), (1, 1, 1)], ids=str)
def test_what_is_reduced_goes_into_one_element_of_any_rank(one: tuple[int, ...]) -> None:
    tensors = SUBJECT.draw(np.float32)
    found = SUBJECT.run(tensors, out=np.empty(one, np.float32), reduction=SUM)
    assert found.shape == one
    assert found.item() == SUBJECT.run(tensors, reduction=SUM)


def test_a_result_may_have_any_dtype_that_floats_can_be_cast_to() -> None:
    tensors = SUBJECT.draw(np.float16)
    expected = SUBJECT.run(tensors)
    for kind in (DOUBLE, COMPLEX64):
        assert SUBJECT.run(tensors, out=np.empty((), kind.numpy)) == expected

"""aclnnLeakyRelu: prototype, values, and its checks in order."""

from __future__ import annotations

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BOOL, COMPLEX64, COMPLEX128, DOUBLE, DTYPES, INT32
from npucall.errors import DTypeError
from npucall.operators.leaky_relu import leaky_relu
from npucall.products import ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every

# The checks, in order [src:leaky-relu]; what is said of the slope is the service's
TABLE = Table(
    leaky_relu,
    {"negative_slope": Scalar(DOUBLE, 0.25)},
    [
        *null("self", "negative_slope", "out"),
        *dtype(INT32, "self"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *shape(NINE, "self"),
        *shape((3, 2), "out"),
        *shape((1, 3), "out"),
        Fault({"negative_slope": Scalar(COMPLEX64, 1)}, DTypeError, ("negative_slope",)),
    ],
)
# self, negative_slope, result
CELLS = [
    (2.0, 0.25, 2.0),
    (-2.0, 0.25, -0.5),
    (-2.0, 4.0, -8.0),
    (2.0, 4.0, 2.0),
    (-2.0, 1.0, -2.0),
    (-2.0, -0.5, 1.0),
    (2.0, -0.5, 2.0),
    (-2.0, 0.0, 0.0),
    (0.0, 0.25, 0.0),
    (-0.0, -0.25, 0.0),
    (INF, 0.25, INF),
    (-INF, 0.25, -INF),
    (INF, 0.0, INF),
    (-INF, 0.0, NAN),
    (INF, -1.0, INF),
    (NAN, 0.25, NAN),
    (NAN, 4.0, NAN),
    (-2.0, INF, -INF),
    (0.0, INF, NAN),
    (2.0, INF, 2.0),
    (-2.0, NAN, NAN),
    (2.0, NAN, 2.0),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclScalar* negativeSlope, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    attributes={"negative_slope": 0.25},
    cells=Cells("self negative_slope", CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(leaky_relu, "leaky_relu"),
    calls=every(negative_slope=(0.25, 0.0, 1.0, 3.0, -0.5)),
    casts=(*FLOATS, np.float64, np.complex64),
)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_the_slope_counts_as_float32(kind: type) -> None:
    x = np.array([-3.0, -1.0], kind)
    wide = np.float64 if kind is np.float64 else np.float32
    expected = (x.astype(wide) * wide(np.float32(0.1))).astype(kind)
    np.testing.assert_array_equal(LOCAL.run(leaky_relu, x, 0.1), expected)


def test_the_slope_may_have_every_dtype_but_a_complex_one() -> None:
    refused = {
        kind
        for kind in DTYPES
        if TABLE.refusal(Fault({"negative_slope": Scalar(kind, 1)}, DTypeError, ()))
    }
    assert refused == {COMPLEX64, COMPLEX128}

"""aclnnSoftplus: prototype, values, and its checks in order."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, COMPLEX128, DOUBLE, DTYPES, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.softplus import softplus
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import WITH_BF16 as NEWER
from .subject import Cells, Subject, aten_of, every, steps

NUMBERS = ("beta", "threshold")
# The checks, in order [src:softplus]
TABLE = Table(
    softplus,
    {"beta": Scalar(DOUBLE, 1.0), "threshold": Scalar(DOUBLE, 20.0)},
    [
        *null("self", *NUMBERS, "out"),
        *dtype(DOUBLE, "self"),
        *dtype(INT32, "self"),
        *(Fault({name: Scalar(COMPLEX64, 1)}, DTypeError, (name,)) for name in NUMBERS),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *shape(NINE, "self"),
        *shape((3, 2), "self"),
        Fault({"out": {"shape": (1, 3)}}, ShapeError, ("self",)),
    ],
)
# self, beta, threshold, result
CELLS = [
    (0.0, 1.0, 20.0, log(2)),
    (-0.0, 2.0, 20.0, log(2) / 2),
    (0.0, -1.0, 20.0, -log(2)),
    (2.0, 1.0, 1.5, 2.0),  # linear
    (1.5, 2.0, 2.5, 1.5),  # beta * self counts
    (0.0, 1.0, 0.0, log(2)),  # equal to the threshold: not yet linear
    (-1.0, 1.0, -2.0, -1.0),
    (INF, 1.0, 20.0, INF),
    (INF, 1.0, INF, INF),
    (-INF, 1.0, 20.0, 0.0),
    (INF, -1.0, 20.0, 0.0),
    (-INF, -1.0, 20.0, -INF),
    (100.0, 1.0, 1000.0, 100.0),  # e^100 is no number of float32
    (-200.0, 1.0, 20.0, 0.0),
    (5.0, 0.0, 20.0, INF),
    (5.0, 0.0, -1.0, 5.0),  # linear
    (INF, 0.0, 20.0, NAN),
    (-INF, 0.0, 20.0, NAN),
    (NAN, 0.0, 20.0, NAN),
    (NAN, 1.0, 20.0, NAN),
    (5.0, NAN, 20.0, NAN),
    (0.0, 1.0, NAN, log(2)),
    (300.0, 1.0, NAN, 300.0),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    ("const aclTensor* self, const aclScalar* beta, const aclScalar* threshold, aclTensor* out"),
    # Only the source has Ascend 950 [src:softplus]
    documented=(*(p for p in NEWER if p is not ASCEND_950), ASCEND_910, ASCEND_310P),
    legacy=(ASCEND_950, ASCEND_310B),
    attributes={"beta": 1.0, "threshold": 20.0},
    values={"self": steps(255)},
    cells=Cells("self beta threshold", CELLS),
    torch=aten_of(softplus, "softplus"),
    calls=every(beta=(1.0, 2.5, -0.5), threshold=(20.0, 1.5, 0.0)),
    casts=(*FLOATS, np.float64, np.complex64),
)


def test_the_numbers_are_used_as_float32() -> None:
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    beta, threshold = (float(np.float32(value)) for value in (0.3, 0.7))
    found = LOCAL.run(softplus, x, 0.3, 0.7)
    np.testing.assert_array_equal(found, LOCAL.run(softplus, x, beta, threshold))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_may_have_every_dtype_but_a_complex_one(name: str) -> None:
    faults = {kind: Fault({name: Scalar(kind, 1)}, DTypeError, (name,)) for kind in DTYPES}
    refused = {kind for kind, fault in faults.items() if TABLE.refusal(fault)}
    assert refused == {COMPLEX64, COMPLEX128}


def test_far_below_0_nothing_is_lost() -> None:
    x = np.linspace(-100, 0, 201, dtype=np.float32)
    expected = np.log1p(np.exp(x.astype(np.float64)))
    np.testing.assert_allclose(
        LOCAL.run(softplus, x, 1.0, 20.0), expected, rtol=1e-6, atol=2.0**-149
    )


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none(soc: str) -> None:
    fault = Fault({"self": {"dtype": BF16}}, DTypeError, ("self",))
    assert TABLE.refusal(fault, soc=soc) == fault.answer

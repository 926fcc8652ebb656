"""aclnnExp: prototype, values against torch, integers, and its checks in order."""

from __future__ import annotations

import numpy as np
import pytest

from npucall.dtypes import BOOL, COMPLEX64, INT8, INT32, UINT8
from npucall.errors import DTypeError, ShapeError
from npucall.operators.exp import exp

from .arithmetic import uncastable
from .faults import NINE, Fault, Table, dtypes, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every, of_one_shape

# The checks, in order [src:exp-log]
TABLE = Table(
    exp,
    {},
    [
        *null("self", "out"),
        *dtypes(INT32, INT8, UINT8, of=("self",)),
        *uncastable(INT32, BOOL),
        Fault({"self": {"dtype": COMPLEX64}}, DTypeError, ("out",)),
        Fault({"self": {"dtype": BOOL}, "out": {"dtype": BOOL}}, DTypeError, ("out",)),
        *shape((3, 2), "out"),
        Fault({name: {"shape": NINE} for name in ("self", "out")}, ShapeError, ("self",)),
    ],
)
# self, its exponential
CELLS = [
    (0.0, 1.0),
    (-0.0, 1.0),
    (INF, INF),
    (-INF, 0.0),
    (NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, aclTensor* out",
    documented=WITH_BF16,
    newer=f"{THREE} DOUBLE BOOL INT64",
    older=f"{TWO} DOUBLE BOOL INT64",
    typed=("self",),
    cells=Cells("self", CELLS),
    torch=aten_of(exp, "exp"),
    calls=every(*of_one_shape("self", (12, 17), (), (2, 1, 3))),
    casts=(*FLOATS, np.float64, np.complex64),
)


def test_of_integers_and_truth_values_it_is_a_float() -> None:
    found = LOCAL.run(exp, np.array([0, 1, -200, 100]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [1, np.e, 0, INF], rtol=1e-6)
    np.testing.assert_allclose(LOCAL.run(exp, np.array([True, False])), [np.e, 1], rtol=1e-6)


@pytest.mark.parametrize(("kind", "limit"), [(np.float16, 11.09), (np.float32, 88.73)], ids=str)
def test_what_is_beyond_the_dtype_is_infinite(kind: type, limit: float) -> None:
    x = np.array([limit, limit - 0.1], kind)
    assert np.isinf(LOCAL.run(exp, x)).tolist() == [True, False]


def test_of_a_complex_number_it_has_a_direction() -> None:
    found = LOCAL.run(exp, np.array([1j * np.pi]))
    np.testing.assert_allclose(found, [-1], atol=1e-15)

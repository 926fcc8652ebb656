"""aclnnLog: prototype, values against torch, integers, and its checks in order."""

from __future__ import annotations

import numpy as np

from npucall.dtypes import BF16, BOOL, COMPLEX64, COMPLEX128, DOUBLE, FLOAT, INT32, INT64, UINT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.log import log

from .arithmetic import INTEGERS
from .faults import NINE, Fault, Table, dtypes, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import (
    THREE,
    TWO,
    WITH_BF16,
    Cells,
    Subject,
    aten_of,
    between,
    every,
    of_one_shape,
)

# The checks, in order [src:exp-log]
TABLE = Table(
    log,
    {},
    [
        *null("self", "out"),
        *dtypes(UINT16, of=("self", "out")),
        *dtypes(INT32, INT64, BOOL, of=("out",)),
        *(
            Fault({"self": {"dtype": each}}, DTypeError, ("out",))
            for each in (COMPLEX64, COMPLEX128)
        ),
        *shape((3, 2), "out"),
        Fault({name: {"shape": NINE} for name in ("self", "out")}, ShapeError, ("self",)),
    ],
)
# self, its logarithm
CELLS = [
    (1.0, 0.0),
    (0.0, -INF),
    (-0.0, -INF),
    (-1.0, NAN),
    (INF, INF),
    (-INF, NAN),
    (NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, aclTensor* out",
    documented=WITH_BF16,
    newer=f"{THREE} DOUBLE {INTEGERS} BOOL",
    older=f"{TWO} DOUBLE {INTEGERS} BOOL",
    typed=("self",),
    values={"self": between(0.01, 8)},
    cells=Cells("self", CELLS),
    torch=aten_of(log, "log"),
    calls=every(*of_one_shape("self", (12, 17), (), (2, 1, 3))),
    casts=(*FLOATS, np.float64, np.complex64),
)


def test_of_integers_and_truth_values_it_is_a_float() -> None:
    for kind in (np.int8, np.int64, np.uint8):
        found = LOCAL.run(log, np.array([1, 0, 100], kind))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [0, -INF, np.log(100)], rtol=1e-6)
    assert LOCAL.run(log, np.array([True, False])).tolist() == [0, -INF]


def test_the_output_may_have_any_floating_or_complex_dtype() -> None:
    for kind in (FLOAT, DOUBLE, BF16, COMPLEX64, COMPLEX128):
        assert TABLE.refusal(Fault({"out": {"dtype": kind}}, DTypeError, ())) is None


def test_of_a_negative_complex_number_it_is_imaginary() -> None:
    np.testing.assert_allclose(LOCAL.run(log, np.array([-1 + 0j])), [1j * np.pi])

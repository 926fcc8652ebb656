"""aclnnDiv: prototype, values against torch, integers, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BOOL, COMPLEX64, FLOAT16, INT8, INT32, INT64, UINT16
from npucall.errors import DTypeError, FormatError
from npucall.operators.div import div
from npucall.products import ASCEND_310B, ASCEND_910
from npucall.tensors import Format

from .arithmetic import INTEGERS, PAIR, STRETCHED, pair, shapes, uncastable
from .faults import Fault, Table, dtype, null
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, between, every

# The checks, in order [src:div]: shapes before dtypes
TABLE = Table(
    div,
    {},
    [
        *null("out", "other", "self"),
        *shapes(),
        *dtype(UINT16, "other", "self"),
        *uncastable(INT32, BOOL, UINT16),
        Fault(pair(INT32, INT8, out={"dtype": INT64}), DTypeError, ("out",)),
        Fault(pair(COMPLEX64, FLOAT16), DTypeError, ("out",)),
        *(
            Fault({name: {"format": Format.FRACTAL_NZ}}, FormatError, (name,))
            for name in (*PAIR, "out")
        ),
    ],
)
# self, other, quotient
CELLS = [
    (3.0, -2.0, -1.5),
    (1.0, 3.0, 1 / 3),
    (1.0, 0.0, INF),
    (-1.0, 0.0, -INF),
    (1.0, -0.0, -INF),
    (0.0, 0.0, NAN),
    (INF, 2.0, INF),
    (2.0, INF, 0.0),
    (INF, INF, NAN),
    (NAN, 1.0, NAN),
    (1.0, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclTensor* other, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310B),
    newer=f"{THREE} DOUBLE {INTEGERS} BOOL",
    older=f"{TWO} DOUBLE {INTEGERS} BOOL",
    typed=PAIR,
    values={"other": between(0.5, 4)},
    cells=Cells("self other", CELLS),
    torch=aten_of(div, "div"),
    calls=every(*STRETCHED),
    casts=(*FLOATS, np.float64, np.complex64),
    stretches=True,
)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.bool_], ids=str)
def test_a_quotient_of_integers_is_a_float(kind: Any) -> None:
    one, other = np.array([7, 1, 0]).astype(kind), np.array([2, 0, 0]).astype(kind)
    found = LOCAL.run(div, one, other)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [1 if kind is np.bool_ else 3.5, INF, NAN])
    half = LOCAL.options(outputs={"out": np.empty(3, np.float16)}).run(div, one, other)
    np.testing.assert_array_equal(half, found.astype(np.float16))


def test_integers_beside_a_float_are_converted_to_it_first() -> None:
    found = LOCAL.run(div, np.array([4098], np.int32), np.array([2], np.float16))
    assert (found.dtype, found.tolist()) == (np.float16, [2048])  # 4098 is 4096 there


def test_complex_numbers_are_divided_as_such() -> None:
    found = LOCAL.run(div, np.array([5 + 5j]), np.array([3 - 1j]))
    assert found.dtype == np.complex128
    np.testing.assert_allclose(found, [1 + 2j], rtol=1e-15)

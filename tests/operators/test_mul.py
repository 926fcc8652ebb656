"""aclnnMul: prototype, values against torch, integers, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BOOL, INT32, INT64, UINT16
from npucall.operators.mul import mul
from npucall.products import ASCEND_310P, ASCEND_910

from .arithmetic import NEWER, OLDER, PAIR, STRETCHED, shapes, uncastable
from .faults import Table, dtype, null
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import WITH_BF16, Cells, Subject, aten_of, every

# The checks, in order [src:mul]
TABLE = Table(
    mul,
    {},
    [*null(*PAIR, "out"), *dtype(UINT16, *PAIR, "out"), *uncastable(INT32, BOOL), *shapes()],
)
# self, other, product
CELLS = [
    (3.0, -2.0, -6.0),
    (0.0, 2.0, 0.0),
    (INF, -2.0, -INF),
    (INF, 0.0, NAN),
    (INF, INF, INF),
    (NAN, 0.0, NAN),
    (1.0, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclTensor* other, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=NEWER,
    older=OLDER,
    typed=(*PAIR, "out"),
    cells=Cells("self other", CELLS),
    torch=aten_of(mul, "mul"),
    calls=every(*STRETCHED),
    casts=(*FLOATS, np.float64, np.complex64),
    stretches=True,
)


@pytest.mark.parametrize(
    ("kind", "products"),
    [
        (np.int8, [-128, -128, 21]),  # 64 * 2, -128 * 1, 7 * 3
        (np.uint8, [128, 128, 21]),
        (np.int64, [128, -128, 21]),
        (np.bool_, [True, True, True]),
    ],
    ids=str,
)
def test_integers_wrap_around_and_truth_values_hold_together(kind: Any, products: Any) -> None:
    one, other = np.array([64, -128, 7]).astype(kind), np.array([2, 1, 3]).astype(kind)
    assert LOCAL.run(mul, one, other).tolist() == products
    assert LOCAL.run(mul, one, np.zeros(3, kind)).tolist() == [0, 0, 0]


def test_integers_of_64_bits_lose_nothing() -> None:
    odd = np.array([2**62 + 1])
    found = LOCAL.run(mul, odd, np.array([-1]))
    assert (found.dtype, found.tolist()) == (INT64.numpy, [-(2**62) - 1])


def test_inputs_are_converted_to_their_promoted_dtype_first() -> None:
    found = LOCAL.run(mul, np.array([1], np.float16), np.array([2049]))
    assert (found.dtype, found.tolist()) == (np.float16, [2048])
    found = LOCAL.run(mul, np.array([200], np.uint8), np.array([-2], np.int8))
    assert (found.dtype, found.tolist()) == (np.int16, [-400])


def test_complex_numbers_are_multiplied_as_such() -> None:
    found = LOCAL.run(mul, np.array([1 + 2j]), np.array([3 - 1j], np.complex64))
    assert (found.dtype, found.tolist()) == (np.complex128, [5 + 5j])

"""aclnnSilu: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.silu import silu
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import Fault, Table, dtype, null, shape
from .gradients import INF, LOCAL, NAN, assert_rounded
from .subject import WITH_BF16, Cells, Subject, aten_of, between

# The checks, in order [src:silu]
TABLE = Table(
    silu,
    {},
    [
        *null("self", "out"),
        *dtype(INT32, "self", "out"),
        *dtype(FLOAT16, "out"),
        Fault({"self": {"dtype": BF16}}, DTypeError, ("out",)),
        *shape((4, 3), "self"),
        Fault({"out": {"shape": (3, 2)}}, ShapeError, ("self",)),
    ],
)
# x, expected
CELLS = [
    (0.0, 0.0),
    (-0.0, -0.0),
    (200.0, 200.0),
    (-200.0, 0.0),
    (60000.0, 60000.0),
    (-60000.0, 0.0),
    (INF, INF),
    (-INF, NAN),  # as torch
    (NAN, NAN),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    # A product without BF16 refuses it there: below.
    unreachable=frozenset({"dtype of self and out is one that the product takes"}),
    values={"self": between(-20, 20)},
    cells=Cells("self", CELLS),
    torch=aten_of(silu, "silu"),
)


def test_far_below_0_a_float_keeps_what_is_left() -> None:
    x = np.linspace(-103, -80, 231, dtype=np.float32)  # below -88.7 e^-x is beyond FLOAT
    wide = x.astype(np.float64)
    expected = wide / (1 + np.exp(-wide))
    assert_rounded(LOCAL.run(silu, x), expected, np.float32, np.abs(expected))


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none_behind_the_equality(soc: str) -> None:
    both = Fault({"self": {"dtype": BF16}, "out": {"dtype": BF16}}, DTypeError, ("self",))
    assert TABLE.refusal(both, soc=soc) == both.answer
    alone = Fault({"self": {"dtype": BF16}}, DTypeError, ("out",))
    assert TABLE.refusal(alone, soc=soc) == alone.answer


def test_more_than_8_dimensions_are_taken() -> None:
    x = np.linspace(-4, 4, 512, dtype=np.float32)
    np.testing.assert_array_equal(
        LOCAL.run(silu, x.reshape((2,) * 9)).reshape(-1), LOCAL.run(silu, x)
    )


def test_a_few_results_are_those_of_torch() -> None:
    # torch 2.13, float64
    found: Any = LOCAL.run(silu, np.array([1, -1, 3, -3], np.float32))
    expected = [0.73105858, -0.26894142, 2.85772238, -0.14227762]
    np.testing.assert_allclose(found, expected, rtol=1e-6)

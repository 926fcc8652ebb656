"""aclnnHardsigmoid: prototype, values, INT32, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, DOUBLE, FLOAT16, INT32, INT64
from npucall.errors import DTypeError, FormatError, ShapeError
from npucall.operators.hardsigmoid import hardsigmoid
from npucall.products import ASCEND_910
from npucall.tensors import Format

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of

# The checks, in order [src:hardsigmoid]
TABLE = Table(
    hardsigmoid,
    {},
    [
        *null("self", "out"),
        *dtype(DOUBLE, "self"),
        *dtype(INT64, "self"),
        *shape(NINE, "self"),
        *shape((3, 2), "self"),
        Fault({"out": {"shape": (1, 3)}}, ShapeError, ("self",)),
        Fault({"out": {"dtype": FLOAT16}}, DTypeError, ("self",)),
        Fault({"self": {"dtype": INT32}}, DTypeError, ("self",)),
        Fault({"self": {"format": Format.NCHW}}, FormatError, ("self",)),
        Fault({"out": {"format": Format.NHWC}}, FormatError, ("self",)),
    ],
)
# self, result
CELLS = [
    (0.0, 0.5),
    (-0.0, 0.5),
    (1.5, 0.75),
    (-1.5, 0.25),
    (3.0, 1.0),
    (-3.0, 0.0),
    (4.0, 1.0),
    (-4.0, 0.0),
    (INF, 1.0),
    (-INF, 0.0),
    (NAN, NAN),
]


def terms(tensors: dict[str, Any], *_: Any) -> Any:
    """The size of what the formula adds up, where it cancels."""
    return np.abs(tensors["self"]) / 6 + 0.5


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910),
    newer=f"{THREE} INT32",
    older=f"{TWO} INT32",
    cells=Cells("self", CELLS),
    torch=aten_of(hardsigmoid, "hardsigmoid"),
    noise=terms,
)


def test_int32_is_1_from_3_on_and_else_0() -> None:
    x = np.array([-(2**31), -3, -1, 0, 1, 2, 3, 4, 2**24 + 1, 2**31 - 1], np.int32)
    found = LOCAL.run(hardsigmoid, x)
    assert found.dtype == np.int32
    assert found.tolist() == [0] * 6 + [1] * 4


def test_int32_is_so_in_a_call_of_several_blocks_too() -> None:
    x = np.random.default_rng(1).integers(-9, 9, 200_000).astype(np.int32)
    np.testing.assert_array_equal(LOCAL.run(hardsigmoid, x), x >= 3)


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none(soc: str) -> None:
    fault = Fault({"self": {"dtype": BF16}}, DTypeError, ("self",))
    assert TABLE.refusal(fault, soc=soc) == fault.answer

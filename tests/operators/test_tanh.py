"""aclnnTanh: prototype, values, integers, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, INT32, UINT16
from npucall.errors import DTypeError, FormatError, ShapeError
from npucall.operators.tanh import tanh
from npucall.products import ASCEND_910
from npucall.tensors import Format

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of

PRIVATE = {"format": Format.FRACTAL_NZ}
# The checks, in order [src:tanh]
TABLE = Table(
    tanh,
    {},
    [
        *null("self", "out"),
        *dtype(DOUBLE, "self"),
        *dtype(UINT16, "self"),
        *dtype(DOUBLE, "out"),
        *dtype(INT32, "out"),  # in the list, but nothing can be cast to it
        *dtype(BOOL, "out"),
        Fault({"self": {"format": Format.NCHW}}, FormatError, ("self",)),
        Fault({"out": PRIVATE}, FormatError, ("self",)),
        Fault({"self": PRIVATE, "out": PRIVATE}, FormatError, ("self",)),
        *shape(NINE, "self"),
        *shape((3, 2), "self"),
        Fault({"out": {"shape": (1, 3)}}, ShapeError, ("self",)),
    ],
)
INTEGERS = "INT8 INT16 INT32 INT64 UINT8 BOOL"
# self, result
CELLS = [
    (0.0, 0.0),
    (-0.0, -0.0),
    (INF, 1.0),
    (-INF, -1.0),
    (50.0, 1.0),
    (-10000.0, -1.0),
    (2.0**-13, 2.0**-13),
    (NAN, NAN),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910),
    newer=f"{THREE} {INTEGERS}",
    older=f"{TWO} {INTEGERS}",
    typed=("self",),
    cells=Cells("self", CELLS),
    torch=aten_of(tanh, "tanh"),
    casts=FLOATS,
)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_])
def test_integers_are_computed_in_float(kind: Any) -> None:
    x = np.array([0, 1, 3]).astype(kind)
    answer = LOCAL.execute(tanh, x)
    assert answer.kernel_dtype is FLOAT
    assert answer.value.dtype == np.float32
    np.testing.assert_allclose(answer.value, np.tanh(x.astype(np.float64)), rtol=2**-22)


def test_integers_are_rounded_to_float_and_only_then_to_the_output() -> None:
    x = np.arange(-4, 5)
    given = LOCAL.options(outputs={"out": np.empty(x.shape, np.float16)})
    answer = given.execute(tanh, x)
    assert answer.kernel_dtype is FLOAT
    np.testing.assert_array_equal(answer.value, LOCAL.run(tanh, x).astype(np.float16))


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
@pytest.mark.parametrize("name", ["self", "out"])
def test_bf16_is_refused_where_the_product_has_none(soc: str, name: str) -> None:
    fault = Fault({name: {"dtype": BF16}}, DTypeError, (name,))
    assert TABLE.refusal(fault, soc=soc) == fault.answer


@pytest.mark.torch
def test_far_out_and_near_0_it_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    x = np.concatenate([np.linspace(-12, 12, 999), np.logspace(-30, 0, 99)]).astype(np.float32)
    expected = torch.tanh(torch.tensor(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(LOCAL.run(tanh, x), expected, rtol=2**-22)

"""aclnnGelu: prototype, values against torch's tanh form, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, FLOAT16, INT32
from npucall.errors import DTypeError, FormatError
from npucall.operators.gelu import gelu
from npucall.operators.gelu_v2 import gelu_v2
from npucall.products import ASCEND_310P, ASCEND_910
from npucall.tensors import Format

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import INF, LOCAL, NAN, assert_rounded
from .subject import WITH_BF16, Cells, Subject, aten_of

# The checks, in order [src:gelu]
TABLE = Table(
    gelu,
    {},
    [
        *null("self", "out"),
        *dtype(INT32, "self"),
        *dtype(FLOAT16, "out"),
        Fault({"self": {"dtype": BF16}}, DTypeError, ("out",)),
        *(
            Fault({name: {"format": Format.FRACTAL_NZ}}, FormatError, (name,))
            for name in ("self", "out")
        ),
        *shape(NINE, "self"),
        *shape((3, 2), "out"),
    ],
)
# x, expected
CELLS = [
    (0.0, 0.0),
    (-0.0, -0.0),
    (100.0, 100.0),
    (-100.0, 0.0),
    (60000.0, 60000.0),
    (-60000.0, 0.0),
    (INF, INF),
    (-INF, NAN),  # as torch
    (NAN, NAN),
]


def terms(tensors: dict[str, Any], result: Any) -> Any:
    """The result, and how much the rounding of 2 u changes it."""
    x = tensors["self"]
    return np.abs(result) * (1 + np.abs(1.6 * x * (1 + 0.045 * x * x)))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=frozenset({"self not BF16 where the product has none"}),
    cells=Cells("self", CELLS),
    torch=aten_of(gelu, "gelu", approximate="tanh"),
    noise=terms,
)


def test_far_below_0_a_float_keeps_its_digits() -> None:
    x = np.linspace(-8, -5, 301, dtype=np.float32)
    wide = x.astype(np.float64)
    u = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    expected = wide / (1 + np.exp(-2 * u))
    assert_rounded(LOCAL.run(gelu, x), expected, np.float32, terms({"self": wide}, expected))


def test_no_step_overflows_for_the_largest_float() -> None:
    x = np.array([1e20, -1e20, 3e38, -3e38], np.float32)
    np.testing.assert_array_equal(LOCAL.run(gelu, x), [x[0], 0, x[2], 0])


def test_it_is_the_tanh_form_of_version_2() -> None:
    x = np.linspace(-5, 5, 101, dtype=np.float32)
    found = LOCAL.run(gelu, x)
    np.testing.assert_array_equal(found, LOCAL.run(gelu_v2, x, approximate=1))
    assert (found != LOCAL.run(gelu_v2, x, approximate=0)).any()


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_first_where_the_product_has_none(soc: str) -> None:
    alone = Fault({"self": {"dtype": BF16}}, DTypeError, ("self",))
    assert TABLE.refusal(alone, soc=soc) == alone.answer
    out = Fault({"out": {"dtype": BF16}}, DTypeError, ("out",))
    assert TABLE.refusal(out, soc=soc) == out.answer

"""aclnnGeluV2: prototype, both forms against torch, edges, and its checks in order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, FLOAT, FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.gelu_v2 import gelu_v2
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import Fault, Table, dtype, null, shape
from .gradients import INF, LOCAL, NAN, assert_rounded
from .subject import WITH_BF16, Cells, Subject, every

BOTH_INT32 = {"x": {"dtype": INT32}, "y": {"dtype": INT32}}
# The checks, in order [src:gelu]
TABLE = Table(
    gelu_v2,
    {"approximate": 0},
    [
        *null("x", "y"),
        *dtype(FLOAT16, "y"),
        Fault({"x": {"dtype": BF16}}, DTypeError, ("y",)),
        Fault(BOTH_INT32, DTypeError, ("x",)),
        *shape((3, 2), "y"),
        Fault({"x": {"shape": (4, 3)}}, ShapeError, ("y",)),
    ],
)
# approximate, x, expected
CELLS = [
    (form, x, expected)
    for form in (0, 1)
    for x, expected in [
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
]


def torchs(tensors: dict[str, Any], approximate: int) -> Any:
    import torch

    form = "tanh" if approximate == 1 else "none"
    return torch.nn.functional.gelu(torch.tensor(tensors["x"]), approximate=form).numpy()


def terms(tensors: dict[str, Any], result: Any, approximate: int) -> Any:
    """The result, and how much the rounding of 2 u changes it; the other form is in float64."""
    x = tensors["x"]
    return np.abs(result) * (1 + np.abs(1.6 * x * (1 + 0.045 * x * x))) * (approximate == 1)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* x, int64_t approximate, aclTensor* y",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=frozenset({"x not BF16 where the product has none"}),
    attributes={"approximate": 0},
    cells=Cells("approximate x", CELLS),
    torch=torchs,
    calls=every(approximate=(0, 1, 2, -1)),
    noise=terms,
)


def test_the_form_with_erf_is_that_unless_another_is_asked_for() -> None:
    x = np.linspace(-4, 4, 101, dtype=np.float32)
    found = LOCAL.run(gelu_v2, x)
    expected = [float(v) / 2 * math.erfc(-float(v) / math.sqrt(2)) for v in x]
    assert_rounded(found, expected, np.float32)
    np.testing.assert_array_equal(found, LOCAL.run(gelu_v2, x, approximate=0))


def test_far_below_0_a_float_keeps_its_digits() -> None:
    x = np.linspace(-13, -5, 301, dtype=np.float32)
    expected = [float(v) / 2 * math.erfc(-float(v) / math.sqrt(2)) for v in x]
    assert_rounded(LOCAL.run(gelu_v2, x), expected, np.float32)


@pytest.mark.parametrize("approximate", [2, -1, 2**40])
def test_another_number_than_0_and_1_acts_as_0_with_a_warning(approximate: int) -> None:
    x = np.linspace(-4, 4, 101, dtype=np.float32)
    answer = LOCAL.execute(gelu_v2, x, approximate=approximate)
    (message,) = answer.warnings
    assert message.startswith("approximate:")
    np.testing.assert_array_equal(answer.value, LOCAL.run(gelu_v2, x, approximate=0))


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none_behind_the_equality(soc: str) -> None:
    both = Fault({"x": {"dtype": BF16}, "y": {"dtype": BF16}}, DTypeError, ("x",))
    assert TABLE.refusal(both, soc=soc) == both.answer
    beside = Fault({"x": {"dtype": BF16}, "y": {"dtype": FLOAT}}, DTypeError, ("y",))
    assert TABLE.refusal(beside, soc=soc) == beside.answer


def test_more_than_8_dimensions_are_taken() -> None:
    x = np.linspace(-4, 4, 512, dtype=np.float32)
    found = LOCAL.run(gelu_v2, x.reshape((2,) * 9))
    np.testing.assert_array_equal(found.reshape(-1), LOCAL.run(gelu_v2, x))

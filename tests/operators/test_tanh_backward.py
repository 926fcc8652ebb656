"""aclnnTanhBackward: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import (
    FLOATS,
    INF,
    NAN,
    aten,
    drawn,
    run,
    wide,
)
from .gradients import TANH as OPERATOR
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, between

# The checks, in order [src:tanh]
TABLE = Table(
    OPERATOR,
    {},
    [
        *null("grad_output", "output", "grad_input"),
        *dtype(INT32, "grad_output", "output", "grad_input"),
        Fault({"grad_output": {"dtype": FLOAT16}}, DTypeError, ("grad_output",)),
        Fault({"output": {"dtype": DOUBLE}}, DTypeError, ("grad_output",)),
        Fault({"grad_input": {"dtype": BF16}}, DTypeError, ("grad_output",)),
        *shape(NINE, "grad_output", "output"),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "output")),
        Fault({"output": {"shape": (5, 3)}}, ShapeError, ("grad_output", "output")),
        *shape((3, 2), "grad_input"),
    ],
)


def torchs(g: Any, y: Any) -> Any:
    return aten("tanh_backward", g, y)


# g, y, expected
CELLS = [
    (2.0, 0.0, 2.0),
    (2.0, 0.5, 1.5),
    (2.0, -0.5, 1.5),
    (2.0, 1.0, 0.0),
    (2.0, -1.0, 0.0),
    (2.0, 2.0, -6.0),
    (2.0, INF, -INF),
    (2.0, -INF, -INF),
    (0.0, INF, NAN),
    (2.0, NAN, NAN),
    (INF, 0.5, INF),
    (INF, 1.0, NAN),
    (NAN, 1.0, NAN),
]


def terms(tensors: dict[str, Any], *_: Any) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    g, y = (np.abs(array) for array in tensors.values())
    return g * (1 + y * y)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* output, aclTensor* gradInput",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    values={"output": between(-1.5, 1.5)},
    cells=Cells("grad_output output", CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(OPERATOR, "tanh_backward"),
    noise=terms,
    stretches=True,
)


@pytest.mark.parametrize("sign", [1, -1])
def test_near_1_a_float_keeps_its_digits(sign: int) -> None:
    y = sign * (1 - np.arange(1, 200, dtype=np.float32) * 2.0**-24)
    y = y.astype(np.float32)
    (exactly,) = wide(y)
    found = run(OPERATOR, np.ones_like(y), y)
    np.testing.assert_allclose(found, 1 - exactly * exactly, rtol=2.0**-23)


@pytest.mark.torch
def test_double_is_computed_in_float64() -> None:
    g, y = drawn((40, 50), (40, 50), largest=1)
    found = run(OPERATOR, g, y)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, torchs(g, y), rtol=1e-11)


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
@pytest.mark.parametrize("name", ["grad_output", "output", "grad_input"])
def test_bf16_is_refused_where_the_product_has_none(soc: str, name: str) -> None:
    fault = Fault({name: {"dtype": BF16}}, DTypeError, (name,))
    assert TABLE.refusal(fault, soc=soc) == fault.answer

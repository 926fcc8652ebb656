"""aclnnGeluBackward: prototype, values against torch's tanh form, edges, its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT32, UINT16
from npucall.errors import DTypeError, ShapeError
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import INVALID, NINE, Fault, Table, dtype, null, shape
from .gradients import BF16 as BFLOAT16
from .gradients import (
    FLOATS,
    GELU_V2,
    INF,
    NAN,
    assert_rounded,
    drawn,
    run,
)
from .gradients import GELU as OPERATOR
from .subject import WITH_BF16, Cells, Subject, aten_of, between, exactly

# The checks, in order [src:gelu]; the service's own check of grad_input's dtype comes last
TABLE = Table(
    OPERATOR,
    {},
    [
        *null("grad_output", "self", "grad_input"),
        Fault({"grad_output": {"dtype": UINT16}}, DTypeError, ("grad_output", "self")),
        Fault({"self": {"dtype": UINT16}}, DTypeError, ("grad_output", "self")),
        Fault({"grad_output": {"dtype": DOUBLE}}, DTypeError, ("grad_output", "self")),
        Fault({"self": {"dtype": COMPLEX64}}, DTypeError, ("grad_output", "self")),
        *shape(NINE, "grad_output", "self"),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        *shape((3, 2), "grad_input"),
        *dtype(INT32, "grad_input"),
        *dtype(BOOL, "grad_input"),
    ],
)


# g, x, expected
CELLS = [
    (3.0, 0.0, 1.5),
    (3.0, -0.0, 1.5),
    (2.0, 100.0, 2.0),
    (2.0, -100.0, 0.0),
    (2.0, 60000.0, 2.0),
    (2.0, -60000.0, 0.0),
    (2.0, INF, NAN),  # as torch
    (2.0, -INF, NAN),
    (2.0, NAN, NAN),
    (NAN, 1.0, NAN),
    (INF, 1.0, INF),
    (INF, -1.0, -INF),
    (INF, -100.0, NAN),
    (0.0, 1.0, 0.0),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* gradInput",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=frozenset({"promotion not BF16 where the product has none"}),
    values={"self": between(-4, 4)},
    cells=Cells("grad_output self", CELLS),
    torch=aten_of(OPERATOR, "gelu_backward", approximate="tanh"),
    noise=exactly,
    casts=(*FLOATS, np.float64, np.complex64, np.complex128),
    stretches=True,
)


def test_far_below_0_a_float_keeps_its_digits() -> None:
    x = np.linspace(-8, -5, 301, dtype=np.float32)
    u = np.sqrt(2 / np.pi) * (x.astype(np.float64) + 0.044715 * x.astype(np.float64) ** 3)
    # (1 + tanh u) / 2 = e^2u / (1 + e^2u), and its derivative by u is 2 e^2u / (1 + e^2u)^2
    power = np.exp(2 * u)
    slope = np.sqrt(2 / np.pi) * (1 + 0.134145 * x.astype(np.float64) ** 2)
    expected = power / (1 + power) + 2 * x * power / (1 + power) ** 2 * slope
    assert_rounded(run(OPERATOR, np.ones_like(x), x), expected, np.float32)


def test_no_step_overflows_for_the_largest_float() -> None:
    x = np.array([1e20, -1e20, 3e38, -3e38], np.float32)
    np.testing.assert_array_equal(run(OPERATOR, np.ones_like(x), x), [1, 0, 1, 0])


def test_it_is_the_tanh_form_of_version_2() -> None:
    g, x = drawn((4, 6), (4, 6), dtype=np.float32)
    found = run(OPERATOR, g, x)
    np.testing.assert_array_equal(found, run(GELU_V2, g, x, approximate="tanh"))
    assert (found != run(GELU_V2, g, x, approximate="none")).any()


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_as_promoted_dtype_where_the_product_has_none(soc: str) -> None:
    inputs = ("grad_output", "self")
    changes = {name: {"dtype": BF16} for name in (*inputs, "grad_input")}
    assert TABLE.refusal(Fault(changes, DTypeError, inputs), soc=soc) == (
        DTypeError,
        INVALID,
        inputs,
    )


@pytest.mark.parametrize("other", [FLOAT, FLOAT16])
@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_beside_another_float_is_computed_in_float_everywhere(soc: str, other: Any) -> None:
    changes = {"grad_output": {"dtype": BF16}, "self": {"dtype": other}}
    assert TABLE.refusal(Fault(changes, DTypeError, ()), soc=soc) is None


@pytest.mark.parametrize(
    ("of_g", "of_x", "expected"),
    [
        (np.float16, BFLOAT16, np.float32),
        (np.float16, np.float32, np.float32),
        (np.int32, np.float16, np.float16),
        (BFLOAT16, np.int64, BFLOAT16),
        (np.bool_, np.float32, np.float32),
    ],
)
def test_the_result_has_the_promoted_dtype(of_g: Any, of_x: Any, expected: Any) -> None:
    g, x = np.ones(3, of_g), np.ones(3, of_x)
    found = run(OPERATOR, g, x)
    assert found.dtype == expected
    np.testing.assert_array_equal(found, run(OPERATOR, *(a.astype(expected) for a in (g, x))))

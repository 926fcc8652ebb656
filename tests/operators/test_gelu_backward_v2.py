"""aclnnGeluBackwardV2: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, COMPLEX64, DOUBLE, FLOAT, FLOAT16, UINT16
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import INVALID, NINE, Fault, Table, dtype, null, shape
from .gradients import BF16 as BFLOAT16
from .gradients import GELU_V2 as OPERATOR
from .gradients import (
    INF,
    NAN,
    assert_rounded,
    aten,
    drawn,
    exact,
    run,
)
from .subject import WITH_BF16, Cells, Subject, between, every, exactly

FORMS = ("none", "tanh")
# The checks, in order [src:gelu]
TABLE = Table(
    OPERATOR,
    {"approximate": "none"},
    [
        *null("grad_output", "self", "grad_input", "approximate"),
        Fault({"grad_output": {"dtype": UINT16}}, DTypeError, ("grad_output", "self")),
        Fault({"self": {"dtype": UINT16}}, DTypeError, ("grad_output", "self")),
        Fault({"grad_output": {"dtype": DOUBLE}}, DTypeError, ("grad_output", "self")),
        Fault({"self": {"dtype": COMPLEX64}}, DTypeError, ("grad_output", "self")),
        *dtype(FLOAT16, "grad_input"),
        *dtype(DOUBLE, "grad_input"),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        *shape((3, 2), "grad_input"),
        *(
            Fault({"approximate": text}, AttributeValueError, ("approximate",))
            for text in ("", "erf", "TANH", "tanh ")
        ),
    ],
)
forms = pytest.mark.parametrize("form", FORMS)


def torchs(g: Any, x: Any, form: str) -> Any:
    return aten("gelu_backward", g, x, approximate=form)


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


def torch_gradient(tensors: dict[str, Any], approximate: str) -> Any:
    return torchs(*tensors.values(), approximate)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    ("const aclTensor* gradOutput, const aclTensor* self, char* approximate, aclTensor* gradInput"),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=frozenset({"promotion not BF16 where the product has none"}),
    attributes={"approximate": "none"},
    values={"self": between(-4, 4)},
    cells=Cells("approximate grad_output self", [(form, *row) for form in FORMS for row in CELLS]),
    torch=torch_gradient,
    calls=every(approximate=FORMS),
    noise=exactly,
    stretches=True,
)


def test_far_below_0_a_float_keeps_its_digits() -> None:
    x = np.linspace(-13, -4, 901, dtype=np.float32)
    expected = [
        0.5 * math.erfc(-v / math.sqrt(2)) + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi)
        for v in map(float, x)
    ]
    assert_rounded(run(OPERATOR, np.ones_like(x), x), expected, np.float32)


@pytest.mark.torch
@forms
def test_edge_values_are_torchs(form: str) -> None:
    g, x = np.full(3, 2.0), np.array([INF, -INF, NAN])
    found = exact(OPERATOR, g, x, approximate=form)
    np.testing.assert_array_equal(found, torchs(g, x, form))


def test_without_a_form_it_is_the_one_with_erf() -> None:
    g, x = drawn((4, 6), (4, 6), dtype=np.float32)
    expected = run(OPERATOR, g, x, approximate="none")
    np.testing.assert_array_equal(run(OPERATOR, g, x), expected)


def test_any_rank_is_taken() -> None:
    changes = {name: {"shape": NINE} for name in ("grad_output", "self", "grad_input")}
    assert TABLE.refusal(Fault(changes, ShapeError, ())) is None


@pytest.mark.parametrize("text", ["erf", None])
def test_the_form_is_checked_before_an_empty_input_ends_the_checks(text: Any) -> None:
    empty = {name: {"shape": (0, 3)} for name in ("grad_output", "self", "grad_input")}
    assert TABLE.refusal(Fault({**empty, "approximate": text}, ShapeError, ())) is not None
    assert TABLE.refusal(Fault(empty, ShapeError, ())) is None


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

"""aclnnEluBackward: prototype, values, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, COMPLEX128, DOUBLE, DTYPES, FLOAT16, INT32
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.elu_backward import elu_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import INVALID, NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import WITH_BF16, Cells, Subject, aten_of, every, steps

NUMBERS = ("alpha", "scale", "input_scale")
ONE, BELOW_0 = Scalar(DOUBLE, 1.0), Scalar(DOUBLE, -0.5)

# The checks, in order [src:elu]
TABLE = Table(
    elu_backward,
    {"alpha": ONE, "scale": ONE, "input_scale": ONE, "is_result": False},
    [
        *null("grad_output", *NUMBERS, "self_or_result", "grad_input"),
        *dtype(FLOAT16, "grad_output"),
        Fault({"self_or_result": {"dtype": BF16}}, DTypeError, ("grad_output",)),
        Fault(
            {"grad_output": {"dtype": DOUBLE}, "self_or_result": {"dtype": DOUBLE}},
            DTypeError,
            ("grad_output",),
        ),
        *(Fault({name: Scalar(COMPLEX64, 1)}, DTypeError, (name,)) for name in NUMBERS),
        *dtype(INT32, "grad_input"),
        *dtype(BOOL, "grad_input"),
        *shape((3, 2), "self_or_result", "grad_input"),
        Fault(
            {n: {"shape": NINE} for n in ("grad_output", "self_or_result", "grad_input")},
            ShapeError,
            ("grad_output",),
        ),
        Fault({"is_result": True, "alpha": BELOW_0}, AttributeValueError, ("alpha", "is_result")),
    ],
)
E2 = float(np.exp(2.0))
# self_or_result, alpha, scale, input_scale, is_result, grad_output, result
CELLS = [
    (2.0, 0.5, 3.0, 0.25, False, 4.0, 12.0),  # g * scale
    (2.0, 0.5, 3.0, 0.25, True, 4.0, 12.0),
    (0.0, 0.5, 3.0, 0.25, False, 4.0, 1.5),  # g * input_scale * alpha * scale: the negative part
    (-0.0, 0.5, 3.0, 0.25, True, 4.0, 1.5),
    (-1.0, 0.5, 3.0, 0.25, True, 4.0, 0.5),  # g * input_scale * (x + alpha * scale)
    (-2.0, 0.5, 3.0, -1.0, False, 4.0, -6 * E2),  # the exponent is 2
    (-INF, 0.5, 3.0, 0.25, False, 4.0, 0.0),
    (-INF, 0.5, 3.0, 0.25, True, 4.0, -INF),
    (INF, 0.5, 3.0, 0.25, False, 4.0, 12.0),
    (NAN, 0.5, 3.0, 0.25, False, 4.0, 12.0),  # g * scale
    (NAN, 0.5, 3.0, 0.25, True, 4.0, 12.0),
    (-1.0, 0.0, 3.0, 0.25, False, INF, NAN),
    (2.0, NAN, 3.0, NAN, False, 4.0, 12.0),
    (-1.0, 0.5, 3.0, 0.25, True, NAN, NAN),
]


def gradient(g: Any, x: Any, *numbers: Any, is_result: bool = False) -> Any:
    return LOCAL.run(elu_backward, g, *numbers, is_result, x)


def terms(tensors: dict[str, Any], expected: Any, *, is_result: bool, **_: Any) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    g, x = np.abs(tensors["grad_output"]), np.abs(tensors["self_or_result"])
    return g * (1 + x) if is_result else np.abs(expected)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclScalar* alpha, const aclScalar* scale, "
        "const aclScalar* inputScale, bool isResult, const aclTensor* selfOrResult, "
        "aclTensor* gradInput"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    attributes={**dict.fromkeys(NUMBERS, 1.0), "is_result": False},
    values={"self_or_result": steps(255)},
    cells=Cells("self_or_result alpha scale input_scale is_result grad_output", CELLS),
    torch=aten_of(elu_backward, "elu_backward"),
    calls=(
        *every(is_result=(False, True)),
        *every(alpha=(1.5,), scale=(0.75,), input_scale=(0.5,), is_result=(False, True)),
        *every(alpha=(-1.5,), scale=(2.0,), input_scale=(0.25,)),
    ),
    noise=terms,
    casts=(*FLOATS, np.float64, np.complex64),
)


@pytest.mark.parametrize("x", [-3.0, -0.5, -0.0, 0.0, 0.75, 5.0])
def test_the_result_of_the_forward_operator_serves_as_well_as_its_input(x: float) -> None:
    alpha, scale, input_scale = 1.5, 0.75, 0.5
    negative = scale * alpha * np.expm1(x * input_scale)
    result = np.array([scale * x if x > 0 else negative], np.float32)
    one = np.ones(1, np.float32)
    of_result = gradient(one, result, alpha, scale, input_scale, is_result=True)
    of_input = gradient(one, one * np.float32(x), alpha, scale, input_scale)
    np.testing.assert_allclose(of_result, of_input, rtol=2**-21)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_used_as_a_float32(name: str) -> None:
    numbers = dict.fromkeys(NUMBERS, 1.0) | {name: 0.1}
    rounded = {n: float(np.float32(value)) for n, value in numbers.items()}
    x = np.array([-1.0, 1.0], np.float32)
    found = gradient(x, x, *numbers.values())
    np.testing.assert_array_equal(found, gradient(x, x, *rounded.values()))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_may_have_every_dtype_but_a_complex_one(name: str) -> None:
    faults = {kind: Fault({name: Scalar(kind, 1)}, DTypeError, (name,)) for kind in DTYPES}
    refused = {kind for kind, fault in faults.items() if TABLE.refusal(fault)}
    assert refused == {COMPLEX64, COMPLEX128}


@pytest.mark.parametrize(
    ("alpha", "is_result", "refused"),
    [
        (-0.5, False, False),
        (-0.5, True, True),
        (0.0, True, False),
        (NAN, True, False),
        (-1e-60, True, False),  # 0 as a float32
        (-INF, True, True),
    ],
)
def test_an_alpha_below_0_is_refused_for_a_result_only(
    alpha: float, is_result: bool, refused: bool
) -> None:
    changes = {"alpha": Scalar(DOUBLE, alpha), "is_result": is_result}
    blamed = ("alpha", "is_result")
    answer = (AttributeValueError, INVALID, blamed) if refused else None
    assert TABLE.refusal(Fault(changes, AttributeValueError, blamed)) == answer

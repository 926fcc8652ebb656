"""aclnnEluBackward: prototype, values, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, COMPLEX128, DOUBLE, DTYPES, FLOAT16, INT32
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.elu_backward import elu_backward

from .activations import FLOATS, LOCAL, short
from .faults import INVALID, NINE, Fault, Table, dtype, null, shape

INF, NAN = np.inf, np.nan
NUMBERS = ("alpha", "scale", "input_scale")
ONE, BELOW_0 = Scalar(DOUBLE, 1.0), Scalar(DOUBLE, -0.5)

# operators.md 2.3, in order
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


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.2
    assert elu_backward.prototype == (
        "aclnnStatus aclnnEluBackwardGetWorkspaceSize("
        "const aclTensor* gradOutput, const aclScalar* alpha, const aclScalar* scale, "
        "const aclScalar* inputScale, bool isResult, const aclTensor* selfOrResult, "
        "aclTensor* gradInput, uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("kind", FLOATS, ids=short)
@pytest.mark.parametrize(
    ("x", "alpha", "scale", "input_scale", "is_result", "g", "expected"), CELLS
)
def test_each_element_is_what_the_formula_says(
    kind: Any, x: float, alpha: float, scale: float, input_scale: float, is_result: bool, g: float,
    expected: float,
) -> None:  # fmt: skip
    tensors = (np.array([1, v, 1], kind) for v in (g, x))
    found = gradient(*tensors, alpha, scale, input_scale, is_result=is_result)
    rounded = np.array([scale, expected, scale]).astype(kind).astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), rounded)


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


@pytest.mark.parametrize("kind", [*FLOATS, np.float64, np.complex64], ids=short)
def test_the_result_is_cast_to_the_dtype_of_the_output(kind: Any) -> None:
    out = np.zeros(2, kind)
    x = np.array([-1, 1], np.float16)
    client = LOCAL.options(outputs={"grad_input": out})
    client.run(elu_backward, x, 0.5, 1.0, 2.0, True, x)
    np.testing.assert_array_equal(out, np.array([1, 1], kind))  # -1 * 2 * (-1 + 0.5)


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


@pytest.mark.parametrize("fault", TABLE.faults, ids=str)
def test_a_defect_is_refused_with_its_class_status_and_parameter(fault: Fault) -> None:
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize(("first", "second"), TABLE.pairs(), ids=str)
def test_of_two_defects_the_one_that_is_checked_first_is_the_answer(
    first: Fault, second: Fault
) -> None:
    assert TABLE.refusal(first, second) == first.answer


def test_the_table_has_a_defect_for_every_check() -> None:
    assert TABLE.refusing() == TABLE.may_refuse()

"""aclnnHardsigmoidBackward: prototype, values, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BOOL, DOUBLE, INT32
from npucall.errors import ShapeError
from npucall.operators.hardsigmoid_backward import hardsigmoid_backward

from .activations import FLOATS, LOCAL, short
from .faults import NINE, Fault, Table, dtype, null, shape

INF, NAN = np.inf, np.nan

# operators.md 2.3, in order
TABLE = Table(
    hardsigmoid_backward,
    {},
    [
        *null("grad_output", "self", "out"),
        *dtype(DOUBLE, "grad_output", "self"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *shape(NINE, "grad_output", "self", "out"),
        *shape((3, 2), "self"),
        Fault({"grad_output": {"shape": (1, 3)}}, ShapeError, ("self",)),
        Fault({"out": {"shape": (3, 2)}}, ShapeError, ("self",)),
    ],
)
SIXTH = float(np.float32(1 / 6))
# self, grad_output, result
CELLS = [
    (0.0, 6.0, 6 * SIXTH),
    (-0.0, 6.0, 6 * SIXTH),
    (2.984375, -6.0, -6 * SIXTH),  # a number of BF16
    (-2.984375, 6.0, 6 * SIXTH),
    (3.0, 6.0, 0.0),
    (-3.0, 6.0, 0.0),
    (4.0, 6.0, 0.0),
    (INF, 6.0, 0.0),
    (-INF, 6.0, 0.0),
    (NAN, 6.0, 0.0),
    (0.0, INF, INF),
    (0.0, NAN, NAN),
    (4.0, INF, 0.0),
    (NAN, NAN, 0.0),
]


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.2
    assert hardsigmoid_backward.prototype == (
        "aclnnStatus aclnnHardsigmoidBackwardGetWorkspaceSize("
        "const aclTensor* gradOutput, const aclTensor* self, aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("kind", FLOATS, ids=short)
@pytest.mark.parametrize(("x", "g", "expected"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, x: float, g: float, expected: float
) -> None:
    found = LOCAL.run(hardsigmoid_backward, np.array([0, g, 0], kind), np.array([4, x, 4], kind))
    rounded = np.array([0, expected, 0]).astype(kind).astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), rounded)


def test_the_largest_float_below_3_has_a_gradient_as_on_atlas_a2() -> None:
    x = np.nextafter(np.float32([3, -3]), np.float32(0))
    found = LOCAL.run(hardsigmoid_backward, np.ones(2, np.float32), x)
    np.testing.assert_array_equal(found, np.float32([SIXTH, SIXTH]))


def test_inputs_of_two_dtypes_are_computed_and_answered_in_the_promoted_one() -> None:
    g, x = np.array([1], np.float16), np.array([1], FLOATS[2])
    found = LOCAL.run(hardsigmoid_backward, g, x)
    assert found.dtype == np.float32
    assert found == np.float32(SIXTH)


@pytest.mark.parametrize("kind", [*FLOATS, np.float64, np.complex64], ids=short)
def test_the_result_is_cast_to_the_dtype_of_the_output(kind: Any) -> None:
    out = np.zeros(1, kind)
    x = np.ones(1, np.float16)
    LOCAL.options(outputs={"out": out}).run(hardsigmoid_backward, x, x)
    np.testing.assert_array_equal(out, np.array([np.float16(SIXTH)]).astype(kind))


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

"""aclnnHardswishBackward and its V2: prototypes, values, and their checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, DOUBLE, FLOAT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.hardswish_backward import hardswish_backward
from npucall.operators.hardswish_backward_v2 import hardswish_backward_v2

from .activations import FLOATS, LOCAL, short
from .faults import NINE, Fault, Table, dtype, null, shape

INF, NAN = np.inf, np.nan


def table(operator: Any, *listed: str) -> Table:
    """operators.md 2.3, in order; the two differ in the order of the dtypes' list."""
    return Table(
        operator,
        {},
        [
            *null("grad_output", "self", "out"),
            *dtype(DOUBLE, *listed),
            *dtype(FLOAT16, "grad_output"),
            Fault({"self": {"dtype": BF16}}, DTypeError, ("grad_output",)),
            *dtype(FLOAT16, "out"),
            *shape(NINE, "grad_output", "self"),
            *shape((3, 2), "grad_output"),
            Fault({"self": {"shape": (1, 3)}}, ShapeError, ("grad_output",)),
            *shape((3, 2), "out"),
        ],
    )


TABLES = [
    table(hardswish_backward, "self", "grad_output"),
    table(hardswish_backward_v2, "grad_output", "self"),
]
ROWS = [
    pytest.param(t, fault, id=f"{t.operator.name} {fault}") for t in TABLES for fault in t.faults
]
PAIRS = [
    pytest.param(t, *pair, id=f"{t.operator.name} {pair[0]} before {pair[1]}")
    for t in TABLES
    for pair in t.pairs()
]
# self, grad_output, result, result of V2
CELLS = [
    (-4.0, 2.0, 0.0, 0.0),
    (-3.0, 2.0, -1.0, 0.0),  # 2 * (-3 / 3 + 0.5)
    (-1.5, 2.0, 0.0, 0.0),
    (-0.0, 2.0, 1.0, 1.0),
    (0.75, 2.0, 1.5, 1.5),  # 2 * (0.75 / 3 + 0.5)
    (1.5, 2.0, 2.0, 2.0),
    (3.0, 2.0, 3.0, 2.0),  # 2 * (3 / 3 + 0.5)
    (4.0, 2.0, 2.0, 2.0),
    (INF, 2.0, 2.0, 2.0),
    (-INF, 2.0, 0.0, 0.0),
    (NAN, 2.0, 2.0, 2.0),
    (0.75, INF, INF, INF),
    (-4.0, INF, NAN, 0.0),  # multiplied by 0; chosen
    (-4.0, NAN, NAN, 0.0),
    (4.0, NAN, NAN, NAN),
    (-1.5, INF, NAN, NAN),
]


@pytest.mark.parametrize("version", ["", "V2"])
def test_the_prototype_is_that_of_the_documents(version: str) -> None:
    # cann-abi.md 6.2
    operator: Any = hardswish_backward_v2 if version else hardswish_backward
    assert operator.prototype == (
        f"aclnnStatus aclnnHardswishBackward{version}GetWorkspaceSize("
        "const aclTensor* gradOutput, const aclTensor* self, aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize("kind", FLOATS, ids=short)
@pytest.mark.parametrize(("x", "g", "expected", "of_v2"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, x: float, g: float, expected: float, of_v2: float
) -> None:
    for operator, value in ((hardswish_backward, expected), (hardswish_backward_v2, of_v2)):
        found = LOCAL.run(operator, np.array([1, g, 1], kind), np.array([4, x, 4], kind))
        np.testing.assert_array_equal(found.astype(np.float64), [1, value, 1])


@pytest.mark.parametrize("kind", FLOATS, ids=short)
def test_next_to_the_ends_both_versions_are_one(kind: Any) -> None:
    three = np.array([3], kind)
    step = np.array([-1, 1], np.int16 if three.itemsize == 2 else np.int32)
    beside = (three.view(step.dtype) + step).view(kind)  # the neighbours of 3
    x = np.concatenate([beside, -beside])
    first, second = (
        LOCAL.run(operator, np.ones_like(x), x).tolist()
        for operator in (hardswish_backward, hardswish_backward_v2)
    )
    assert first == second
    assert first == [pytest.approx(1.5, rel=2**-7), 1, pytest.approx(-0.5, rel=2**-5), 0]


@pytest.mark.parametrize(("table", "fault"), ROWS)
def test_a_defect_is_refused_with_its_class_status_and_parameter(
    table: Table, fault: Fault
) -> None:
    assert table.refusal(fault) == fault.answer


@pytest.mark.parametrize(("table", "first", "second"), PAIRS)
def test_of_two_defects_the_one_that_is_checked_first_is_the_answer(
    table: Table, first: Fault, second: Fault
) -> None:
    assert table.refusal(first, second) == first.answer


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.operator.name)
def test_the_table_has_a_defect_for_every_check(table: Table) -> None:
    assert table.refusing() == table.may_refuse()

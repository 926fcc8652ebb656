"""What aclnnSoftmaxBackward and aclnnLogSoftmaxBackward have in common: rows, products, empties."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.dtypes import BF16
from npucall.errors import AttributeValueError, DTypeError, ShapeError

from .faults import INVALID, Fault, Table
from .softmaxes import LOG_SOFTMAX_TABLE, SOFTMAX_TABLE

TABLES = (SOFTMAX_TABLE, LOG_SOFTMAX_TABLE)
each_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.operator.name)


def of_each(part: slice, *, shapes: bool = True) -> list[Any]:
    """The faults of a part of every table; ``shapes=False`` leaves out those of shapes."""
    return [
        pytest.param(table, fault, id=f"{table.operator.name}-{fault}")
        for table in TABLES
        for fault in table.faults[part]
        if shapes or "shape" not in str(fault.changes)
    ]


@each_table
@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
@pytest.mark.parametrize("name", ["grad_output", "output", "out"])
def test_bf16_is_refused_where_the_product_has_none(table: Table, soc: str, name: str) -> None:
    fault = Fault({name: {"dtype": BF16}}, DTypeError, (name,))
    assert table.refusal(fault, soc=soc) == fault.answer


@pytest.mark.parametrize(("table", "defect"), of_each(slice(3, None)))
@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend310P3"])
def test_one_empty_input_ends_the_checks_behind_the_nulls(
    table: Table, soc: str, defect: Fault
) -> None:
    other = "output" if "grad_output" in defect.changes else "grad_output"
    empty = Fault({other: {"shape": (0, 3)}}, ShapeError, ())
    assert table.refusal(empty, defect, soc=soc) is None


@pytest.mark.parametrize(("table", "missing"), of_each(slice(3)))
@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend950PR_9589"])
def test_a_null_counts_before_an_empty_input(table: Table, soc: str, missing: Fault) -> None:
    empty = Fault({name: {"shape": (0, 3)} for name in ("grad_output", "output")}, ShapeError, ())
    assert table.refusal(empty, missing, soc=soc) == missing.answer


@pytest.mark.parametrize(("table", "defect"), of_each(slice(3, None), shapes=False))
def test_on_ascend_950_all_checks_stand_before_the_empty_exit(table: Table, defect: Fault) -> None:
    empty = {"shape": (0, 3)}
    changes = {name: dict(empty) for name in ("grad_output", "output", "out")}
    for name, change in defect.changes.items():
        changes[name] = changes[name] | change if isinstance(change, dict) else change
    answer = table.refusal(Fault(changes, DTypeError, ()), soc="Ascend950PR_9589")
    # that "out" has a supported dtype is the service's own check, behind the exit
    assert answer == (None if defect.blamed == ("out",) else defect.answer)


@each_table
def test_on_ascend_950_one_empty_input_is_a_wrong_shape(table: Table) -> None:
    fault = Fault({"output": {"shape": (0, 3)}}, ShapeError, ("grad_output",))
    assert table.refusal(fault, soc="Ascend950PR_9589") == fault.answer


@each_table
@pytest.mark.parametrize(("dim", "passes"), [(-1, True), (0, True), (1, False), (-2, False)])
def test_rank_0_counts_as_rank_1(table: Table, dim: int, passes: bool) -> None:
    changes = {name: {"shape": ()} for name in ("grad_output", "output", "out")}
    answer = table.refusal(Fault(changes | {"dim": dim}, AttributeValueError, ("dim",)))
    assert answer == (None if passes else (AttributeValueError, INVALID, ("dim",)))

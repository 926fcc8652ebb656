"""Every row of the error tables, one defect at a time, and which of two defects is found first."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from npucall.errors import NpucallError

from . import raw
from .defects import NULL, TABLES, Defect, broken, pairs

if TYPE_CHECKING:
    from npucall_client import Client

ROWS = [
    pytest.param(*key, defect, id=f"{key[0]} {key[1]} {defect}")
    for key, table in TABLES.items()
    for defect in table
]
PAIRS = [
    pytest.param(*key, first, second, id=f"{key[0]} {key[1]} {first} before {second}")
    for key, table in TABLES.items()
    for first, second in pairs(table)
]


def assert_is(error: NpucallError, defect: Defect) -> None:
    assert type(error) is defect.error
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.aclnn_status == defect.status
    assert error.parameters == defect.blamed
    assert str(error).startswith(defect.blamed[0])


@pytest.mark.parametrize(("operator", "variant"), raw.OPERATORS)
def test_the_call_without_a_defect_passes(client: Client, operator: str, variant: str) -> None:
    assert len(raw.execute(client, operator, variant, raw.valid(operator)).storage) == 1


@pytest.mark.parametrize(("operator", "variant", "defect"), ROWS)
def test_a_defect_is_refused_with_its_class_status_and_parameter(
    client: Client, operator: str, variant: str, defect: Defect
) -> None:
    with pytest.raises(NpucallError) as caught:
        raw.execute(client, operator, variant, broken(operator, defect))
    assert_is(caught.value, defect)


@pytest.mark.parametrize(("operator", "variant", "defect"), ROWS)
def test_a_plan_refuses_a_defect_as_running_does(
    client: Client, operator: str, variant: str, defect: Defect
) -> None:
    with pytest.raises(NpucallError) as caught:
        raw.plan(client, operator, variant, broken(operator, defect))
    assert_is(caught.value, defect)


@pytest.mark.parametrize(("operator", "variant", "first", "second"), PAIRS)
def test_of_two_defects_the_one_that_the_table_lists_first_is_the_answer(
    client: Client, operator: str, variant: str, first: Defect, second: Defect
) -> None:
    with pytest.raises(NpucallError) as caught:
        raw.plan(client, operator, variant, broken(operator, first, second))
    assert_is(caught.value, first)


@pytest.mark.parametrize(("operator", "variant"), raw.OPERATORS)
def test_the_pairs_hold_every_neighbouring_rows_and_a_null_before_each(
    operator: str, variant: str
) -> None:
    table = TABLES[operator, variant]
    rows = list(dict.fromkeys(defect.row for defect in table))
    held = {(first.row, second.row) for first, second in pairs(table)}
    assert {*pairwise(rows)} <= held
    assert {("null", row) for row in rows} <= held


@pytest.mark.parametrize(("operator", "variant"), raw.OPERATORS)
def test_a_null_is_the_answer_beside_every_other_defect_at_once(
    client: Client, operator: str, variant: str
) -> None:
    everything: dict[str, Any] = {}
    for defect in TABLES[operator, variant]:
        if defect.status != NULL:
            everything |= {n: c for n, c in defect.changes.items() if n != "target"}
    merged = Defect("all", everything, NpucallError, ())
    null = next(d for d in TABLES[operator, variant] if d.changes == {"target": None})
    with pytest.raises(NpucallError) as caught:
        raw.plan(client, operator, variant, broken(operator, merged, null))
    assert_is(caught.value, null)


@pytest.mark.parametrize("name", raw.INPUTS)
@pytest.mark.parametrize(("operator", "variant"), raw.OPERATORS)
def test_an_input_that_is_not_mentioned_counts_as_a_null(
    client: Client, operator: str, variant: str, name: str
) -> None:
    arguments = raw.valid(operator)
    del arguments[name]
    with pytest.raises(NpucallError) as caught:
        raw.plan(client, operator, variant, arguments)
    assert (caught.value.aclnn_status, caught.value.parameter) == (NULL, name)


@pytest.mark.parametrize(("operator", "variant"), raw.OPERATORS)
def test_an_output_that_is_not_mentioned_is_no_null(
    client: Client, operator: str, variant: str
) -> None:
    arguments = raw.valid(operator)
    del arguments[raw.OUTPUTS[operator]]
    (output,) = raw.plan(client, operator, variant, arguments).reply.outputs
    assert output.tensor.shape == [2, 3]


@pytest.mark.parametrize(("operator", "variant"), raw.OPERATORS)
def test_an_error_names_operator_variant_phase_and_soc(
    client: Client, operator: str, variant: str
) -> None:
    defect = TABLES[operator, variant][0]
    with pytest.raises(NpucallError) as caught:
        raw.plan(client, operator, variant, broken(operator, defect))
    details = caught.value.details
    assert (details["operator"], details.get("variant", "")) == (operator, variant)
    assert details["phase"] == "prepare"
    assert details["soc"] == client.server_info().server.soc

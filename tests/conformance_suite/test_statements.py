"""Every statement: it fits its operator's declaration, and its opinions of the truth agree."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.rows import each

from npucall.declare.parameters import Attribute, Input, Output
from npucall.operators import CATALOGUE
from npucall.products import PRODUCTS
from npucall_client.conformance.cases.arrangements import Arrangement
from npucall_client.conformance.cases.blocks import cases_of
from npucall_client.conformance.cases.calls import call_of
from npucall_client.conformance.cases.case import BLOCKS
from npucall_client.conformance.cases.maker import Maker
from npucall_client.conformance.judging.check import expectation_of
from npucall_client.conformance.judging.truth import expected
from npucall_client.conformance.statements import statements
from npucall_client.conformance.stating.parts import Setup

from .servers import PARTS

if TYPE_CHECKING:
    from npucall_client.conformance.cases.case import Case
    from npucall_client.conformance.stating.statement import Statement


EACH = each("statement", statements())
NUMBERS = ("grid", "broadcast", "mixed", "layout", "empty", "edge", "reduction")
"""Blocks whose cases have numbers; those of size and determinism are like those of the grid."""


def cases(statement: Statement, *blocks: str) -> list[Case]:
    every = [case for block in blocks for case in cases_of(statement, block)]
    return [case for case in every if not case.defects]


@EACH
def test_a_statement_has_the_tensors_and_attributes_of_its_operator(statement: Statement) -> None:
    operator = CATALOGUE.find(statement.operator, statement.variant)
    inputs = [p.name for p in operator.parameters if isinstance(p, Input)]
    outputs = [p.name for p in operator.parameters if isinstance(p, Output)]
    assert [each.name for each in statement.inputs] == inputs
    assert [each.name for each in statement.outputs] == outputs
    optional = {p.name for p in operator.inputs if p.optional}
    assert {each.name for each in statement.inputs if each.optional} == optional
    known = {p.name for p in operator.parameters if isinstance(p, Attribute)}
    required = {p.name for p in operator.attributes if operator.default(p) is None}
    nullable = {p.name for p in operator.attributes if p.kind.nullable}
    assert required - nullable <= statement.attributes.keys() <= known


@EACH
def test_ids_and_rows_of_errors_are_their_own_and_products_are_known(statement: Statement) -> None:
    made = [case for block in BLOCKS for case in cases_of(statement, block)]
    ids = [case.id for case in made]
    assert len(ids) == len(set(ids))
    assert all(id_.startswith(f"{statement.title}/") for id_ in ids)
    known = {product.soc for product in PRODUCTS}
    assert [case.id for case in made if not set(case.products) <= known] == []
    rows = [row.row for row in statement.invalid]
    assert len(rows) == len(set(rows))


@PARTS
def test_loops_and_arrays_agree(part: slice) -> None:
    for statement in statements()[part]:
        for case in cases(statement, *NUMBERS):
            truth = expected(statement, call_of(case, seed=1), filled=case.setup.filled)
            assert truth, case.id  # raises TruthError


@each("statement", statements()[1::6])
@pytest.mark.torch
@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_torch_agrees_where_it_computes_the_same(statement: Statement) -> None:
    for case in cases(statement, "grid"):
        assert expected(statement, call_of(case, seed=2), torch=True), case.id  # likewise


@each("statement", statements()[2::12])
def test_no_drawn_case_is_all_zeros_or_all_nan(statement: Statement) -> None:
    unwritten = CATALOGUE.find(statement.operator, statement.variant).unwritten
    for case in cases(statement, "grid"):
        for name, truth in expected(statement, call_of(case, seed=3)).items():
            something = abs(truth.value[truth.value == truth.value]).sum() > 0
            assert something or name in unwritten, (case.id, name)


@pytest.mark.more
@EACH
def test_a_large_case_shows_something_whatever_its_attributes(statement: Statement) -> None:
    """Cases take attributes in turn, so that a further case gives others to those after it."""
    make = Maker(statement, "large")
    large, dtype = Setup(base=statement.large_shape), statement.dtypes[0]
    for attributes in make.combinations:
        for name in (tensor.name for tensor in statement.inputs):
            case = make.case(dtype, large, attributes)
            case = replace(case, layouts={name: Arrangement.EXPANDED})
            assert expectation_of(case, call_of(case, seed=0), loops=False)  # raises TruthError


@EACH
def test_every_tensor_that_may_not_be_null_has_a_row_that_says_so(statement: Statement) -> None:
    operator = CATALOGUE.find(statement.operator, statement.variant)
    tensors = {p.name for p in (*operator.inputs, *operator.outputs)}
    optional = {p.name for p in operator.inputs if p.optional}
    nulls = {row.blames[0] for row in statement.invalid if row.status == 161001}  # [src:null-first]
    assert tensors - optional <= nulls


def test_every_row_of_the_contradictions_that_a_call_can_show_is_tagged() -> None:
    tagged = {each.number for statement in statements() for each in statement.contradictions}
    of_forwards = {number for number in tagged if str(number).startswith("F")}
    # Rows 10 and 18 are errors of text, which no call shows.
    assert tagged - of_forwards == set(range(1, 21)) - {10, 18}
    assert of_forwards <= {f"F{number}" for number in range(1, 35)}

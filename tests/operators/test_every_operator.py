"""What holds for every operator, judged by its statement: a new one is not listed anywhere.

The statements belong to the conformance suite. They describe each operator a second time, and take
nothing from the product.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import product as iterated
from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.compute.evaluate import compute
from npucall.declare.parameters import Kind, Scalar
from npucall.declare.prepare import prepare
from npucall.dtypes import BF16, DTYPES, FLOAT, INT8, DType
from npucall.errors import ShapeError
from npucall.operators import CATALOGUE
from npucall.products import A2, ASCEND_950, PRODUCTS, Product
from npucall_conformance.cases.blocks import BLOCKS, cases_of
from npucall_conformance.cases.case import FUZZ, Case
from npucall_conformance.cases.made_call import call_of, in_lists
from npucall_conformance.cases.select import Selection, select
from npucall_conformance.running.runner import Runner
from npucall_conformance.running.subject import open_subject
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.parts import Invalid, Setup
from npucall_conformance.stating.statement import LEFT_OUT, Statement

from .calls import LOCAL, drawn, results, usual
from .defects import TABLES, Table, answer_of, changed

each = pytest.mark.parametrize("table", TABLES, ids=str)

UNREACHED = (" promote to one", "can be cast to the dtype of", "promotion is one that the product")
"""Checks that may refuse nothing: whatever the lists of dtypes let pass promotes, and is cast."""


def test_every_operator_of_the_catalogue_is_stated() -> None:
    assert [str(table) for table in TABLES] == [
        f"{operator.name}.{operator.variant}".rstrip(".") for operator in CATALOGUE
    ]


@each
def test_of_the_defects_of_a_call_the_one_that_is_checked_first_is_the_answer(table: Table) -> None:
    wrong: list[Any] = []
    pairs: dict[Any, Any] = {}
    for product in table.products:
        rows = table.rows(product)
        names = tuple(row.row for row in rows)
        pairs[names] = pairs.get(names) or table.neighbours(product)
        for defects in ((), *((row,) for row in rows), *pairs[names]):
            answer = table.refusal(*defects, on=product)
            if answer != (answer_of(defects[0]) if defects else None):
                wrong += [(product.soc, " before ".join(row.row for row in defects), answer)]
    assert not wrong


def test_there_is_a_defect_for_every_check() -> None:
    assert not {str(table): missed for table in TABLES if (missed := unreached(table))}


def unreached(table: Table) -> set[str]:
    """Checks that are never the first to refuse a row, on any product."""
    rules = (rule.description for rule in table.operator.checks if rule.status)
    left = {rule for rule in rules if not any(part in rule for part in UNREACHED)}
    for product in table.products:
        for row in table.rows(product) if left else ():
            left.discard(table.first_of(row, product))
    return left


def test_behind_the_end_of_the_checks_of_an_empty_call_nothing_is_looked_at() -> None:
    tried, wrong = 0, []
    for table in TABLES:
        for row in behind_the_end(table):
            tried += 1
            if (
                answer := table.refusal(replace(row, base=Setup(base=empty_base(table))))
            ) is not None:
                wrong.append((str(table), row.row, answer))
    assert tried > 20
    assert not wrong


def behind_the_end(table: Table) -> list[Invalid]:
    """Rows that an empty call does not reach, and which do not fill it."""
    names = [row.row for row in table.statement.invalid]
    end = table.statement.empty_before
    inputs = {each.name for each in table.statement.inputs}
    return [
        row
        for row in table.rows()
        if end and names.index(row.row) >= names.index(end) and row.base == Setup()
        if not any(n in inputs and "shape" in (c or ()) for n, c in row.changes.items())
    ]


def empty_base(table: Table) -> tuple[int, ...]:
    """The usual shape, with an extent of 0 where the operator may have one."""
    usual = table.statement.layout_shape
    shapes = table.statement.empty_shapes
    empty = next((base for base in shapes if len(base) == len(usual)), None)
    if empty is None:
        return shapes[0]
    return tuple(extent and there for extent, there in zip(empty, usual, strict=True))


def test_a_call_without_elements_reaches_no_device_unless_nothing_ends_its_checks() -> None:
    reaching = []
    for table in TABLES:
        if any(
            len(base) == len(table.statement.layout_shape) for base in table.statement.empty_shapes
        ):
            row = replace(changed(), base=Setup(base=empty_base(table)))
            if not prepare(table.call(row), table.operator.product_near(A2), CATALOGUE).done:
                reaching.append(str(table))
    # Behind an empty tensor aclnnCat puts others, which have elements.
    assert reaching == ["aclnnCat", "aclnnLogit", "aclnnLogitGrad"]


SELF_ALONE = (
    *("aclnnKlDivBackward", "aclnnKlDivTargetBackward.builtin", "aclnnLeakyReluBackward"),
    "aclnnSoftMarginLossBackward",
)
"""Of these only an empty ``self`` ends the checks; of others any input that is stretched."""


def test_an_input_that_is_empty_alone_ends_the_checks_unless_only_self_does() -> None:
    wrong, tried = [], 0
    for table in TABLES:
        names = [*table.statement.space, *table.statement.expands]
        updated = {each.name for each in table.statement.inputs if each.updated}
        outputs = {e.name: LEFT_OUT for e in table.statement.outputs if e.name not in updated}
        for name in names:
            shapes = {each: {"shape": (0 if each == name else 1, 3)} for each in names}
            with suppress(ShapeError):  # not all of them can be empty alone
                call = table.call(changed(**{**shapes, **outputs}))
                done = prepare(call, A2, CATALOGUE).done
                tried += 1
                if done is not (name == "self" or str(table) not in SELF_ALONE):
                    wrong.append((str(table), name))
    assert tried > 40
    assert not wrong


def test_every_product_takes_the_dtypes_that_are_stated() -> None:
    # What becomes of FLOAT8 the sources do not say.
    known = [dtype for dtype in DTYPES if dtype.kind != "other"]
    wrong = [
        (str(table), product.soc, dtype)
        for table, product, dtype in iterated(TABLES, PRODUCTS, known)
        if takes_all_of(table, dtype, product) is not is_stated(table, dtype, product)
    ]
    assert not wrong


def is_stated(table: Table, dtype: DType, product: Product) -> bool:
    """Whether the statement has a product and a dtype; one refuses BF16 for grad_output alone."""
    if table.operator.name == "aclnnSigmoidBackward" and dtype is BF16 and not product.bfloat16:
        return False
    return dtype in table.statement.takes.get(product.soc, ())


def takes_all_of(table: Table, dtype: DType, product: Product) -> bool:
    """Whether a product takes a call of it, if integers do for its numbers."""
    inputs = [each for each in table.statement.inputs if not each.refused]
    own = [each.name for each in inputs if not each.dtypes] or [inputs[0].name]
    kinds = {a.name: a.kind for a in table.operator.attributes}
    numbers = {n: Scalar(INT8, n == "alpha") for n, kind in kinds.items() if kind is Kind.SCALAR}
    asked = {n: dtype for n, kind in kinds.items() if kind is Kind.DTYPE and len(kinds) > 1}
    outputs = {each.name: LEFT_OUT for each in table.statement.outputs if each.name not in own}
    changes: dict[str, Any] = {name: {"dtype": dtype} for name in own}
    return table.refusal(changed(**{**changes, **numbers, **asked, **outputs}), on=product) is None


OF_NUMBERS = (
    *("listing", "products", "defaults", "grid", "mixed", "edge", "written", "reduction"),
    "documents",
)
OF_SHAPES = ("broadcast", "layout", "empty", "rank")
"""The blocks of the suite that are about an operator; its defects are tried above."""
HERE = open_subject(LOCAL, "local:")


def problems(cases: Iterable[Case], of: Any = HERE) -> list[tuple[str, ...]]:
    outcomes = Runner(of).run(cases)
    return [(each.case, *each.problems) for each in outcomes if each.status == "failed"]


@each
def test_the_answers_are_those_that_are_stated(table: Table) -> None:
    first = table.statement.dtypes[:1]
    wanted = Selection(blocks=OF_NUMBERS, dtypes=first, quick=True)
    assert not problems(select((table.statement,), wanted))


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(table, marks=() if number % 3 == 0 else pytest.mark.more, id=str(table))
        for number, table in enumerate(TABLES)
    ],
)
def test_so_are_those_in_any_shape_and_layout(table: Table) -> None:
    wanted = Selection(blocks=OF_SHAPES, dtypes=table.statement.dtypes[:1], quick=True)
    assert not problems(select((table.statement,), wanted))


@pytest.mark.more
@each
def test_so_are_those_in_other_dtypes(table: Table) -> None:
    """Shapes are the same in any."""
    others = table.statement.dtypes[1:]
    wanted = Selection(blocks=OF_NUMBERS, dtypes=others, quick=True)
    assert not others or not problems(select((table.statement,), wanted))


@pytest.mark.more
@each
def test_so_are_those_to_calls_at_every_edge(table: Table) -> None:
    blocks = ("broadcast", "mixed", "empty", "edge", "rank", "reduction")
    assert not problems(select((table.statement,), Selection(blocks=blocks)))


ANYWHERE = tuple({*BLOCKS} - {"crowd", "paths", "large", "products", "invalid", FUZZ})


@pytest.mark.parametrize(
    ("blocks", "tables"),
    [
        pytest.param(ANYWHERE, TABLES[::4], id="some"),
        pytest.param(ANYWHERE, TABLES[1::4], id="others", marks=pytest.mark.more),
        pytest.param(ANYWHERE, TABLES, id="all", marks=pytest.mark.long),
        pytest.param((FUZZ,), TABLES[::4], id="drawn", marks=pytest.mark.more),
        pytest.param((FUZZ,), TABLES, id="all drawn", marks=pytest.mark.long),
    ],
)
def test_what_differs_on_other_products_is_answered_as_stated_there(
    blocks: tuple[str, ...], tables: list[Table]
) -> None:
    every = select((table.statement for table in tables), Selection(blocks=blocks))
    cases = [case for case in every if case.products and not case.defects]
    for product, soc in ((ASCEND_950, "Ascend950PR_9589"), (PRODUCTS[3], "Ascend910A")):
        own = [case for case in cases if product.soc in case.products]
        assert own
        assert not problems(own, open_subject(npucall_client.connect("local:", soc=soc), "local:"))


OTHERWISE_AT_EDGES = {
    *("aclnnBinaryCrossEntropy", "aclnnBinaryCrossEntropyBackward", "aclnnCrossEntropyLossGrad"),
    *("aclnnEluBackward", "aclnnHardswishBackward", "aclnnHardswishBackwardV2", "aclnnLogit"),
    *("aclnnHardtanhBackward", "aclnnKlDiv", "aclnnKlDivTargetBackward", "aclnnLogitGrad"),
    *("aclnnSoftmaxBackward", "aclnnLayerNorm", "aclnnLayerNormBackward", "aclnnGroupNorm"),
    *("aclnnGroupNormSwish", "aclnnAdaLayerNormBackward", "aclnnSituGluGrad"),
    *("aclnnCdist", "aclnnCdistBackward"),
    *("aclnnHardshrinkBackward", "aclnnSoftshrinkBackward"),
}
"""Of these torch has other rules for NaN and at the ends."""


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # torch's, of shapes that broadcast and of its mean
@each
def test_computed_in_float64_the_result_is_torchs(table: Table) -> None:
    torch = pytest.importorskip("torch")
    wrong = []
    for case in (*usual(table.statement, FLOAT), *edges(table)):
        tensors, attributes = drawn(case)
        given = call_of(case, seed=1).given  # in float64, rounded to the dtype of the kernel
        exact = {n: given[n] if a.dtype.kind == "f" else a for n, a in tensors.items()}
        expected = torch_says(torch, case.statement, given)
        found = results(compute(table.operator, **in_lists(exact), **attributes))
        outputs = [each.name for each in table.statement.outputs if each.asked_in(given)]
        for name, one in zip(outputs, found, strict=True):
            other = expected.get(name, one)
            if one is not None and not np.allclose(
                one, other, rtol=1e-10, atol=1e-12, equal_nan=True
            ):
                wrong.append((case.id, name, one, other))
    assert not wrong


def edges(table: Table) -> list[Case]:
    """Calls of numbers that no formula likes, where torch has the same rules."""
    return [
        case
        for case in cases_of(table.statement, "edge")
        if table.operator.name not in OTHERWISE_AT_EDGES
        and (case.dtype, case.products, dict(case.setup.dtypes)) == (FLOAT, (), {})
        and call_of(case, seed=1).given.kernel is FLOAT
    ]


def torch_says(torch: Any, statement: Statement, given: Arguments) -> dict[str, Any]:
    """torch's outputs of a call, in float64; none if it computes something else."""
    values = {
        name: torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value
        for name, value in given.values.items()
    }
    answer = None
    if statement.torch is not None:
        answer = statement.torch(replace(given, values=values), torch)
    if answer is None:
        return {}
    named = answer if isinstance(answer, dict) else {statement.outputs[0].name: answer}
    return {name: tensor.detach().numpy() for name, tensor in named.items()}

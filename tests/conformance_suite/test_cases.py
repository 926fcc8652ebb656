"""Which cases there are, and the statements that they are made of."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from math import prod

import pytest
from tests.more import only, parts
from tests.rows import each

from npucall.dtypes import BF16, FLOAT16, DType, dtype_named
from npucall.operators import CATALOGUE
from npucall.products import PRODUCTS
from npucall_conformance.cases.arrangements import EXPANDED
from npucall_conformance.cases.blocks import BLOCKS, cases_of
from npucall_conformance.cases.case import FUZZ, Case, Maker
from npucall_conformance.cases.large import BEYOND
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.cases.select import ONCE, Selection, select
from npucall_conformance.judging.truth import expected
from npucall_conformance.statements import statements
from npucall_conformance.statements.kl_div_backward import KL_DIV_BACKWARD
from npucall_conformance.stating.parts import Setup
from npucall_conformance.stating.statement import Statement

from .opinions import contradictions, faint, of_torch
from .servers import PARTS

# Ids that bundles, reports and people remember: a change of them is a change of the contract.
KNOWN = (
    "aclnnKlDivBackward/grid/f32-none-4x6-0001",
    "aclnnKlDivBackward/grid/f32-mean-4x6-0003",
    "aclnnKlDivBackward/grid/bf16-batchmean-log_target-2x3x4x5-0096",
    "aclnnKlDivBackward/invalid/f32-none-3x4-null-target-0004",
    "aclnnKlDivTargetBackward.builtin/documents/f32-mean-3x4-contradiction-12-0002",
)


VARIANTS = ("builtin", "community", "documented")


def ids(**filters: object) -> list[str]:
    return [case.id for case in select(statements(), Selection(**filters))]  # type: ignore[arg-type]


def alone(case: str) -> Case:
    (found,) = select(statements(), Selection(cases=(case,)))
    return found


@each("case", KNOWN)
def test_an_id_is_found_alone_with_the_same_data_whatever_the_filters_are(case: str) -> None:
    assert ids(cases=(case,)) == [case]
    among_all = {each.id: each for block in BLOCKS for each in _of(case, block)}[case]
    first, second = call_of(alone(case), seed=7), call_of(among_all, seed=7)
    assert first.storages == second.storages
    assert first.arguments == second.arguments


def _of(case: str, block: str) -> list[Case]:
    (statement,) = [s for s in statements() if s.title == case.partition("/")[0]]
    return list(cases_of(statement, block))


def test_other_seeds_and_ids_have_other_data_and_those_of_a_seed_never_change() -> None:
    found = [call_of(alone(KNOWN[0]), seed=seed).storages for seed in (0, 1)]
    found.append(call_of(alone(KNOWN[1]), seed=0).storages)
    assert found[0] not in found[1:]
    # The first number of grad_output when the suite was made, with PCG64 of NumPy 2.
    assert found[0]["grad_output"][:4].hex() == "48a8debf"


def test_every_case_has_bytes_of_its_own_in_its_gaps() -> None:
    cases = [c for c in _of(KNOWN[0], "layout") if c.id.partition("out-gaps")[1]]
    found = {bytes(call_of(case, 0).storages["out"])[:31] for case in cases}
    assert len(found) == len(cases) > 1


(CAST,) = (each for each in statements() if each.title == "aclnnCast")  # of written results
OF_EVERY_BLOCK = (KL_DIV_BACKWARD, CAST)
NOT_DRAWN = tuple(block for block in BLOCKS if block != FUZZ)
"""Quick runs draw none."""


def test_every_block_has_cases() -> None:
    made = {b for b in BLOCKS if any(list(cases_of(each, b)) for each in OF_EVERY_BLOCK)}
    assert made == set(BLOCKS)


@each("block", BLOCKS)
def test_a_filter_of_blocks_leaves_that_block(block: str) -> None:
    found = {case.block for case in select(OF_EVERY_BLOCK, Selection(blocks=(block,)))}
    assert found == {block}


def test_a_filter_of_dtypes_leaves_those() -> None:
    few = (BF16, FLOAT16)
    found = list(select(statements()[::24], Selection(dtypes=few, blocks=NOT_DRAWN)))
    drawn = list(select((KL_DIV_BACKWARD,), Selection(dtypes=few, blocks=(FUZZ,))))
    assert {case.dtype for case in found} == {case.dtype for case in drawn} == {*few}


@each(
    ("name", "titles"),
    [
        *((name, {"aclnnL1LossBackward"}) for name in ("aclnnL1LossBackward", "l1lossbackward")),
        *((name, {"aclnnL1LossBackward"}) for name in ("L1LossBackward", "ACLNNL1LOSSBACKWARD")),
        ("KlDivTargetBackward", {f"aclnnKlDivTargetBackward.{v}" for v in VARIANTS}),
    ],
)
def test_an_operator_needs_neither_its_prefix_nor_its_variant(name: str, titles: set[str]) -> None:
    assert {each.partition("/")[0] for each in ids(operators=(name,))} == titles


def test_quick_is_a_sample_of_every_operator_dtype_and_block() -> None:
    def strata(*, quick: bool) -> set[tuple[str, str, str]]:
        cases = select(statements()[::6], Selection(blocks=NOT_DRAWN, quick=quick))
        return {
            (case.statement.title, case.block, "" if case.block in ONCE else case.dtype.name)
            for case in cases
        }

    assert strata(quick=False) <= strata(quick=True)


def test_quick_has_ways_to_compute_that_only_edges_take() -> None:
    chosen = ids(operators=("GridSampler2DBackward",), blocks=("edge",), quick=True)
    assert {"f32", "f16", "bf16", "f64"} <= {
        case.split("/")[2].partition("-")[0] for case in chosen if "interpolation_mode2" in case
    }


@pytest.mark.more
def test_quick_is_much_less_than_everything() -> None:
    operators = tuple(statement.title for statement in statements()[::8])
    assert 3 * len(ids(quick=True, operators=operators)) < len(ids(operators=operators))


@pytest.mark.more
def test_quick_has_few_large_tensors() -> None:
    cases = list(select(statements(), Selection(quick=True)))
    small = [
        len(storage)
        for case in cases
        if case.block not in ONCE and case.shapes
        for storage in call_of(case, 0).storages.values()
    ]
    # The largest is a row of CTC's error table: log_alpha for more than 1000 labels.
    assert max(small) <= 2**18
    assert sum(small) <= 45 * 2**10 * len(statements())
    large = [case for case in cases if case.block == "large"]
    alike = Counter(case.statement.title for case in large if "-alike-" in case.id)
    assert set(alike.values()) == {1}
    others = Counter(case.statement.title for case in large) - alike
    assert others == dict.fromkeys((statement.title for statement in statements()), 2)


@pytest.mark.parametrize("some", only(slice(0, None, 4), slice(None)))
def test_large_cases_are_beyond_a_block_in_every_layout_two_in_chunks(some: slice) -> None:
    for statement in statements()[some]:
        is_beyond_a_block_in_every_layout(statement)


def is_beyond_a_block_in_every_layout(statement: Statement) -> None:
    cases = list(cases_of(statement, "large"))
    sizes = [max(map(prod, case.shapes.values())) for case in cases]
    if min(sizes) <= BEYOND:  # outputs may be larger
        outputs = (map(prod, call_of(case, 0).shapes.values()) for case in cases)
        sizes = [max(size, *own) for size, own in zip(sizes, outputs, strict=True)]
    assert min(sizes) > BEYOND
    assert sum(4 * size > 4 * 2**20 for size in sizes) >= 2  # of FLOAT
    found: dict[DType, set[str]] = {}
    for case in cases:
        found.setdefault(case.dtype, set()).add(case.id.rsplit("-", 2)[-2])
    assert found.keys() == set(statement.dtypes)
    for notes in found.values():
        assert {"mixture", "strided", "expanded", "gapped"} < notes


def test_a_dtype_has_several_names_and_another_one_is_refused() -> None:
    assert {dtype_named(name) for name in ("bf16", "BF16", "bfloat16")} == {BF16}
    with pytest.raises(ValueError, match="f99"):
        dtype_named("f99")


NUMBERS = ("grid", "broadcast", "mixed", "layout", "empty", "edge", "reduction")
"""Blocks whose cases have numbers; those of size and determinism are like those of the grid."""


def cases(statement: Statement, *blocks: str) -> list[Case]:
    every = [case for block in blocks for case in cases_of(statement, block)]
    return [case for case in every if not case.defects]


def ids_are_their_own_and_products_are_known(statement: Statement, block: str) -> None:
    made = list(cases_of(statement, block))
    ids = [case.id for case in made]
    assert len(ids) == len(set(ids))
    assert all(id_.startswith(f"{statement.title}/{block}/") for id_ in ids)
    known = {product.soc for product in PRODUCTS}
    assert [case.id for case in made if not set(case.products) <= known] == []


@pytest.mark.parametrize("some", only(slice(0, None, 6), slice(None)))
def test_ids_and_rows_of_errors_are_their_own(some: slice) -> None:
    for statement in statements()[some]:
        for block in {*BLOCKS} - {FUZZ}:
            ids_are_their_own_and_products_are_known(statement, block)
        rows = [row.row for row in statement.invalid]
        assert len(rows) == len(set(rows))


@pytest.mark.parametrize("some", only(slice(4, None, 12), slice(None)))
def test_an_input_of_a_wrong_call_has_the_bytes_that_it_claims(some: slice) -> None:
    for case in (case for one in statements()[some] for case in cases_of(one, "invalid")):
        call = call_of(case, seed=0)
        for name, storage in call.storages.items():
            short = len(storage) < call.arguments[name].storage_bytes
            assert not short or lacks(case, name), (case.id, name)


def lacks(case: Case, name: str) -> bool:
    """Whether too few bytes are what is wrong."""
    return any("lacks" in defect.changes.get(name, {}) for defect in case.defects)


@PARTS
def test_so_are_ids_of_drawn_cases(part: slice) -> None:
    for statement in statements()[part]:
        ids_are_their_own_and_products_are_known(statement, FUZZ)


@PARTS
def test_loops_and_arrays_agree(part: slice) -> None:
    for statement in statements()[part]:
        for case in cases(statement, *NUMBERS):
            assert contradictions(case, seed=1) == [], case.id


@each("statement", statements()[1::6])
@pytest.mark.torch
@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_torch_agrees_where_it_computes_the_same(statement: Statement) -> None:
    for case in cases(statement, "grid"):
        assert of_torch(statement, call_of(case, seed=2)) == [], case.id


@pytest.mark.parametrize("some", only(slice(3, None, 24), slice(15, None, 24)))
def test_zeros_pass_as_no_answer_to_drawn_numbers(some: slice) -> None:
    for statement in statements()[some]:
        zeros_are_no_answer(statement)


def zeros_are_no_answer(statement: Statement) -> None:
    for case in cases(statement, "grid", "broadcast", "mixed", "layout", "reduction"):
        if case.block == "reduction" and case.setup not in statement.reductions:
            continue  # a number far from usual ones may rightly make zeros
        call = call_of(case, seed=0)
        truth = expected(statement, call, case.setup.filled)
        assert faint(case, call.given, truth) == [], case.id


@each("statement", statements()[2::12])
def test_no_drawn_case_is_all_nan(statement: Statement) -> None:
    unwritten = CATALOGUE.find(statement.operator, statement.variant).unwritten
    for case in cases(statement, "grid"):
        for name, truth in expected(statement, call_of(case, seed=3)).items():
            assert (truth.value == truth.value).any() or name in unwritten, (case.id, name)


@parts(more=slice(1, None, 6))
def test_a_large_case_shows_something_whatever_its_attributes(part: slice) -> None:
    """Cases take attributes in turn, so that a further case gives others to those after it."""
    assert [each for statement in statements()[part] for each in faint_large(statement)] == []


def faint_large(statement: Statement) -> Iterator[tuple[str, list[str]]]:
    """The large cases for which zeros would pass, with their outputs."""
    make = Maker(statement, "large")
    large, dtype = Setup(base=statement.large_shape), statement.dtypes[0]
    for attributes in make.combinations:
        for name in (tensor.name for tensor in statement.inputs):
            case = make.case(dtype, large, attributes)
            if name not in case.shapes:
                continue
            case = replace(case, layouts={name: EXPANDED})
            call = call_of(case, seed=0)
            if found := faint(case, call.given, expected(statement, call)):
                yield case.id, found


def test_every_row_of_the_contradictions_that_a_call_can_show_is_tagged() -> None:
    tagged = {each.number for statement in statements() for each in statement.contradictions}
    of_forwards = {number for number in tagged if str(number).startswith("F")}
    # Rows 10 and 18 are errors of text, which no call shows.
    assert tagged - of_forwards == set(range(1, 21)) - {10, 18}
    assert of_forwards <= {f"F{number}" for number in range(1, 35)}

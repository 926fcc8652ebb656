"""Random calls: the reference answers them, faults that no case has are found and made small."""

from itertools import islice
from math import prod
from random import Random
from typing import Any

import pytest
from tests.rows import each

from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import InternalError
from npucall_conformance.cases.blocks import cases_of
from npucall_conformance.cases.case import Maker
from npucall_conformance.cases.drawn_calls import apart, drawn_again
from npucall_conformance.cases.draws import Draws, layout
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.reporting.report import CaseOutcome
from npucall_conformance.running.crowd import Observation
from npucall_conformance.running.runner import Runner
from npucall_conformance.running.search import Fuzz
from npucall_conformance.running.subject import open_subject

from .fault_table import DRAWN
from .faults import Fault
from .servers import (
    PARTS,
    STATEMENTS,
    TITLES,
    Failing,
    client_of,
    drawn,
    failing_blocks,
    local,
    report_on,
)

KL = "aclnnKlDivBackward"
ALIKE = DRAWN[1]


def first_failure(title: str, **more: Any) -> CaseOutcome:
    return next(outcome for outcome in drawn(title, **more) if outcome.status == "failed")


def ids(*titles: str, seed: int) -> list[str]:
    return [outcome.case for outcome in islice(drawn(*titles, seed=seed), 40)]


@PARTS
def test_the_reference_answers_what_is_drawn(part: slice, subtests: pytest.Subtests) -> None:
    for title in TITLES[part]:
        with subtests.test(title):
            some = list(islice(drawn(title, seed=7), 30))
            assert [outcome.problems for outcome in some if outcome.status == "failed"] == []
            assert {outcome.block for outcome in some} == {"fuzz"}
            assert len({outcome.case for outcome in some}) > 15


@pytest.mark.more
@each("fault", DRAWN)
def test_a_fault_that_no_case_has_is_found_in_drawn_calls(fault: Fault, fake_clock: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault.apply(patch)
        assert failing_blocks(report_on(fault.operator, quick=True)) == set()
        found = first_failure(fault.operator, seconds=30)
    assert found.case.startswith(f"{fault.operator}/fuzz/")
    assert found.problems[-1].startswith("drawn: ")


@pytest.mark.more
def test_what_fails_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    DRAWN[0].apply(monkeypatch)
    kept: list[Observation] = []
    found = first_failure(KL, keep=kept.append)
    (seen,) = kept
    assert seen.outcome == found
    tensors = [seen.call.arguments[name] for name in seen.call.storages]
    (wrong,) = [each for each in tensors if each.offset and len(each.shape) == 3]
    assert prod(wrong.shape) <= 8
    assert all(each.row_major for each in tensors if each is not wrong)


@pytest.mark.more
def test_failures_that_are_alike_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ALIKE.apply(monkeypatch)
    some = list(islice(drawn(ALIKE.operator, dtypes=(FLOAT,)), 400))
    assert sum(outcome.status == "failed" for outcome in some) == 1


def test_the_same_seed_draws_the_same_calls() -> None:
    titles = (KL, "aclnnSoftmax")
    first, again, other = (ids(*titles, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


def test_the_id_of_a_drawn_call_finds_it_again() -> None:
    for case in islice(cases_of(STATEMENTS[KL], "fuzz"), 50):
        again = drawn_again(STATEMENTS[KL], case.id.rpartition("/")[2])
        assert again.id == case.id
        assert call_of(again, 3).storages == call_of(case, 3).storages
        assert call_of(again, 3).arguments == call_of(case, 3).arguments


def test_the_search_ends_when_the_time_is_up_also_where_everything_fails(
    fake_clock: object,
) -> None:
    some = list(drawn(KL, "aclnnGlu", seconds=1))
    assert {outcome.title for outcome in some} == {KL, "aclnnGlu"}
    assert all(outcome.status == "passed" for outcome in some)
    runner = Runner(open_subject(client_of(Failing(lambda _: InternalError("broken"))), "broken"))
    found = list(Fuzz(runner, 1).outcomes([STATEMENTS[KL]]))
    assert all(outcome.status == "failed" for outcome in found)


def test_dtypes_that_are_chosen_are_what_calls_are_counted_under() -> None:
    some = islice(drawn(KL, "aclnnSoftmax", dtypes=(FLOAT16,)), 50)
    assert {outcome.dtype for outcome in some} == {"f16"}


@each("seed", range(40))
def test_a_drawn_layout_fits_any_shape_and_no_output_shares_memory(seed: int) -> None:
    random, output = Random(seed), bool(seed % 2)
    placed = layout(Draws(random=random), output=output)
    shape = tuple(random.randint(0, 5) for _ in range(random.randint(0, 6)))
    if placed.fits(shape, output=output):
        spec = placed.spec(FLOAT, shape)
        assert spec.shape == shape
        assert not (output and spec.overlaps_itself())


@pytest.mark.more
@each("title", TITLES[4::12])
def test_of_two_defects_the_first_is_found_whatever_the_second_is(title: str) -> None:
    """Every pair that may be drawn, once."""
    statement = STATEMENTS[title]
    rows = [row for row in statement.invalid if not row.products or "Ascend910B" in row.products]
    pairs = [
        Maker(statement, "fuzz").wrong("", first, second)
        for place, first in enumerate(rows)
        for second in rows[place + 1 :]
        if apart(first, second)
    ]
    outcomes = list(Runner(local()).run(pairs))
    assert [(o.case, o.problems) for o in outcomes if o.status == "failed"] == []

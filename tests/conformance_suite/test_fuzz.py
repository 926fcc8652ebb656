"""Random calls: the reference answers them, faults that no case has are found and made small."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import Refusing, client_of
from tests.more import every_twelfth, only

import npucall_client
from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import InternalError
from npucall_client.conformance.fuzz.draws import drawn
from npucall_client.conformance.fuzz.invalid import apart, spoilt
from npucall_client.conformance.fuzz.layouts import layout
from npucall_client.conformance.fuzz.search import Fuzz
from npucall_client.conformance.running.judged import judged
from npucall_client.conformance.running.runner import Evidence, Runner
from npucall_client.conformance.stating import elementwise

from .draw_calls import STATEMENTS, outcomes
from .faults_of_drawn_calls import DRAWN, KL
from .judging import failing_blocks, report_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client.conformance.reporting.report import Outcome
    from npucall_client.conformance.stating.statement import Statement

    from .seeded import Fault


def first_failure(title: str, **more: Any) -> Outcome:
    return next(each for each in outcomes(title, **more) if each.status == "failed")


@pytest.mark.parametrize("title", every_twelfth(STATEMENTS, first=3))
def test_the_reference_answers_whatever_is_drawn(title: str) -> None:
    some = list(islice(outcomes(title, seed=7), 30))
    assert [each.problems for each in some if each.status == "failed"] == []
    assert {each.block for each in some} == {"fuzz"}
    assert len({each.case for each in some}) > 15


@pytest.mark.more
@pytest.mark.parametrize("fault", only(*DRAWN), ids=str)
def test_a_fault_that_no_case_has_is_found_in_calls_that_are_drawn(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.seed(monkeypatch)
    assert failing_blocks(report_on(fault.operator, fault.spared)) == set()
    found = first_failure(fault.operator)
    assert found.case.startswith(f"{fault.operator}/fuzz/")
    assert found.problems[-1].startswith("drawn: ")


@pytest.mark.more
def test_what_fails_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    DRAWN[0].seed(monkeypatch)
    kept: list[Evidence] = []
    found = first_failure(KL, keep=kept.append)
    (evidence,) = kept
    assert evidence.outcome == found
    tensors = [evidence.call.arguments[name] for name in evidence.call.storages]
    (wrong,) = [each for each in tensors if each.offset and len(each.shape) == 3]
    assert prod(wrong.shape) <= 8
    assert all(each.row_major for each in tensors if each is not wrong)


@pytest.mark.more
def test_failures_that_are_alike_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    DRAWN[1].seed(monkeypatch)
    operator = DRAWN[1].operator
    some = list(islice(outcomes(operator, dtypes=(FLOAT,)), 400))
    assert sum(each.status == "failed" for each in some) == 1


def test_the_same_seed_draws_the_same_calls() -> None:
    titles = (KL, "aclnnMatmul", "aclnnSoftmax")
    first, again, other = (
        [each.case for each in islice(outcomes(*titles, seed=seed), 40)] for seed in (1, 1, 2)
    )
    assert first == again
    assert len(set(first) & set(other)) < 15  # the simplest calls come with every seed


@pytest.mark.more
def test_the_same_seed_draws_the_same_calls_in_another_process() -> None:
    words = [sys.executable, "-m", "tests.conformance_suite.draw_calls", KL, "3"]
    other = subprocess.run(words, capture_output=True, check=True)
    assert other.stdout.decode().split() == [each.case for each in islice(outcomes(KL, seed=3), 40)]


def test_the_search_ends_when_the_time_is_up() -> None:
    some = list(outcomes(KL, "aclnnGlu", seconds=0.5))
    assert some
    assert all(each.status == "passed" for each in some)


def test_the_search_ends_where_everything_fails_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(judged(client_of(Refusing(InternalError("broken"))), "broken"))
    found = list(Fuzz(runner, 0.5).outcomes([STATEMENTS[KL]]))
    assert all(each.status == "failed" for each in found)


def test_dtypes_that_are_chosen_are_what_calls_are_counted_under() -> None:
    some = islice(outcomes(KL, "aclnnSoftmax", dtypes=(FLOAT16,)), 50)
    assert {each.dtype for each in some} == {"f16"}


def test_a_statement_that_contradicts_itself_is_the_suites_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = elementwise._summed

    def wrong(*args: Any) -> Any:
        terms = right(*args)
        return type(terms)(terms.value * 1.5, terms.size, terms.summed)

    monkeypatch.setattr(elementwise, "_summed", wrong)
    found = first_failure(KL)
    assert found.problems[0].startswith("the suite itself failed: TruthError")


@given(st.data())
@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
def test_a_layout_that_is_drawn_fits_any_shape_and_no_output_shares_memory(
    data: st.DataObject,
) -> None:
    output = data.draw(st.booleans())
    placed = data.draw(drawn(lambda draw: layout(draw, output=output)))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=6)))
    if placed.fits(shape, output=output):
        spec = placed.spec(FLOAT, shape)
        assert spec.shape == shape
        assert not (output and spec.overlaps_itself())


@pytest.mark.more
@pytest.mark.parametrize("title", every_twelfth(STATEMENTS, first=4))
def test_of_two_defects_the_first_is_found_whatever_the_second_is(title: str) -> None:
    """Every pair that may be drawn, once."""
    statement = STATEMENTS[title]
    with npucall_client.connect("local:", soc="Ascend910B1") as client:
        runner = Runner(judged(client, "local:"))
        for case in pairs(statement):
            (outcome,) = runner.run([case])
            assert outcome.status != "failed", (outcome.case, outcome.problems)


def pairs(statement: Statement) -> Iterator[Any]:
    """The calls with two defects that ``invalid`` may draw."""
    rows = [row for row in statement.invalid if not row.products or "Ascend910B" in row.products]
    for place, first in enumerate(rows):
        for second in rows[place + 1 :]:
            if apart(first, second):
                yield spoilt(statement, (first, second))

"""A report at a terminal: tables, failures, verdict, and the bar during the run."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from npucall_client.conformance.reporting.formats import table
from npucall_client.conformance.reporting.formats.text import clean, rerun
from npucall_client.conformance.reporting.report import Report

from .shown import KL, NEITHER, OUTSIDE, REPORT, SERVER, WRONG_CODE, fine, hostile, with_numbers

NOTHING = Report("cpu-strict", 0, SERVER)


def printed(report: Report, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width)
    table.show(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_a_line_for_each_operator_and_dtype() -> None:
    (line,) = (each for each in printed(REPORT).splitlines() if each.startswith(f"{KL} "))
    assert line.split() == [KL, "f32", "2/4", "0.75", "0.5", "grid/f32-mean-4x6-0002"]


@pytest.mark.parametrize("failed", [OUTSIDE, WRONG_CODE, NEITHER], ids=lambda each: each.block)
def test_the_table_is_followed_by_failures_and_how_to_run_them_again(failed: Any) -> None:
    text = printed(REPORT)
    for line in (f"such as {failed.case}", failed.problems[0], rerun(REPORT, failed)):
        assert line in map(str.strip, text.splitlines())


def test_the_table_of_contradictions_says_with_whom_the_server_agrees() -> None:
    lines = [" ".join(line.split()) for line in printed(REPORT).splitlines()]
    assert "8 KlDivTargetBackward.community divisor of mean kernel README" in lines
    assert "7 KlDivBackward divisor of batchmean none of them: [0.0] source; torch" in lines


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (REPORT, "Fails: 3 of 6 cases failed."),
        (fine(), "Conforms: all 3 cases passed."),
        (NOTHING, "Fails: nothing ran."),
    ],
    ids=["failed", "passed", "nothing"],
)
def test_the_last_line_is_the_verdict(report: Report, verdict: str) -> None:
    assert printed(report).splitlines()[-1] == verdict


def test_a_cause_after_the_twentieth_is_counted() -> None:
    several = [replace(WRONG_CODE, problems=(f"cause {chr(97 + i)}",)) for i in range(23)]
    many = Report("cpu-strict", 0, SERVER, outcomes=several)
    assert "... and 3 more causes; --html or --json has them all" in printed(many)


def test_failures_of_one_cause_are_one_entry_with_their_number() -> None:
    many = Report("cpu-strict", 0, SERVER, outcomes=[WRONG_CODE] * 300)
    assert printed(many).count("expected status 161001") == 2  # the cause, and its example
    assert "300 cases failed: expected status 161001" in printed(many)


def test_the_worst_element_is_told_with_what_it_was_computed_from() -> None:
    lines = [line.strip() for line in printed(with_numbers()).splitlines()]
    assert "1 case failed: all elements 3 times too large" in lines
    assert "KlDivBackward; f16; broadcast" in lines
    assert "out[2, 3] is 1.5, expected 0.5 for self -1, reduction 1" in lines
    assert "wrong: all 14 elements" in lines


def test_hostile_text_is_printed_as_it_is_without_what_a_terminal_obeys() -> None:
    report = hostile()
    text = printed(report, width=2000)
    assert clean(report.failures[0].problems[0]) in text  # [bold] is no markup here
    assert "\x1b" not in text
    assert "\x00" not in text


def test_progress_passes_every_outcome_on() -> None:
    console = Console(file=io.StringIO())
    total = len(REPORT.outcomes)
    assert list(table.progress(REPORT.outcomes, total, console)) == REPORT.outcomes


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_drawn_on_a_terminal_alone(terminal: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120)
    list(table.progress(hostile().outcomes, 3, console))
    assert ("1 failed" in file.getvalue()) is terminal

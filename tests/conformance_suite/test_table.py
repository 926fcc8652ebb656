"""A report at a terminal: tables, failures, verdict, and the bar during the run."""

import io
import re
import sys
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from rich.console import Console
from tests.rows import each

from npucall_conformance.reporting import files, terminal
from npucall_conformance.reporting.report import Report
from npucall_conformance.reporting.wording import NO_ULP, NOTHING, clean, in_ulp, rerun

from .shown import KL, NEITHER, OUTSIDE, REPORT, SERVER, WRONG_CODE, fine, hostile, with_numbers

NOBODY = Report("cpu-strict", 0, SERVER)


def printed(report: Report, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width)
    terminal.show(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_a_line_for_each_operator_and_dtype() -> None:
    (line,) = (each for each in printed(REPORT).splitlines() if each.startswith(f"{KL} "))
    assert line.split() == [KL, "f32", "2/4", "0.75", "0.5", "-", "grid/f32-mean-4x6-0002"]


@each("failed", [OUTSIDE, WRONG_CODE, NEITHER])
def test_the_table_is_followed_by_failures_and_how_to_run_them_again(failed: Any) -> None:
    text = printed(REPORT)
    for line in (f"such as {failed.case}", failed.problems[0], rerun(REPORT, failed)):
        assert line in map(str.strip, text.splitlines())


def test_the_table_of_contradictions_says_with_whom_the_server_agrees() -> None:
    lines = [" ".join(line.split()) for line in printed(REPORT).splitlines()]
    assert "8 KlDivTargetBackward.community divisor of mean kernel README" in lines
    assert "7 KlDivBackward divisor of batchmean none of them: [0.0] source; torch" in lines


@each(
    ("report", "verdict"),
    [
        (REPORT, "Fails: 3 of 6 cases failed."),
        (fine(), "Conforms: all 3 cases passed."),
        (NOBODY, "Fails: nothing ran."),
    ],
)
def test_the_last_line_is_the_verdict(report: Report, verdict: str) -> None:
    assert printed(report).splitlines()[-1] == verdict


def test_causes_are_entries_with_their_numbers_up_to_the_twentieth() -> None:
    several = [replace(WRONG_CODE, problems=(f"cause {chr(97 + i)}",)) for i in range(23)]
    text = printed(Report("cpu-strict", 0, SERVER, outcomes=several))
    assert "... and 3 more causes; --html or --json has them all" in text
    text = printed(Report("cpu-strict", 0, SERVER, outcomes=[WRONG_CODE] * 300))
    assert text.count("expected status 161001") == 2  # the cause, and its example
    assert "300 cases failed: expected status 161001" in text


def test_the_worst_element_is_told_with_what_it_was_computed_from() -> None:
    assert {
        "1 case failed: out: too large",
        "KlDivBackward; f16; broadcast",
        "out[2, 3] is 1.5, expected 0.5 for self -1, reduction 1",
        "wrong: all 14 elements",
    } <= {line.strip() for line in printed(with_numbers()).splitlines()}


def test_hostile_text_is_printed_as_it_is_without_what_a_terminal_obeys() -> None:
    report = hostile()
    text = printed(report, width=2000)
    assert clean(report.failures[0].problems[0]) in text  # [bold] is no markup here
    assert "\x1b" not in text
    assert "\x00" not in text


@each("drawn", [True, False])
def test_progress_passes_outcomes_on_and_is_drawn_on_a_terminal_alone(drawn: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=drawn, width=120)
    outcomes = hostile().outcomes
    assert list(terminal.progress(outcomes, 3, console)) == outcomes
    assert isinstance(console.file, io.StringIO)
    assert ("1 failed" in console.file.getvalue()) is drawn


# --- A log that can be read, and no figure that misleads ------------------------------------------

HUGE = 5.86e28
LONG = "aclnnBinaryCrossEntropyWithLogitsTargetBackward"


def near_zero(ratio: float) -> Report:
    """Every case is so many ulp off."""
    outcomes = [replace(each, ulp=HUGE, ratio=ratio) for each in fine().outcomes]
    return Report("cpu-strict", 0, SERVER, outcomes=outcomes)


@each("width", [80, 160])
def test_a_worst_error_of_1e28_ulp_is_not_shown_where_it_is_inside(width: int) -> None:
    text = printed(near_zero(0.5), width)
    assert "e+28" not in text
    assert "0.5" in text
    assert NO_ULP in text
    assert NO_ULP not in printed(fine(), width)  # there is nothing to explain
    page = files.as_page(near_zero(0.5))
    assert "e+28" not in page
    assert NO_ULP in unescape(page)


def test_a_worst_error_that_is_outside_is_shown_however_large() -> None:
    assert "5.86e+28" in printed(near_zero(1.5))
    assert in_ulp(HUGE, inside=False) == "5.86e+28"
    assert (in_ulp(1024.0, inside=True), in_ulp(1025.0, inside=True)) == ("1.02e+03", NOTHING)


def test_a_log_has_no_colours_no_bar_and_no_trailing_blanks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    list(terminal.progress(REPORT.outcomes, len(REPORT.outcomes)))
    terminal.show(REPORT)
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
    (row,) = [line for line in out.splitlines() if line.startswith(f"{KL} ")]
    assert row.split()[-1] == "grid/f32-mean-4x6-0002"


def test_a_log_that_asks_for_colours_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI systems do
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    list(terminal.progress(hostile().outcomes, 3))
    assert log.getvalue() == ""


def test_at_80_columns_names_stand_in_lines_of_their_own_and_nothing_is_cut() -> None:
    renamed = [replace(each, operator=LONG, variant="") for each in REPORT.outcomes]
    text = printed(Report("cpu-strict", 0, SERVER, outcomes=renamed), 80)
    head = text.partition("Documents against behaviour")[0].partition("\n\n")[0]
    assert max(map(len, head.splitlines())) <= 80
    assert LONG in head.splitlines()
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert re.search(r"^  f32 +\d+/\d+ ", head, re.MULTILINE)

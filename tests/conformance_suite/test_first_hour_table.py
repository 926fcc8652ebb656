"""The first hour with ``npucall conform``: a log that can be read, and no figure that misleads."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from npucall_client.conformance.reporting.formats import html, table
from npucall_client.conformance.reporting.formats.text import NO_ULP, NOTHING, in_ulp
from npucall_client.conformance.reporting.report import Report

from .shown import KL, REPORT, SERVER, fine, hostile

HUGE = 5.86e28
LONG = "aclnnBinaryCrossEntropyWithLogitsTargetBackward"


def near_zero(ratio: float) -> Report:
    """Every case is so many ulp off."""
    outcomes = [replace(each, ulp=HUGE, ratio=ratio) for each in fine().outcomes]
    return Report("cpu-strict", 0, SERVER, outcomes=outcomes)


def printed(report: Report, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    table.show(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 160])
def test_a_worst_error_of_1e28_ulp_is_not_shown_where_it_is_inside(width: int) -> None:
    text = printed(near_zero(0.5), width)
    assert "e+28" not in text
    assert "0.5" in text
    assert NO_ULP in text


def test_what_an_ulp_means_is_not_explained_where_all_are_shown() -> None:
    assert NO_ULP not in printed(fine(), 160)


def test_a_worst_error_that_is_outside_is_shown_however_large() -> None:
    assert "5.86e+28" in printed(near_zero(1.5), 160)
    assert in_ulp(HUGE, inside=False) == "5.86e+28"
    assert (in_ulp(1024.0, inside=True), in_ulp(1025.0, inside=True)) == ("1.02e+03", NOTHING)


def test_the_page_shows_no_misleading_ulp_either() -> None:
    page = html.render(near_zero(0.5))
    assert "e+28" not in page
    assert NO_ULP.replace('"', "&quot;") in page


def test_a_log_has_no_colours_no_bar_and_no_trailing_blanks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    list(table.progress(REPORT.outcomes, len(REPORT.outcomes)))
    table.show(REPORT)
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
    list(table.progress(hostile().outcomes, 3))
    assert log.getvalue() == ""


def test_at_80_columns_names_stand_in_lines_of_their_own_and_nothing_is_cut() -> None:
    renamed = [replace(each, operator=LONG, variant="") for each in REPORT.outcomes]
    text = printed(Report("cpu-strict", 0, SERVER, outcomes=renamed), 80)
    head = text.partition("Documents against behaviour")[0].partition("\n\n")[0]
    assert max(map(len, head.splitlines())) <= 80
    assert LONG in head.splitlines()
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert re.search(r"^  f32 +\d+/\d+ ", head, re.MULTILINE)

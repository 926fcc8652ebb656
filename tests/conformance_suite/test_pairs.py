"""Two servers next to each other, and the ratios of CANN's figures."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.rows import each

from npucall.dtypes import BF16, FLOAT, FLOAT16, DType
from npucall_conformance.reporting import html
from npucall_conformance.reporting.pairs import Figures, ServerColumn, figures, level, ratios
from npucall_conformance.reporting.report import Report

from .servers import altered, local, report_on, run
from .shown import HOSTILE, PASSED, SERVER
from .test_html import Page, assert_sound
from .test_table import printed


def up(storage: bytearray) -> None:
    """Moves the first number of an output by many ulp."""
    storage[1] ^= 0x0F


# --- figures --------------------------------------------------------------------------------------


def test_figures_are_those_of_the_standard() -> None:
    value = np.array([1.0, -2.0, 4.0])
    found = figures(np.array([1.1, -2.0, 3.0]), value, FLOAT)
    assert found.count == found.usual == 3
    assert found.mare == pytest.approx(0.25, rel=1e-6)  # of 4
    assert found.mere == pytest.approx((0.1 + 0 + 0.25) / 3, rel=1e-6)
    assert found.rmse == pytest.approx(math.sqrt((0.01 + 0 + 1) / 3))
    assert found.small_errors == 0


@each(
    ("dtype", "threshold", "limit"),
    [(FLOAT, 2**-14, 2**-30), (FLOAT16, 2**-11, 2**-16), (BF16, 2**-8, 2**-16)],
)
def test_small_values_are_counted_and_have_no_relative_error(
    dtype: DType, threshold: float, limit: float
) -> None:
    value = np.array([threshold * 0.9, threshold * 0.9, threshold])
    off = np.array([limit * 1.1, limit * 0.9, limit * 1.1])
    found = figures(value + off, value, dtype)
    assert (found.count, found.usual, found.small_errors) == (3, 1, 1)


def test_what_is_no_number_on_one_side_is_left_out() -> None:
    value = np.array([1.0, np.nan, np.inf, 2.0])
    found = figures(np.array([np.inf, np.nan, np.inf, 2.0]), value, FLOAT)
    assert (found.count, found.rmse) == (1, 0.0)


@each("at", [0, 1, 7, 20])
def test_figures_of_parts_are_those_of_the_whole(at: int) -> None:
    found, value = np.random.default_rng(at).normal(0, 1e3, (2, 20))
    whole = figures(found, value, FLOAT)
    parts = figures(found[:at], value[:at], FLOAT) + figures(found[at:], value[at:], FLOAT)
    assert (parts.count, parts.usual, parts.small_errors) == (
        whole.count, whole.usual, whole.small_errors,
    )  # fmt: skip
    assert parts.mare == whole.mare
    assert parts.mere == pytest.approx(whole.mere)
    assert parts.rmse == pytest.approx(whole.rmse)


@each(
    ("times", "kept"),
    [
        ((2.0, 1.2, 1.2, 2.0), "L2"),
        ((2.1, 1.2, 1.2, 2.0), "L1"),
        ((5.0, 1.6, 1.5, 0.0), "L0"),
        ((10.1, 1.0, 1.0, 0.0), ""),
        ((1.0, 1.0, 1.0, 2.5), ""),
    ],
)
def test_the_level_is_the_strictest_that_is_kept(times: tuple[float, ...], kept: str) -> None:
    assert level(times) == kept


def test_errors_beside_none_are_infinitely_many_times_as_large() -> None:
    wrong = Figures(count=1, usual=1, mare=0.5, relative=0.5, squares=0.25)
    assert ratios(wrong, Figures())[0] == math.inf
    assert ratios(Figures(), Figures()) == (1.0, 1.0, 1.0, 0.0)
    assert ratios(Figures(), wrong)[0] == 0.0


# --- in a report ----------------------------------------------------------------------------------


def test_each_server_is_judged_by_itself_in_every_report() -> None:
    first, second = local(), altered(up)  # which is a little off
    outcomes = run(first, second, operators=("KlDivBackward",), blocks=("grid",))
    report = Report("cpu-strict", 0, first.server, second.server, outcomes=outcomes)
    pair = report.pairs()["aclnnKlDivBackward", "f32"]
    right, wrong = pair.sides
    assert right.passed == pair.cases
    assert wrong.passed == 0
    assert right.ulp < wrong.ulp
    # Figures are against the truth, and not against each other.
    assert 0 < right.figures.mare < 2**-22
    assert wrong.figures.mare > right.figures.mare
    assert pair.ratios[0] < 1
    page = Page(html.render(report))
    assert "Two servers" in page.text
    assert {"MARE", "MERE", "RMSE", "small", "L2"} <= set(page.text)
    assert_sound(page)
    lines = printed(report).splitlines()
    (head,) = (line.split() for line in lines if line.endswith("level"))
    assert head[:6] == ["operator", "dtype", "local:", "ulp", "altered", "ulp"]
    (line,) = (line.split() for line in lines if line.startswith("KlDivBackward  f32"))
    assert (line[2], line[4]) == ("32/32", "0/32")


def test_servers_that_agree_on_complex_numbers_differ_in_nothing() -> None:
    case = "aclnnAdd/mixed/c128+c64-alpha1.0-3x4-complex-0241"
    outcomes = run(local(), local(), cases=(case,))
    assert [(each.status, each.problems) for each in outcomes] == [("passed", ())]


def test_a_run_of_one_server_has_no_pairs() -> None:
    assert report_on("KlDivBackward", ("grid",)).pairs() == {}


def test_a_hostile_name_of_the_second_server_is_no_markup() -> None:
    columns = (ServerColumn(1), ServerColumn(0))
    bad = replace(SERVER, target=HOSTILE)
    outcomes = [replace(PASSED, columns=columns)]
    page = Page(html.render(Report("cpu-strict", 0, bad, bad, outcomes=outcomes)))
    assert_sound(page)
    assert "Two servers" in page.text

"""The page is well formed, loads no other file, shows everything and runs no scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from npucall_client.conformance.reporting.coverage import Chosen
from npucall_client.conformance.reporting.formats import html
from npucall_client.conformance.reporting.formats._markup import Markup, join, tag
from npucall_client.conformance.reporting.formats._plots import Strip, histogram, strips
from npucall_client.conformance.reporting.formats.text import clean, rerun
from npucall_client.conformance.reporting.report import Report

from .shown import (
    HISTOGRAM,
    HOSTILE,
    NEITHER,
    OUTSIDE,
    PASSED,
    REPORT,
    SERVER,
    SKIPPED,
    WRONG_CODE,
    fine,
    hostile,
    with_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = Report("cpu-strict", 0, SERVER)
EVERY = pytest.mark.parametrize(
    "report", [REPORT, fine(), hostile(), NOTHING], ids=["all", "fine", "hostile", "nothing"]
)
REFERENCES = {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}
ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "nav", "a", "div", "span",
    "section", "article", "details", "summary", "h1", "h2", "h3", "p", "b", "code", "ul", "li",
    "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "svg", "g", "rect", "circle",
    "line", "text", "tspan",
}  # fmt: skip


class Page(HTMLParser):
    """What a browser finds in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.unclosed: list[str] = []
        self.stray: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.unclosed.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.unclosed or self.unclosed.pop() != tag:
            self.stray.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def of_class(self, name: str) -> list[str]:
        return [tag for tag, found in self.elements if name in (found.get("class") or "").split()]


def page_of(report: Report) -> Page:
    return Page(html.render(report))


@EVERY
def test_every_element_of_the_page_is_closed(report: Report) -> None:
    page = page_of(report)
    assert (page.unclosed, page.stray) == ([], [])


@EVERY
def test_the_page_has_no_element_but_those_that_it_is_made_of(report: Report) -> None:
    assert {tag for tag, _ in page_of(report).elements} <= ELEMENTS


@EVERY
def test_the_page_refers_to_nothing_but_its_own_sections(report: Report) -> None:
    elements = page_of(report).elements
    found = {(n, v) for _, named in elements for n, v in named.items() if n in REFERENCES}
    sections = {("href", f"#{named['id']}") for _, named in elements if "id" in named}
    assert found <= sections


@EVERY
def test_no_element_has_a_handler(report: Report) -> None:
    names = {name for _, found in page_of(report).elements for name in found}
    assert [name for name in names if name.startswith("on")] == []


def test_the_style_sheet_loads_nothing() -> None:
    (sheet,) = re.findall("<style>(.*?)</style>", html.render(REPORT), re.DOTALL)
    assert re.findall(r"url\(|@import|@font-face|https?:", sheet) == []


def test_a_policy_forbids_what_is_not_in_the_page() -> None:
    elements = page_of(REPORT).elements
    (policy,) = (found["content"] for _, found in elements if "http-equiv" in found)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_hostile_text_stands_in_the_page_as_text() -> None:
    text = page_of(hostile()).text
    assert clean(HOSTILE) in text
    assert [each for each in text if "\x1b" in each or "\x00" in each] == []


def test_there_is_a_style_for_the_dark() -> None:
    assert "@media (prefers-color-scheme: dark)" in html.render(REPORT)


@pytest.mark.parametrize(
    "fact",
    [
        "npu-7:50051",
        "Ascend910B1 (family Ascend910B)",
        "cann:0",
        "7",
        "Fails: 3 of 6 cases failed",
    ],
)
def test_the_page_says_what_was_judged(fact: str) -> None:
    assert fact in page_of(REPORT).text


@pytest.mark.parametrize("failed", [OUTSIDE, WRONG_CODE, NEITHER], ids=lambda each: each.block)
def test_a_failure_has_its_id_its_problems_and_its_command(failed: object) -> None:
    assert isinstance(failed, type(OUTSIDE))
    assert {failed.case, *failed.problems, rerun(REPORT, failed)} <= set(page_of(REPORT).text)


def test_a_run_without_failures_has_no_list_of_them() -> None:
    assert page_of(fine()).of_class("failure") == []
    assert "Failures by cause" not in page_of(fine()).text


def test_failures_of_a_cause_are_folded_behind_an_example() -> None:
    several = [replace(WRONG_CODE, case=f"{WRONG_CODE.case}{i}") for i in range(5)]
    page = page_of(Report("cpu-strict", 0, SERVER, outcomes=several))
    assert "4 more" in page.text
    assert len(page.of_class("failure")) == 1
    assert {outcome.case for outcome in several} <= set(page.text)


def test_of_very_many_causes_a_hundred_are_shown_and_the_rest_counted() -> None:
    several = [replace(WRONG_CODE, findings=("x" * i,)) for i in range(1, 1103)]
    page = page_of(Report("cpu-strict", 0, SERVER, outcomes=several))
    assert len(page.of_class("failure")) == 100
    assert "1,002 more causes stand in the JSON report." in page.text


def test_a_cause_has_its_pattern_and_the_worst_element() -> None:
    text = page_of(with_numbers()).text
    assert "all elements 3 times too large" in text
    assert "out[2, 3] is 1.5, expected 0.5 for self -1, reduction 1" in text
    assert "wrong: all 14 elements" in text


def test_coverage_stands_before_everything_else() -> None:
    page = page_of(REPORT)
    sections = [named["id"] for _, named in page.elements if "id" in named]
    assert sections[:2] == ["coverage", "failures"]
    assert {"operators", "operators and dtypes", "blocks"} <= set(page.text)


def test_what_should_have_been_judged_and_was_not_stands_in_the_page() -> None:
    busy = replace(SKIPPED, problems=("QUEUE_FULL: try later",), lowers=True)
    page = page_of(replace(REPORT, outcomes=[PASSED, busy]))
    assert "Conforms in part: 1 case passed, 1 case not judged" in page.text
    assert "1 case should have been judged: " in page.text
    assert "QUEUE_FULL: try later" in page.text
    assert page.of_class("partly") == ["header"]


def test_the_page_of_a_filtered_run_says_that_it_is_no_whole_verdict() -> None:
    filtered = replace(REPORT, chosen=Chosen(operators=("Glu",)))
    said = "".join(page_of(filtered).text)
    assert "in what was chosen (--operator Glu)" in said
    assert "no verdict of all" in said


def test_a_known_deviation_stands_apart_from_failures() -> None:
    known = replace(OUTSIDE, status="accepted")
    page = page_of(replace(REPORT, outcomes=[PASSED, known]))
    assert page.of_class("failure") == []
    assert page.of_class("known") == ["td"]
    assert {"Known deviations", known.case} <= set(page.text)


def test_the_legend_names_every_colour_of_the_heat_map_and_the_empty_cell() -> None:
    text = "".join(page_of(REPORT).text)
    for each in ("all passed", "some failed", "some deviate", "all skipped", "empty: "):
        assert each in text


def test_the_time_on_the_device_stands_beside_the_errors() -> None:
    timed = [replace(PASSED, run_ns=n) for n in (1_000_000, 2_500_000, 9_000_000)]
    text = page_of(replace(REPORT, outcomes=timed)).text
    assert text.index("errors in ulp") < text.index("run, ms")
    assert "2.5" in text  # the median


def test_a_narrow_screen_has_a_label_for_each_cell() -> None:
    page = page_of(REPORT)
    cells = [named for tag, named in page.elements if tag == "td" and "held" in _classes(named)]
    assert [named.get("data-label") for named in cells] == ["grid", "documents"]


def _classes(named: dict[str, str | None]) -> list[str]:
    return (named.get("class") or "").split()


def test_the_heat_map_has_a_cell_for_each_operator_and_block() -> None:
    page = page_of(REPORT)
    assert len(page.of_class("held")) == 2  # KlDivBackward grid, KlDivTargetBackward documents
    assert len(page.of_class("broke")) == 3  # broadcast, invalid, documents
    assert len(page.of_class("out")) == 1  # skipped
    assert "0/1" in page.text


def test_the_page_shows_which_source_of_a_contradiction_is_right() -> None:
    text = page_of(REPORT).text
    assert "✓ kernel (the reference)" in text
    assert "✗ README" in text
    assert "agrees with none of them" in text


# --- Plots ----------------------------------------------------------------------------------------


def drawing_of(*rows: Strip) -> ET.Element:
    return ET.fromstring(strips(rows))


def marks(ratios: Sequence[float]) -> dict[str, list[float]]:
    """Where the marks of a line stand, by class, in percent; and the limit."""
    drawing = drawing_of(Strip("A", "", "f32", ratios))
    found: dict[str, list[float]] = {"mark": [], "outside": []}
    for circle in drawing.iter("circle"):
        shift = re.search(r"[-0-9.]+", circle.get("transform", "0"))
        assert shift is not None
        nudge = float(shift[0]) / 1000  # pixels beside the line
        found[circle.get("class", "")].append(percent(circle.get("cx")) + nudge)
    (limit,) = (each for each in drawing.iter("line") if each.get("class") == "limit")
    return {**found, "limit": [percent(limit.get("x1"))]}


def percent(text: str | None) -> float:
    return float((text or "").removesuffix("%"))


@pytest.mark.parametrize("ratio", [0.0, 1e-9, 0.5, 0.999999, 1.0])
def test_what_is_within_the_tolerance_stands_left_of_its_line(ratio: float) -> None:
    found = marks([ratio])
    assert found["outside"] == []
    assert found["mark"][0] < found["limit"][0]


@pytest.mark.parametrize("ratio", [1.0000001, 3.0, 1e9, float("inf"), float("nan")])
def test_what_is_outside_the_tolerance_stands_right_of_its_line(ratio: float) -> None:
    found = marks([ratio])
    assert found["mark"] == []
    assert found["outside"][0] > found["limit"][0]


def test_the_axis_is_logarithmic() -> None:
    (a, b, c) = marks([0.001, 0.01, 0.1])["mark"]
    assert b - a == pytest.approx(c - b, abs=0.01)


def test_cases_near_each_other_share_a_mark_that_counts_them() -> None:
    drawing = drawing_of(Strip("A", "", "f32", [0.3] * 7))
    (circle,) = drawing.iter("circle")
    assert circle.findtext("title") == "7 cases up to 0.3 of the tolerance"


def test_a_line_names_operator_variant_and_dtype_once() -> None:
    rows = [Strip("A", "v", "f32", [0.1]), Strip("A", "v", "f16", [0.1])]
    texts = ["".join(each.itertext()) for each in drawing_of(*rows).iter()]
    leaves = [text for text in texts if text in ("A v", "f32", "f16")]
    assert [leaves.count(text) for text in ("A v", "f32", "f16")] == [1, 1, 1]


def test_every_place_of_the_plot_is_a_share_of_its_width() -> None:
    drawing = drawing_of(Strip("A", "", "f32", [0.0, 0.1, 1.0, 5.0, float("inf")]))
    places = [
        each.get(name)
        for each in drawing.iter()
        for name in ("x1", "x2", "cx")
        if each.get(name) is not None
    ]
    assert places
    assert all(0 <= percent(place) <= 100 for place in places)


def test_a_histogram_has_a_bar_for_each_bin_that_names_it() -> None:
    drawing = ET.fromstring(histogram(HISTOGRAM, "f32"))
    titles = [each.text or "" for each in drawing.iter("title")]
    assert len(titles) == 13
    assert titles[0] == "exact: 5 elements"
    assert titles[2] == "over 0.25, up to 0.5 ulp: 3 elements"
    assert titles[-1] == "over 1024 ulp: 2 elements"


# --- Markup ---------------------------------------------------------------------------------------


def test_text_is_escaped_in_content_and_attributes() -> None:
    assert tag("p", "<&>", title='"<') == '<p title="&quot;&lt;">&lt;&amp;&gt;</p>'


def test_markup_is_not_escaped_twice() -> None:
    assert tag("p", tag("b", "<")) == "<p><b>&lt;</b></p>"


def test_what_is_made_from_markup_by_other_means_is_text_again() -> None:
    assert join(Markup("<b>") + "<i>") == "&lt;b&gt;&lt;i&gt;"


def test_attributes_that_are_none_are_left_out() -> None:
    assert tag("p", class_=None, stroke_width=1.5) == '<p stroke-width="1.5"></p>'

"""The page is well formed, loads no other file, shows everything and runs no scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from tests.rows import each

from npucall_conformance.reporting.coverage import Chosen
from npucall_conformance.reporting.formats import html
from npucall_conformance.reporting.formats._markup import Markup, join, tag
from npucall_conformance.reporting.formats._plots import Strip, histogram, strips
from npucall_conformance.reporting.formats.text import clean, rerun
from npucall_conformance.reporting.report import Report

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

    from npucall_conformance.reporting.report import Outcome

NOTHING = Report("cpu-strict", 0, SERVER)
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


def assert_sound(page: Page) -> None:
    """It is closed, made of what it is made of, runs nothing, refers to its own sections alone."""
    assert (page.unclosed, page.stray) == ([], [])
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    named = [(n, v) for _, found in page.elements for n, v in found.items()]
    assert [n for n, _ in named if n.startswith("on")] == []
    sections = {("href", f"#{v}") for n, v in named if n == "id"}
    assert {(n, v) for n, v in named if n in REFERENCES} <= sections


@each("report", [REPORT, fine(), hostile(), NOTHING])
def test_every_page_is_sound(report: Report) -> None:
    assert_sound(page_of(report))


def test_the_style_sheet_loads_nothing_knows_the_dark_and_a_policy_forbids_the_rest() -> None:
    (sheet,) = re.findall("<style>(.*?)</style>", html.render(REPORT), re.DOTALL)
    assert re.findall(r"url\(|@import|@font-face|https?:", sheet) == []
    assert "@media (prefers-color-scheme: dark)" in sheet
    elements = page_of(REPORT).elements
    (policy,) = (found["content"] for _, found in elements if "http-equiv" in found)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_hostile_text_stands_in_the_page_as_text() -> None:
    text = page_of(hostile()).text
    assert clean(HOSTILE) in text
    assert [each for each in text if "\x1b" in each or "\x00" in each] == []


def test_the_page_says_what_was_judged_coverage_first() -> None:
    page = page_of(REPORT)
    assert {
        "npu-7:50051", "Ascend910B1 (family Ascend910B)", "cann:0", "7",
        "Fails: 3 of 6 cases failed", "operators", "operators and dtypes", "blocks",
    } <= set(page.text)  # fmt: skip
    sections = [named["id"] for _, named in page.elements if "id" in named]
    assert sections[:2] == ["coverage", "failures"]


@each("failed", [OUTSIDE, WRONG_CODE, NEITHER])
def test_a_failure_has_its_id_its_problems_and_its_command(failed: Outcome) -> None:
    assert {failed.case, *failed.problems, rerun(REPORT, failed)} <= set(page_of(REPORT).text)


def test_failures_of_a_cause_are_folded_behind_an_example_and_of_none_there_is_no_list() -> None:
    several = [replace(WRONG_CODE, case=f"{WRONG_CODE.case}{i}") for i in range(5)]
    page = page_of(Report("cpu-strict", 0, SERVER, outcomes=several))
    assert "4 more" in page.text
    assert len(page.of_class("failure")) == 1
    assert {outcome.case for outcome in several} <= set(page.text)
    assert page_of(fine()).of_class("failure") == []
    assert "Failures by cause" not in page_of(fine()).text


def test_of_very_many_causes_a_hundred_are_shown_and_the_rest_counted() -> None:
    several = [replace(WRONG_CODE, findings=("x" * i,)) for i in range(1, 1103)]
    page = page_of(Report("cpu-strict", 0, SERVER, outcomes=several))
    assert len(page.of_class("failure")) == 100
    assert "1,002 more causes stand in the JSON report." in page.text


BUSY = replace(SKIPPED, problems=("QUEUE_FULL: try later",), lowers=True)
TIMED = [replace(PASSED, run_ns=n) for n in (1_000_000, 2_500_000, 9_000_000)]
KNOWN = replace(OUTSIDE, status="accepted")
BESIDE_BUSY, BESIDE_KNOWN = (replace(REPORT, outcomes=[PASSED, one]) for one in (BUSY, KNOWN))


@each(
    ("report", "texts"),
    [
        (
            with_numbers(),
            [
                "all elements 3 times too large",
                "out[2, 3] is 1.5, expected 0.5 for self -1, reduction 1",
                "wrong: all 14 elements",
            ],
        ),
        (
            BESIDE_BUSY,
            [
                "Conforms in part: 1 case passed, 1 case not judged",
                "1 case should have been judged: ",
                "QUEUE_FULL: try later",
            ],
        ),
        (
            replace(REPORT, chosen=Chosen(operators=("Glu",))),
            ["in what was chosen (--operator Glu)", "no verdict of all"],
        ),
        (replace(REPORT, outcomes=TIMED), ["errors in ulp", "run, ms", "2.5"]),  # the median
        (BESIDE_KNOWN, ["Known deviations", KNOWN.case]),
        (REPORT, ["✓ kernel (the reference)", "✗ README", "agrees with none of them"]),
    ],
)
def test_the_page_tells(report: Report, texts: list[str]) -> None:
    said = "\n".join(page_of(report).text)
    assert [text for text in texts if text not in said] == []


def test_what_lowers_the_verdict_and_what_is_known_have_colours_of_their_own() -> None:
    assert page_of(BESIDE_BUSY).of_class("partly") == ["header"]
    assert page_of(BESIDE_KNOWN).of_class("failure") == []
    assert page_of(BESIDE_KNOWN).of_class("known") == ["td"]


def test_the_heat_map_has_a_cell_for_each_operator_and_block_a_label_and_a_legend() -> None:
    page = page_of(REPORT)
    assert len(page.of_class("held")) == 2  # KlDivBackward grid, KlDivTargetBackward documents
    assert len(page.of_class("broke")) == 3  # broadcast, invalid, documents
    assert len(page.of_class("out")) == 1  # skipped
    assert "0/1" in page.text
    labels = [named.get("data-label") for tag, named in page.elements if _is_held(tag, named)]
    assert labels == ["grid", "documents"]
    text = "".join(page.text)
    for colour in ("all passed", "some failed", "some deviate", "all skipped", "empty: "):
        assert colour in text


def _is_held(tag: str, named: dict[str, str | None]) -> bool:
    return tag == "td" and "held" in (named.get("class") or "").split()


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


@each(
    ("ratio", "side"),
    [
        *((ratio, "mark") for ratio in (0.0, 1e-9, 0.5, 0.999999, 1.0)),
        *((ratio, "outside") for ratio in (1.0000001, 3.0, 1e9, float("inf"), float("nan"))),
    ],
)
def test_a_case_within_the_tolerance_stands_left_of_its_line(ratio: float, side: str) -> None:
    found = marks([ratio])
    (place,) = [*found["mark"], *found["outside"]]
    assert found[side] == [place]
    assert (place < found["limit"][0]) is (side == "mark")


def test_the_axis_is_logarithmic_and_cases_near_each_other_share_a_mark() -> None:
    (a, b, c) = marks([0.001, 0.01, 0.1])["mark"]
    assert b - a == pytest.approx(c - b, abs=0.01)
    (circle,) = drawing_of(Strip("A", "", "f32", [0.3] * 7)).iter("circle")
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


@each(
    ("made", "text"),
    [
        (tag("p", "<&>", title='"<'), '<p title="&quot;&lt;">&lt;&amp;&gt;</p>'),
        (tag("p", tag("b", "<")), "<p><b>&lt;</b></p>"),
        (join(Markup("<b>") + "<i>"), "&lt;b&gt;&lt;i&gt;"),  # text again: no markup was joined
        (tag("p", class_=None, stroke_width=1.5), '<p stroke-width="1.5"></p>'),
    ],
)
def test_text_is_escaped_once_and_attributes_of_none_are_left_out(made: str, text: str) -> None:
    assert made == text

"""The page is well formed, loads no other file, shows everything and runs no scripts."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from tests.rows import each

from npucall_conformance.cases.select import Selection
from npucall_conformance.reporting.files import as_page
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.reporting.tables import tables
from npucall_conformance.reporting.wording import clean, remarks, rerun

from .shown import (
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

NOTHING = Report("cpu-strict", 0, SERVER)
REFERENCES = {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}
ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "a", "div", "span",
    "section", "article", "details", "summary", "h1", "h2", "h3", "p", "b", "code", "ul", "li",
    "table", "thead", "tbody", "tr", "th", "td",
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
    return Page(as_page(report))


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
    (sheet,) = re.findall("<style>(.*?)</style>", as_page(REPORT), re.DOTALL)
    assert re.findall(r"url\(|@import|@font-face|https?:", sheet) == []
    assert "@media (prefers-color-scheme: dark)" in sheet
    elements = page_of(REPORT).elements
    (policy,) = (found["content"] for _, found in elements if "http-equiv" in found)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_hostile_text_stands_in_the_page_as_text() -> None:
    text = page_of(hostile()).text
    assert clean(HOSTILE) in text
    assert [each for each in text if "\x1b" in each or "\x00" in each] == []


def test_the_page_says_what_was_judged_and_then_what_failed() -> None:
    page = page_of(REPORT)
    assert {"Fails: 3 of 6 cases failed", *remarks(REPORT)} <= set(page.text)
    sections = [named["id"] for _, named in page.elements if "id" in named]
    assert sections == ["run", "failures", "1", "2", "3"]
    titles = ("What was judged", "Failures by cause", *(each.title for each in tables(REPORT)))
    assert [text for text in page.text if text in titles] == list(titles)


@each("failed", [OUTSIDE, WRONG_CODE, NEITHER])
def test_a_failure_has_its_id_its_problems_and_its_command(failed: CaseOutcome) -> None:
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
            replace(REPORT, chosen=Selection(operators=("Glu",))),
            ["in what was chosen (--operator Glu)", "no verdict of all"],
        ),
        (replace(REPORT, outcomes=TIMED), ["worst ulp", "run, ms", "2.5"]),  # the median
        (BESIDE_KNOWN, ["Known deviations", KNOWN.case]),
        (REPORT, ["kernel", "README", "none of them: [0.0]"]),
    ],
)
def test_the_page_tells(report: Report, texts: list[str]) -> None:
    said = "\n".join(page_of(report).text)
    assert [text for text in texts if text not in said] == []


def test_what_lowers_the_verdict_and_what_is_known_have_colours_of_their_own() -> None:
    assert page_of(BESIDE_BUSY).of_class("conforms-in-part") == ["header"]
    assert page_of(BESIDE_KNOWN).of_class("failure") == []
    assert page_of(BESIDE_KNOWN).of_class("warn") == ["td"] * 2  # by dtype, and by block


def test_the_map_has_a_cell_for_each_operator_and_block() -> None:
    (found,) = [table for table in tables(REPORT) if table.title == "Operators and blocks"]
    assert found.numbers == ("grid", "broadcast", "invalid", "documents")
    assert [[(cell.text, cell.tone) for cell in row[1:]] for row in found.rows] == [
        [("2/2", "good"), ("0/1", "bad"), ("0/1", "bad"), ("0/1", "bad")],
        [("1 skipped", "soft"), ("", ""), ("", ""), ("1/1", "good")],
    ]

"""The reports of a run on every product as one: a column for each product, then each report.

The JSON object has::

    format          "npucall-conformance-matrix"
    format_version  1; changes only if a key changes its meaning
    passed          the verdict is "conforms"
    verdict         "conforms", "conforms in part" or "fails": the worst of all
    products        by product, the object of a report as ``json_file`` describes it
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from rich.console import Console, RenderableType
from rich.text import Text

from npucall_client.commands.console import Column, output
from npucall_client.commands.console import show as print_all
from npucall_client.commands.console import table as columns_of
from npucall_conformance.reporting.formats import html as page
from npucall_conformance.reporting.formats import json_file, junit, table
from npucall_conformance.reporting.formats._markup import Markup, tag
from npucall_conformance.reporting.formats.text import clean, count

if TYPE_CHECKING:
    from npucall_conformance.reporting.matrix import Matrix
    from npucall_conformance.reporting.report import Report


def show(matrix: Matrix, console: Console | None = None) -> None:
    """Prints the report of each product that does not conform, then all of them as a table."""
    console = console or output()
    for report in matrix.judged:
        if not report.passed:
            console.rule(Text(clean(f"{report.server.product} ({report.server.soc})")))
            table.show(report, console)
    print_all(console, _by_product(matrix, console.width))
    style = "bold green" if matrix.passed else "bold red"
    console.print(Text(f"{_said(matrix)}.", style), soft_wrap=True)


def as_json(matrix: Matrix) -> str:
    """The text of a JSON file."""
    data = {
        "format": "npucall-conformance-matrix",
        "format_version": 1,
        "passed": matrix.passed,
        "verdict": matrix.verdict,
        "products": {r.server.product: json.loads(json_file.render(r)) for r in matrix.reports},
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def as_junit(matrix: Matrix) -> str:
    """The text of a JUnit file: the product stands before the names of suites and classes."""
    root = ET.Element("testsuites", name="npucall conform --matrix")
    sums = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for report in matrix.reports:
        whole = ET.fromstring(junit.render(report))  # noqa: S314  # our own text
        for name in sums:
            sums[name] += int(whole.get(name, "0"))
        for suite in whole:
            suite.set("name", f"{report.server.product} {suite.get('name')}")
            for case in suite.iter("testcase"):
                case.set("classname", f"{report.server.product}.{case.get('classname')}")
            root.append(suite)
    for name, value in sums.items():
        root.set(name, str(value))
    root.set("time", f"{sum(report.seconds for report in matrix.reports):.3f}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def as_html(matrix: Matrix) -> str:
    """The text of a page: the table of operators and products, then the page of each product."""
    body = tag(
        "main",
        tag(
            "header",
            tag("div", "npucall conformance", class_="kicker"),
            tag("h1", _said(matrix)),
            class_=None if matrix.passed else "failed",
        ),
        tag("section", tag("h2", "Operators and products"), _columns(matrix), id="matrix"),
        *(_product(report, there=report in matrix.judged) for report in matrix.reports),
    )
    return page.document(f"{_said(matrix)}: npucall conformance", body)


FORMATS: dict[str, Callable[[Matrix], str]] = {
    "json_file": as_json,
    "junit": as_junit,
    "html": as_html,
}
"""By the module of ``reports`` that has the same of one report."""


_NOTHING = "nothing of what was chosen is there"


def _said(matrix: Matrix) -> str:
    """The result, in one sentence without its full stop."""
    wanting = [r.server.product for r in matrix.judged if r.verdict == matrix.verdict]
    if not matrix.judged:
        return "Fails: nothing ran"
    if matrix.passed:
        others = [r.server.product for r in matrix.reports if r not in matrix.judged]
        beside = f"; nothing of it is on {', '.join(others)}" if others else ""
        return f"Conforms on {count(len(matrix.judged), 'product')}{beside}"
    return f"{matrix.verdict.capitalize()}, on {', '.join(wanting)}"


def _by_product(matrix: Matrix, width: int) -> RenderableType:
    columns = [
        *map(Column, ("product", "as")),
        *(Column(name, number=True) for name in ("passed", "skipped")),
        Column("verdict", prose=True),
    ]
    rows = []
    for report in matrix.reports:
        total, server = report.total(), report.server
        there = report in matrix.judged
        style = "green" if report.passed else "bold red" if there else "dim"
        names = (Text(clean(server.product)), Text(clean(server.soc)))
        passed = Text(f"{total.passed}/{total.cases}", style)
        said = report.verdict if there else _NOTHING
        rows.append([*names, passed, Text(str(total.skipped)), Text(said, style)])
    return columns_of(columns, rows, width)


def _columns(matrix: Matrix) -> Markup:
    """Operators by product: how many cases passed of how many ran, or that it is not there."""
    by_title = [_by_title(report) for report in matrix.reports]
    links = [
        tag("th", tag("a", report.server.product, href=f"#{report.server.product}"))
        for report in matrix.reports
    ]
    rows = [
        tag(
            "tr",
            tag("th", title.removeprefix("aclnn")),
            *(_cell(tallies.get(title)) for tallies in by_title),
        )
        for title in matrix.titles
    ]
    head = tag("thead", tag("tr", tag("th", "operator"), *links))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="scroll")


def _by_title(report: Report) -> dict[str, tuple[int, int]]:
    """Cases that passed or were accepted, and those that ran, by operator."""
    found: dict[str, tuple[int, int]] = {}
    for (title, _), tally in report.by_operator_and_block().items():
        fine, ran = found.get(title, (0, 0))
        found[title] = (fine + tally.cases - tally.failed, ran + tally.cases)
    return found


def _cell(tally: tuple[int, int] | None) -> Markup:
    if tally is None or not tally[1]:
        return tag("td", "-", class_="soft")
    fine, ran = tally
    style = None if fine == ran else "color: var(--bad-ink)"
    return tag("td", f"{fine:,}/{ran:,}", style=style)


def _product(report: Report, *, there: bool) -> Markup:
    """The content of a product's page, with anchors of its own."""
    product = report.server.product
    inner = page.render(report).partition("<main>")[2].partition("</main>")[0]
    # Texts have no quotes in them, since all are escaped: these are ours alone.
    for ours in (' id="', 'href="#'):
        inner = inner.replace(ours, f"{ours}{product}-")
    said = report.verdict if there else _NOTHING
    title = tag("summary", tag("b", product), f" as {report.server.soc}: {said}")
    return tag("details", title, Markup(inner), id=product, open=bool(report.failures))

"""The page's table of two servers: a column for each, and CANN's figures as ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_conformance.judging.benchmark import LEVELS, SMALL_RATIO
from npucall_conformance.reporting.formats._markup import Child, Markup, join, tag
from npucall_conformance.reporting.formats._plots import dtype_class
from npucall_conformance.reporting.formats._tables import milliseconds, operator_name
from npucall_conformance.reporting.formats.text import in_ulp, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_conformance.reporting.pairs import Pair, Side
    from npucall_conformance.reporting.report import Report

_MEASURES: dict[str, Callable[[Side], str]] = {
    "MARE": lambda side: number(side.figures.mare),
    "MERE": lambda side: number(side.figures.mere),
    "RMSE": lambda side: number(side.figures.rmse),
    "small errors": lambda side: f"{side.figures.small_errors:,}",
    "run, ms": lambda side: milliseconds(side.run_ns),
}


def pairs(report: Report) -> Markup:
    """A line for each operator and dtype: of each figure both servers' values."""
    names = ("operator", "dtype", "server", "passed", "worst ulp", *_MEASURES, "level")
    servers = [each.target for each in (report.server, report.against) if each is not None]
    head = [tag("th", name, scope="col") for name in names]
    rows = [_row(title, dtype, pair, servers) for (title, dtype), pair in report.pairs().items()]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="cards pairs")
    return join(_note(), tag("div", table, class_="scroll"))


def _note() -> Markup:
    levels = "; ".join(
        f"{name} {mare:g}, {mere:g}, {rmse:g}" for name, (mare, mere, rmse) in LEVELS.items()
    )
    return tag(
        "p",
        "Both servers are held against the truth in float64. The level is the strictest whose "
        f"multiples of the second's MARE, MERE and RMSE the first keeps ({levels}), with at most "
        f"{SMALL_RATIO:g} times its errors of small values.",
        class_="note",
    )


def _row(title: str, dtype: str, pair: Pair, servers: list[str]) -> Markup:
    compared = pair.sides[0].figures.count or pair.sides[1].figures.count
    level = pair.ratios.level
    shown = tag("td", level or "none", data_label="level",
                class_="right good" if level else "right bad")  # fmt: skip
    return tag(
        "tr",
        tag("th", operator_name(title), scope="row"),
        tag("td", tag("span", dtype, class_=f"dtype {dtype_class(dtype)}")),
        tag("td", *(tag("div", each) for each in servers)),
        _both("passed", (f"{side.passed:,}/{pair.cases:,}" for side in pair.sides)),
        _both("worst ulp", (_ulp(side, pair) for side in pair.sides)),
        *(_both(name, map(shown_of, pair.sides)) for name, shown_of in _MEASURES.items()),
        shown if compared else tag("td"),
    )


def _ulp(side: Side, pair: Pair) -> str:
    return in_ulp(side.ulp, inside=side.passed == pair.cases)


def _both(name: str, texts: Iterator[str]) -> Markup:
    lines: list[Child] = [tag("div", text) for text in texts]
    return tag("td", *lines, class_="right", data_label=name)

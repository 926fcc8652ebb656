"""The page's tables: heat map, figures by operator and dtype, failures, sources."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npucall_client.conformance.cases import BLOCKS
from npucall_client.conformance.reports._markup import Child, Markup, join, tag
from npucall_client.conformance.reports._plots import dtype_class, histogram
from npucall_client.conformance.reports.text import count, local_id, number, rerun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from npucall_client.conformance.report import Outcome, Report, Sided, Tally

_SHOWN = 300
"""Failures that are listed; JSON has all."""
_ANSWER = 110
"""Characters of an answer that are shown."""
_NOTHING = "\N{EN DASH}"


def operator_name(title: str) -> Markup:
    """An operator without what all names begin with, its variant set apart."""
    name, _, variant = title.partition(".")
    mark = tag("span", f" {variant}", class_="variant") if variant else None
    return join(name.removeprefix("aclnn"), mark)


def heat_map(report: Report) -> Markup:
    """Operator by block: how many cases passed, and of how many if not all."""
    tallies = report.by_operator_and_block()
    blocks = _ordered({block for _, block in tallies})
    most = max((tally.cases for tally in tallies.values()), default=1)
    rows = []
    for title in dict.fromkeys(title for title, _ in tallies):
        own = [o for o in report.outcomes if o.title == title]
        passed = sum(o.status == "passed" for o in own)
        ran = sum(o.status != "skipped" for o in own)
        total = f"{passed}" if passed == ran else f"{passed}/{ran}"
        cells = [_heat_cell(tallies.get((title, block)), most) for block in blocks]
        tone = "sum bad" if passed != ran else "sum"
        rows.append(
            tag("tr", tag("th", operator_name(title), scope="row"), *cells,
                tag("td", total, class_=tone))
        )  # fmt: skip
    head = [tag("th", name, scope="col") for name in ("", *blocks, "all")]
    return _table(tag("tr", *head), rows, class_="heat")


def figures(report: Report) -> Markup:
    """Operator by dtype: cases, worst errors and where they were, elements by error."""
    names = ("operator", "dtype", "cases", "passed", "of tolerance", "worst ulp", "errors in ulp",
             "worst case")  # fmt: skip
    right = {"cases", "passed", "of tolerance", "worst ulp"}
    head = [tag("th", n, scope="col", class_="right" if n in right else None) for n in names]
    groups: dict[str, list[tuple[str, Tally]]] = {}
    for (title, dtype), tally in report.by_operator_and_dtype().items():
        groups.setdefault(title, []).append((dtype, tally))
    rows = []
    for title, group in groups.items():
        name: Markup | None = tag("th", operator_name(title), scope="rowgroup", rowspan=len(group))
        for dtype, tally in group:
            rows.append(tag("tr", name, *_figure_cells(title, dtype, tally)))
            name = None
    return _table(tag("tr", *head), rows)


def failures(report: Report) -> Markup:
    """What failed, why, and how to run it again; of each operator and block the first is open."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in report.failures[:_SHOWN]:
        groups.setdefault((outcome.title, outcome.block), []).append(outcome)
    tallies = report.by_operator_and_block()
    shown = [_failures_of(report, key, tallies[key], group) for key, group in groups.items()]
    left = len(report.failures) - _SHOWN
    more = tag("p", f"{left:,} more stand in the JSON report.", class_="note") if left > 0 else None
    return join(*shown, more)


def sources(report: Report) -> Markup:
    """The contradictions of the documents, and whom the server agrees with."""
    names = ("row", "operator", "what is contradicted", "sources", "the answer")
    head = [tag("th", name, scope="col") for name in names]
    rows = [
        tag("tr", tag("td", each.contradiction.number, class_="right"),
            tag("th", operator_name(each.title), scope="row"),
            tag("td", tag("span", each.contradiction.topic, title=each.case)),
            tag("td", _sides(each.contradiction)),
            tag("td", _cut(each.contradiction.answer), class_="soft"))
        for each in report.contradictions()
        if each.contradiction
    ]  # fmt: skip
    return _table(tag("tr", *head), rows)


def _heat_cell(tally: Tally | None, most: int) -> Markup:
    if tally is None:
        return tag("td")
    skipped = f", {tally.skipped} skipped" if tally.skipped else ""
    told = f"{tally.passed} of {count(tally.cases, 'case')} passed{skipped}"
    if not tally.cases:
        return tag("td", _NOTHING, class_="out", title=f"{count(tally.skipped, 'case')} skipped")
    if tally.failed:
        weight = tally.failed / tally.cases
        return tag("td", f"{tally.passed}/{tally.cases}", class_="broke", title=told,
                   style=f"--weight: {weight:.2f}")  # fmt: skip
    weight = math.log1p(tally.cases) / math.log1p(most)
    return tag("td", tally.cases, class_="held", title=told, style=f"--weight: {weight:.2f}")


def _figure_cells(title: str, dtype: str, tally: Tally) -> Iterable[Markup]:
    label = tag("td", tag("span", dtype, class_=f"dtype {dtype_class(dtype)}"))
    if not tally.cases:
        told = f"{count(tally.skipped, 'case')} skipped"
        return label, tag("td", told, class_="soft", colspan=6)
    compared = any(tally.histogram)
    worst = tag("code", local_id(tally.ratio_case, title)) if tally.ratio else None
    bars = histogram(tally.histogram, dtype) if compared else None
    ratio = number(tally.ratio) if compared else _NOTHING
    ulp = tag("span", number(tally.ulp), title=tally.ulp_case) if compared else _NOTHING
    return (
        label,
        tag("td", f"{tally.cases:,}", class_="right"),
        tag("td", f"{tally.passed:,}", class_="right bad" if tally.failed else "right good"),
        tag("td", ratio, class_="right bad" if tally.ratio > 1 else "right"),
        tag("td", ulp, class_="right"),
        tag("td", bars),
        tag("td", worst),
    )


def _failures_of(
    report: Report, key: tuple[str, str], tally: Tally, group: Sequence[Outcome]
) -> Markup:
    title, block = key
    first, *rest = [_failure(report, outcome) for outcome in group]
    told = f"{tally.failed:,} of {count(tally.cases, 'case')} failed"
    more = tag("details", tag("summary", f"{len(rest):,} more"), *rest) if rest else None
    head = tag("h3", operator_name(title), f", {block} ", tag("span", told, class_="variant"))
    return tag("div", head, first, more, class_="group")


def _failure(report: Report, outcome: Outcome) -> Markup:
    problems = [tag("li", problem) for problem in outcome.problems]
    return tag(
        "article",
        tag("code", outcome.case),
        tag("ul", *problems),
        tag("code", rerun(report, outcome), class_="command"),
        class_="failure",
    )


def _sides(sided: Sided) -> Markup:
    items = []
    for source in sided.sources:
        agrees = source in sided.agrees
        tone = "agrees" if agrees and sided.decided in sided.agrees else "agrees warn"
        decided = " (the reference)" if source == sided.decided else ""
        text = f"{'✓' if agrees else '✗'} {source}{decided}"
        items.append(tag("li", text, class_=tone if agrees else None))
    if not sided.agrees:
        items.append(tag("li", "agrees with none of them", class_="bad"))
    return tag("ul", *items, class_="sources")


def _cut(answer: str) -> Markup:
    """As much as fits; the rest when pointed at."""
    shown = answer if len(answer) <= _ANSWER else f"{answer[: _ANSWER - 2]} …"
    return tag("code", shown, title=answer if shown != answer else None)


def _ordered(blocks: set[str]) -> list[str]:
    """In the order in which they run; any that this suite does not know come last."""
    known = [block for block in BLOCKS if block in blocks]
    return known + sorted(blocks - set(known))


def _table(head: Markup, rows: Sequence[Child], class_: str | None = None) -> Markup:
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_=class_)
    return tag("div", table, class_="scroll")

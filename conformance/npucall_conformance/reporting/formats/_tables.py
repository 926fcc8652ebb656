"""The page's tables: heat map, figures by operator and dtype, sources.

On a narrow screen a row is a block of its own: ``data-label`` is the label of each cell.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npucall_conformance.cases.case import BLOCKS
from npucall_conformance.reporting.formats._markup import Child, Markup, join, tag
from npucall_conformance.reporting.formats._plots import dtype_class, histogram
from npucall_conformance.reporting.formats.text import (
    NO_ULP,
    NOTHING,
    count,
    in_ulp,
    local_id,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from npucall_conformance.reporting.report import Report, Sided, Tally

_ANSWER = 110
"""Characters of an answer that are shown."""
_NOTHING = "\N{EN DASH}"


def operator_name(title: str) -> Markup:
    """An operator's name without the prefix that all names have; its variant is set apart."""
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
        cells = [_heat_cell(block, tallies.get((title, block)), most) for block in blocks]
        tone = "sum bad" if passed != ran else "sum"
        rows.append(
            tag("tr", tag("th", operator_name(title), scope="row"), *cells,
                tag("td", total, class_=tone, data_label="all"))
        )  # fmt: skip
    head = [tag("th", tag("span", name), scope="col") for name in ("", *blocks, "all")]
    return _table(tag("tr", *head), rows, class_="heat")


def figures(report: Report) -> Markup:
    """Operator by dtype: cases, worst errors and where they were, elements by error."""
    names = ("operator", "dtype", "passed", "errors in ulp", "worst ulp", "of tolerance",
             "run, ms", "worst case")  # fmt: skip
    right = {"passed", "of tolerance", "worst ulp", "run, ms"}
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
    return _table(tag("tr", *head), rows, class_="cards")


def sources(report: Report) -> Markup:
    """The contradictions of the documents, and the source with which the server agrees."""
    names = ("row", "operator", "what is contradicted", "sources", "the answer")
    head = [tag("th", name, scope="col") for name in names]
    rows = [
        tag("tr", tag("td", each.contradiction.number, data_label="row"),
            tag("th", operator_name(each.title), scope="row"),
            tag("td", tag("span", each.contradiction.topic, title=each.case)),
            tag("td", _sides(each.contradiction)),
            tag("td", _cut(each.contradiction.answer), class_="soft", data_label="answer"))
        for each in report.contradictions()
        if each.contradiction
    ]  # fmt: skip
    return _table(tag("tr", *head), rows, class_="cards")


def _heat_cell(block: str, tally: Tally | None, most: int) -> Markup:
    if tally is None:
        return tag("td")
    skipped = f", {tally.skipped} skipped" if tally.skipped else ""
    known = f", {tally.accepted} accepted" if tally.accepted else ""
    told = f"{block}: {tally.passed} of {count(tally.cases, 'case')} passed{known}{skipped}"
    if not tally.cases:
        told = f"{block}: {count(tally.skipped, 'case')} skipped"
        return tag("td", _NOTHING, class_="out", title=told, data_label=block)
    if tally.failed or tally.accepted:
        weight = (tally.failed or tally.accepted) / tally.cases
        return tag("td", f"{tally.passed}/{tally.cases}", title=told, data_label=block,
                   class_="broke" if tally.failed else "known",
                   style=f"--weight: {weight:.2f}")  # fmt: skip
    weight = math.log1p(tally.cases) / math.log1p(most)
    return tag("td", tally.cases, class_="held", title=told, style=f"--weight: {weight:.2f}",
               data_label=block)  # fmt: skip


def _figure_cells(title: str, dtype: str, tally: Tally) -> Iterable[Markup]:
    label = tag("td", tag("span", dtype, class_=f"dtype {dtype_class(dtype)}"))
    if not tally.cases:
        told = f"{count(tally.skipped, 'case')} skipped"
        return label, tag("td", told, class_="soft", colspan=6)
    compared = any(tally.histogram)
    worst = tag("code", local_id(tally.ratio_case, title)) if tally.ratio else None
    bars = histogram(tally.histogram, dtype) if compared else None
    ratio = number(tally.ratio) if compared else _NOTHING
    shown = in_ulp(tally.ulp, inside=tally.ratio <= 1)
    why = NO_ULP if shown == NOTHING else tally.ulp_case
    ulp = tag("span", shown, title=why) if compared else _NOTHING
    passed = (
        f"{tally.passed:,}"
        if tally.passed == tally.cases
        else (f"{tally.passed:,}/{tally.cases:,}")
    )
    return (
        label,
        tag("td", passed, class_="right bad" if tally.failed else "right good",
            data_label="passed"),
        tag("td", bars, data_label="errors in ulp" if bars else None,
            class_="bars"),
        tag("td", ulp, class_="right", data_label="worst ulp"),
        tag("td", ratio, class_="right bad" if tally.ratio > 1 else "right",
            data_label="of tolerance"),
        tag("td", milliseconds(tally.run_ns), class_="right", data_label="run, ms"),
        tag("td", worst, data_label="worst case" if worst else None, class_="worst"),
    )  # fmt: skip


def milliseconds(nanoseconds: int) -> str:
    """A time in milliseconds; a dash if a server tells none."""
    return number(nanoseconds / 1e6) if nanoseconds else _NOTHING


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
    """The part of an answer that fits; the rest is shown when the mouse is over it."""
    shown = answer if len(answer) <= _ANSWER else f"{answer[: _ANSWER - 2]} …"
    return tag("code", shown, title=answer if shown != answer else None)


def _ordered(blocks: set[str]) -> list[str]:
    """The blocks in the order in which they run; those that the suite does not know come last."""
    known = [block for block in BLOCKS if block in blocks]
    return known + sorted(blocks - set(known))


def _table(head: Markup, rows: Sequence[Child], class_: str | None = None) -> Markup:
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_=class_)
    return tag("div", table, class_="scroll")

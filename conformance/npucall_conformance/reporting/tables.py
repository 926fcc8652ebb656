"""The tables of a report, as plain data: a terminal and a page show the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from npucall_conformance.cases.blocks import BLOCKS
from npucall_conformance.judging.check import Sided
from npucall_conformance.reporting import wording
from npucall_conformance.reporting.report import Report, Tally
from npucall_conformance.reporting.wording import count, in_ulp, number

Tone: TypeAlias = Literal["", "good", "bad", "warn", "soft"]


@dataclass(frozen=True)
class Cell:
    """A text, and what it means for the verdict."""

    text: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class ReportTable:
    """Rows of cells below headings."""

    title: str
    texts: tuple[str, ...]
    """Headings of columns of texts, and behind these of numbers, and of prose."""
    numbers: tuple[str, ...] = ()
    prose: tuple[str, ...] = ()
    rows: list[list[Cell]] = field(default_factory=list)
    note: str = ""
    of_page: bool = False
    """It is too large for a terminal."""


def tables(report: Report) -> Iterator[ReportTable]:
    """Those that have something to show."""
    yield from (table for table in _all(report) if table.rows)


def _all(report: Report) -> Iterator[ReportTable]:
    yield _by_dtype(report)
    yield _by_block(report)
    yield ReportTable(
        "Documents against behaviour", ("row", "operator"),
        prose=("topic", "agrees with", "and not with"),
        rows=[_sides(outcome.title, sided) for outcome, sided in report.contradictions()],
        note="Where documents and sources contradict each other. docs/conformance.md explains the "
        "rows.",
    )  # fmt: skip
    known = [outcome for outcome in report.outcomes if outcome.status == "accepted"]
    yield ReportTable(
        "Known deviations", ("case",), prose=("how it deviates",), of_page=True,
        rows=[[Cell(each.case), Cell(each.reason)] for each in known],
    )  # fmt: skip


def _by_dtype(report: Report) -> ReportTable:
    rows, last = [], ""
    tallies = report.tallies("title", "dtype")
    for (title, dtype), tally in tallies.items():
        rows.append([Cell("" if title == last else title), Cell(dtype), *_row(tally, title)])
        last = title
    shown = [in_ulp(tally.ulp, inside=tally.inside) for tally in tallies.values()]
    note = wording.NO_ULP if wording.NOTHING in shown else ""
    numbers = ("passed", "of tolerance", "worst ulp", "run, ms")
    return ReportTable(
        "Operators and dtypes", ("operator", "dtype"), numbers, ("worst case",), rows, note
    )


def _row(tally: Tally, title: str) -> list[Cell]:
    passed = _passed(tally)
    if not tally.cases:
        return [passed]
    return [
        passed,
        Cell(number(tally.ratio), "" if tally.inside else "bad"),
        Cell(in_ulp(tally.ulp, inside=tally.inside)),
        Cell(number(tally.run_ns / 1e6) if tally.run_ns else wording.NOTHING),
        Cell(tally.ratio_case.removeprefix(f"{title}/") if tally.ratio else "", "soft"),
    ]


def _passed(tally: Tally) -> Cell:
    if not tally.cases:
        return Cell(count(tally.skipped, "skipped", "skipped"), "soft")
    tone: Tone = "bad" if tally.failed else "warn" if tally.accepted else "good"
    return Cell(f"{tally.passed}/{tally.cases}", tone)


def _by_block(report: Report) -> ReportTable:
    """A column for each block; empty where an operator has no case of it."""
    rows: dict[str, dict[str, Tally]] = {}
    for (title, block), tally in report.tallies("title", "block").items():
        rows.setdefault(title, {})[block] = tally
    there = {block for row in rows.values() for block in row}
    blocks = (*(block for block in BLOCKS if block in there), *sorted(there - BLOCKS.keys()))
    cells = [
        [Cell(title), *(_passed(row[block]) if block in row else Cell() for block in blocks)]
        for title, row in rows.items()
    ]
    return ReportTable("Operators and blocks", ("operator",), blocks, rows=cells, of_page=True)


def _sides(title: str, sided: Sided) -> list[Cell]:
    tone: Tone = "good" if sided.decided in sided.agrees else "warn"
    agrees = Cell("; ".join(sided.agrees), tone)
    if not sided.agrees:
        agrees = Cell(f"none of them: {sided.answer}", "bad")
    others = "; ".join(source for source in sided.sources if source not in sided.agrees)
    named = [Cell(str(sided.number)), Cell(title.removeprefix("aclnn")), Cell(sided.topic)]
    return [*named, agrees, Cell(others, "soft")]

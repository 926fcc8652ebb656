"""A report at a terminal: a progress bar while it runs, then tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column as ProgressPlace
from rich.text import Text

from npucall_client.commands.console import Column, output
from npucall_client.commands.console import show as print_all
from npucall_client.commands.console import table as columns_of
from npucall_conformance.reporting import wording
from npucall_conformance.reporting.causes import Cause, causes
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.reporting.tables import ReportTable, tables
from npucall_conformance.reporting.wording import clean, count

_SHOWN = 20
"""Causes that are shown."""
_NARROW = ProgressPlace(width=40, no_wrap=True, overflow="ellipsis")
_STYLES = {"": "", "good": "green", "bad": "bold red", "warn": "yellow", "soft": "dim"}


def progress(
    outcomes: Iterable[CaseOutcome], total: int | None, console: Console | None = None
) -> Iterator[CaseOutcome]:
    """Passes outcomes on. On a terminal, it also draws a bar of ``total`` cases.

    None: it is not known how many there will be.
    """
    console = console or Console(stderr=True, force_interactive=sys.stderr.isatty())
    columns = (
        TextColumn("{task.description}", markup=False, table_column=_NARROW),
        BarColumn(None), MofNCompleteColumn(), _Failed(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, expand=True, disable=not console.is_interactive
    ) as bar:
        task = bar.add_task("conform", total=total, failed=0)
        failed = 0
        for outcome in outcomes:
            failed += outcome.status == "failed"
            where = clean(f"{outcome.title.removeprefix('aclnn')} {outcome.block}")
            bar.update(task, advance=1, failed=failed, description=where)
            yield outcome


def show(report: Report, console: Console | None = None) -> None:
    """Prints what passed and what failed. No text of a report is read as rich's markup."""
    console = console or output()
    shown = [table for table in tables(report) if not table.of_page]
    for place, table in enumerate(shown):
        if place:
            console.print()
        _print(table, console, table.title if place else "")
    console.print()
    found = causes(report.failures)
    for cause in found[:_SHOWN]:
        console.print(_cause(report, cause), soft_wrap=True)
    if len(found) > _SHOWN:
        left = count(len(found) - _SHOWN, "more cause")
        console.print(Text(f"... and {left}; --html or --json has them all"))
    for line in wording.remarks(report):
        console.print(Text(clean(line)), soft_wrap=True)
    style = "bold green" if report.passed else "bold red"
    console.print(Text(f"{wording.verdict(report)}.", style), soft_wrap=True)


class _Failed(ProgressColumn):
    """How many have failed so far."""

    def render(self, task: Task) -> Text:
        failed = task.fields["failed"]
        return Text(f"{failed} failed", "bold red") if failed else Text("0 failed", "green")


def _print(table: ReportTable, console: Console, title: str) -> None:
    columns = [
        *(Column(clean(name)) for name in table.texts),
        *(Column(clean(name), number=True) for name in table.numbers),
        *(Column(clean(name), prose=True) for name in table.prose),
    ]
    rows = [[Text(clean(cell.text), _STYLES[cell.tone]) for cell in row] for row in table.rows]
    print_all(console, columns_of(columns, rows, console.width, title))
    if table.note:
        console.print(Text(table.note, "dim"), soft_wrap=True)


def _cause(report: Report, cause: Cause) -> Text:
    example = cause.example
    lines = [f"such as {example.case}"]
    lines += [f"  {each}" for each in (*example.problems, *wording.told(example.wrong))]
    return Text.assemble(
        (f"{count(len(cause.outcomes), 'case')} failed", "bold red"), f": {clean(cause.words)}",
        (f"\n  {clean(wording.scope(cause))}", "dim"),
        *(f"\n  {clean(line)}" for line in lines),
        (f"\n    {wording.rerun(report, example)}", "dim"),
    )  # fmt: skip

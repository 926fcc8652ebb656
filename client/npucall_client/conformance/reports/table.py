"""A report at a terminal: a progress bar while it runs, then tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from rich.table import Column, Table
from rich.text import Text

from npucall_client.conformance.reports.text import (
    clean,
    count,
    identity,
    local_id,
    number,
    rerun,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npucall_client.conformance.report import Outcome, Report, Sided, Tally

_SHOWN = 20
"""Failures that are shown in full."""
_NARROW = Column(width=40, no_wrap=True, overflow="ellipsis")


def progress(
    outcomes: Iterable[Outcome], total: int, console: Console | None = None
) -> Iterator[Outcome]:
    """Passes outcomes on while it draws a bar of ``total`` cases, on a terminal alone."""
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=_NARROW),
        BarColumn(None), MofNCompleteColumn(), _Failed(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, expand=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("conform", total=total, failed=0)
        failed = 0
        for outcome in outcomes:
            failed += outcome.status == "failed"
            where = clean(f"{outcome.title.removeprefix('aclnn')} {outcome.block}")
            bar.update(task, advance=1, failed=failed, description=where)
            yield outcome


def show(report: Report, console: Console | None = None) -> None:
    """Prints what held and what did not. Nothing of a report is read as rich's markup."""
    console = console or Console()
    if report.outcomes:
        console.print(_by_dtype(report))
    if report.contradictions():
        console.print(_sources(report))
    for outcome in report.failures[:_SHOWN]:
        console.print(_failure(report, outcome), soft_wrap=True)
    left = len(report.failures) - _SHOWN
    if left > 0:
        console.print(Text(f"... and {count(left, 'more failure')}; --html or --json has them all"))
    for line in _remarks(report):
        console.print(Text(clean(line)), soft_wrap=True)
    style = "bold green" if report.passed else "bold red"
    console.print(Text(f"{verdict(report)}.", style), soft_wrap=True)


class _Failed(ProgressColumn):
    """How many have failed so far."""

    def render(self, task: Task) -> Text:
        failed = task.fields["failed"]
        return Text(f"{failed} failed", "bold red") if failed else Text("0 failed", "green")


def _by_dtype(report: Report) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("operator", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    table.add_column("passed", no_wrap=True, justify="right")
    table.add_column("of tolerance", no_wrap=True, justify="right")
    table.add_column("worst ulp", no_wrap=True, justify="right")
    table.add_column("worst case", overflow="fold", style="dim")
    last = ""
    for (title, dtype), tally in report.by_operator_and_dtype().items():
        shown = "" if title == last else title
        table.add_row(Text(clean(shown)), Text(clean(dtype)), *_row(tally, title))
        last = title
    return table


def _row(tally: Tally, title: str) -> tuple[Text, ...]:
    if not tally.cases:
        return (Text(count(tally.skipped, "skipped", "skipped"), "dim"),)
    outside = "bold red" if tally.ratio > 1 else ""
    return (
        Text(f"{tally.passed}/{tally.cases}", "bold red" if tally.failed else "green"),
        Text(number(tally.ratio), outside),
        Text(number(tally.ulp)),
        Text(clean(local_id(tally.ratio_case, title)) if tally.ratio else ""),
    )


def _sources(report: Report) -> Table:
    table = Table(
        box=None, header_style="dim", pad_edge=False, title="Documents against behaviour",
        title_justify="left", title_style="bold",
    )  # fmt: skip
    table.add_column("row", justify="right", no_wrap=True)
    for heading in "operator", "topic", "agrees with", "and not with":
        table.add_column(heading, overflow="fold")
    for outcome in report.contradictions():
        sided = outcome.contradiction
        if sided is not None:
            cells = (outcome.title.removeprefix("aclnn"), sided.topic)
            texts = [Text(clean(cell)) for cell in cells]
            others = [source for source in sided.sources if source not in sided.agrees]
            table.add_row(
                str(sided.number), *texts, _agreement(sided), Text(clean("; ".join(others)), "dim")
            )
    return table


def _agreement(sided: Sided) -> Text:
    if not sided.agrees:
        return Text(clean(f"none of them: {sided.answer}"), "bold red")
    style = "green" if sided.decided in sided.agrees else "yellow"
    return Text(clean("; ".join(sided.agrees)), style)


def _failure(report: Report, outcome: Outcome) -> Text:
    text = Text.assemble(("failed ", "bold red"), clean(outcome.case))
    for problem in outcome.problems:
        text.append(f"\n  {clean(problem)}")
    return text.append(f"\n  {rerun(report, outcome)}", "dim")


def _remarks(report: Report) -> Iterator[str]:
    for reason, many in report.reasons_skipped().items():
        yield f"skipped {count(many, 'case')}: {reason}"
    if report.unstated:
        yield f"not judged, for no statement has them: {', '.join(report.unstated)}"
    beside = f" and {identity(report.against)}" if report.against else ""
    yield (
        f"{identity(report.server)}{beside}, profile {report.profile}, seed {report.seed}, "
        f"{report.seconds:.1f} s"
    )

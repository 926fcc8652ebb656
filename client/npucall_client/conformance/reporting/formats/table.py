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

from npucall_client.conformance.reporting.causes import causes
from npucall_client.conformance.reporting.formats.text import (
    clean,
    count,
    covered,
    identity,
    local_id,
    number,
    remarks,
    rerun,
    scope,
    told,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npucall_client.conformance.reporting.causes import Cause
    from npucall_client.conformance.reporting.pairs import Pair
    from npucall_client.conformance.reporting.report import Outcome, Report, Server, Sided, Tally

_SHOWN = 20
"""Causes that are shown."""
_NARROW = Column(width=40, no_wrap=True, overflow="ellipsis")


def progress(
    outcomes: Iterable[Outcome], total: int | None, console: Console | None = None
) -> Iterator[Outcome]:
    """Passes outcomes on while it draws a bar of ``total`` cases, on a terminal alone.

    None: nobody knows how many there will be.
    """
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
    if report.against is not None and report.pairs():
        console.print(_pairs(report, report.against))
    if report.contradictions():
        console.print(_sources(report))
    found = causes(report.failures)
    for cause in found[:_SHOWN]:
        console.print(_cause(report, cause), soft_wrap=True)
    if len(found) > _SHOWN:
        left = count(len(found) - _SHOWN, "more cause")
        console.print(Text(f"... and {left}; --html or --json has them all"))
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
        Text(f"{tally.passed}/{tally.cases}", _tone(tally)),
        Text(number(tally.ratio), outside),
        Text(number(tally.ulp)),
        Text(clean(local_id(tally.ratio_case, title)) if tally.ratio else ""),
    )


def _pairs(report: Report, against: Server) -> Table:
    """Both servers, and the first one's errors as multiples of the second's."""
    table = Table(
        box=None, header_style="dim", pad_edge=False, title="Two servers", title_justify="left",
        title_style="bold", caption_justify="left",
        caption="MARE, MERE and RMSE: times the errors of the second; small: wrong small values",
    )  # fmt: skip
    table.add_column("operator", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    for server in (report.server, against):
        table.add_column(Text(clean(server.target)), overflow="fold", justify="right")
        table.add_column("ulp", no_wrap=True, justify="right")
    for name in ("MARE", "MERE", "RMSE", "small", "level"):
        table.add_column(name, no_wrap=True, justify="right")
    for (title, dtype), pair in report.pairs().items():
        name = clean(title.removeprefix("aclnn"))
        table.add_row(Text(name), Text(clean(dtype)), *_pair(pair))
    return table


def _pair(pair: Pair) -> Iterator[Text]:
    for side in pair.sides:
        yield Text(f"{side.passed}/{pair.cases}", "green" if side.passed == pair.cases else "red")
        yield Text(number(side.ulp))
    if not any(side.figures.count for side in pair.sides):
        yield from [Text("")] * 5
        return
    times = pair.ratios
    yield from (Text(number(each)) for each in (times.mare, times.mere, times.rmse))
    yield Text("/".join(str(side.figures.small_errors) for side in pair.sides))
    yield Text(times.level or "none", "green" if times.level else "bold red")


def _tone(tally: Tally) -> str:
    if tally.failed:
        return "bold red"
    return "yellow" if tally.accepted else "green"


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


def _cause(report: Report, cause: Cause) -> Text:
    text = Text.assemble(
        (f"{count(len(cause.cases), 'case')} failed", "bold red"), f": {clean(cause.words)}",
        (f"\n  {clean(scope(cause))}", "dim"),
        f"\n  such as {clean(cause.example.case)}",
    )  # fmt: skip
    for problem in (*cause.example.problems, *told(cause.example.wrong)):
        text.append(f"\n    {clean(problem)}")
    return text.append(f"\n    {rerun(report, cause.example)}", "dim")


def _remarks(report: Report) -> Iterator[str]:
    yield from covered(report)
    yield from remarks(report)
    if report.unstated:
        yield f"not judged, for no statement has them: {', '.join(report.unstated)}"
    beside = f" and {identity(report.against)}" if report.against else ""
    yield (
        f"{identity(report.server)}{beside}, profile {report.profile}, seed {report.seed}, "
        f"{report.seconds:.1f} s"
    )

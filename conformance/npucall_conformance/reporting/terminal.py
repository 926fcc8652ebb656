"""A report at a terminal: a progress bar while it runs, then tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
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
from npucall_conformance.reporting.causes import causes
from npucall_conformance.reporting.coverage import Matrix
from npucall_conformance.reporting.wording import (
    NO_ULP,
    clean,
    count,
    covered,
    identity,
    in_ulp,
    local_id,
    number,
    remarks,
    rerun,
    scope,
    told,
    verdict,
    without_ulp,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npucall_conformance.reporting.causes import Cause
    from npucall_conformance.reporting.pairs import Pair
    from npucall_conformance.reporting.report import CaseOutcome, JudgedServer, Report, Sided, Tally

_TIMES = ("MARE", "MERE", "RMSE", "small", "level")
_SHOWN = 20
"""Causes that are shown."""
_NARROW = ProgressPlace(width=40, no_wrap=True, overflow="ellipsis")


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


def show(found: Report | Matrix, console: Console | None = None) -> None:
    """Prints what passed and what failed. No text of a report is read as rich's markup.

    Of several products those that do not conform are printed, then all of them as a table.
    """
    console = console or output()
    if isinstance(found, Matrix):
        for report in found.judged:
            if not report.passed:
                console.rule(Text(clean(f"{report.server.product} ({report.server.soc})")))
                show(report, console)
        print_all(console, _by_product(found, console.width))
    else:
        _show(found, console)
    style = "bold green" if found.passed else "bold red"
    console.print(Text(f"{verdict(found)}.", style), soft_wrap=True)


def _show(report: Report, console: Console) -> None:
    if report.outcomes:
        print_all(console, _by_dtype(report, console.width))
        if without_ulp(report.by_operator_and_dtype().values()):
            console.print(Text(NO_ULP, "dim"), soft_wrap=True)
    if report.against is not None and report.pairs():
        print_all(console, "", _pairs(report, report.against, console.width))
    if report.contradictions():
        print_all(console, "", _sources(report, console.width))
    console.print()
    found = causes(report.failures)
    for cause in found[:_SHOWN]:
        console.print(_cause(report, cause), soft_wrap=True)
    if len(found) > _SHOWN:
        left = count(len(found) - _SHOWN, "more cause")
        console.print(Text(f"... and {left}; --html or --json has them all"))
    for line in _remarks(report):
        console.print(Text(clean(line)), soft_wrap=True)


class _Failed(ProgressColumn):
    """How many have failed so far."""

    def render(self, task: Task) -> Text:
        failed = task.fields["failed"]
        return Text(f"{failed} failed", "bold red") if failed else Text("0 failed", "green")


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
        passed, skipped = f"{total.passed}/{total.cases}", str(total.skipped)
        said = report.verdict if there else "nothing of what was chosen is there"
        names = (Text(clean(server.product)), Text(clean(server.soc)))
        rows.append([*names, Text(passed, style), Text(skipped), Text(said, style)])
    return columns_of(columns, rows, width)


def _by_dtype(report: Report, width: int) -> RenderableType:
    columns = [
        *map(Column, ("operator", "dtype")),
        *(Column(name, number=True) for name in ("passed", "of tolerance", "worst ulp")),
        Column("worst case", prose=True),
    ]
    rows, last = [], ""
    for (title, dtype), tally in report.by_operator_and_dtype().items():
        shown = "" if title == last else title
        rows.append([Text(clean(shown)), Text(clean(dtype)), *_row(tally, title)])
        last = title
    return columns_of(columns, rows, width)


def _row(tally: Tally, title: str) -> tuple[Text, ...]:
    if not tally.cases:
        return (Text(count(tally.skipped, "skipped", "skipped"), "dim"),)
    outside = "bold red" if tally.ratio > 1 else ""
    return (
        Text(f"{tally.passed}/{tally.cases}", _tone(tally)),
        Text(number(tally.ratio), outside),
        Text(in_ulp(tally.ulp, inside=tally.ratio <= 1)),
        Text(clean(local_id(tally.ratio_case, title)) if tally.ratio else "", "dim"),
    )


def _pairs(report: Report, against: JudgedServer, width: int) -> RenderableType:
    """Both servers, and the first one's errors as multiples of the second's."""
    headings = (clean(report.server.target), "ulp", clean(against.target), "ulp")
    columns = [
        *map(Column, ("operator", "dtype")),
        *(Column(name, number=True) for name in (*headings, *_TIMES)),
    ]
    rows = [
        [Text(clean(title.removeprefix("aclnn"))), Text(clean(dtype)), *_pair(pair)]
        for (title, dtype), pair in report.pairs().items()
    ]
    caption = "MARE, MERE and RMSE: times the errors of the second; small: wrong small values"
    return Group(columns_of(columns, rows, width, "Two servers"), Text(caption, "dim"))


def _pair(pair: Pair) -> Iterator[Text]:
    for side in pair.sides:
        yield Text(f"{side.passed}/{pair.cases}", "green" if side.passed == pair.cases else "red")
        yield Text(in_ulp(side.ulp, inside=side.passed == pair.cases))
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


def _sources(report: Report, width: int) -> RenderableType:
    names = ("operator", "topic", "agrees with", "and not with")
    columns = [Column("row", number=True), *(Column(name, prose=True) for name in names)]
    rows = []
    for outcome in report.contradictions():
        sided = outcome.contradiction
        if sided is not None:
            cells = (outcome.title.removeprefix("aclnn"), sided.topic)
            texts = [Text(clean(cell)) for cell in (str(sided.number), *cells)]
            others = [source for source in sided.sources if source not in sided.agrees]
            rows.append([*texts, _agreement(sided), Text(clean("; ".join(others)), "dim")])
    return columns_of(columns, rows, width, "Documents against behaviour")


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

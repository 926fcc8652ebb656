"""A report at a terminal: a progress bar while it runs, then tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

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
from npucall_conformance.reporting import wording
from npucall_conformance.reporting.causes import Cause, causes
from npucall_conformance.reporting.coverage import Matrix
from npucall_conformance.reporting.pairs import Pair
from npucall_conformance.reporting.report import CaseOutcome, Report, Sided, Tally
from npucall_conformance.reporting.wording import clean, count, in_ulp, number

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
    console.print(Text(f"{wording.verdict(found)}.", style), soft_wrap=True)


def _show(report: Report, console: Console) -> None:
    tallies = report.by_operator_and_dtype()
    if tallies:
        print_all(console, _by_dtype(tallies, console.width))
    if any(in_ulp(each.ulp, inside=each.inside) == wording.NOTHING for each in tallies.values()):
        console.print(Text(wording.NO_ULP, "dim"), soft_wrap=True)
    if report.pairs():
        print_all(console, "", _pairs(report, console.width))
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


def _columns(words: str, *prose: str) -> list[Column]:
    """Columns with these headings, of which those after a bar are numbers; then those of prose."""
    texts, _, numbers = words.partition(" | ")
    return [
        *(Column(each) for each in filter(None, texts.split(", "))),
        *(Column(each, number=True) for each in filter(None, numbers.split(", "))),
        *(Column(each, prose=True) for each in prose),
    ]


def _by_product(matrix: Matrix, width: int) -> RenderableType:
    rows = []
    for report in matrix.reports:
        total, there = report.total(), report in matrix.judged
        style = "green" if report.passed else "bold red" if there else "dim"
        said = report.verdict if there else "nothing of what was chosen is there"
        names = (Text(clean(each)) for each in (report.server.product, report.server.soc))
        passed = Text(f"{total.passed}/{total.cases}", style)
        rows.append([*names, passed, Text(str(total.skipped)), Text(said, style)])
    return columns_of(_columns("product, as | passed, skipped", "verdict"), rows, width)


def _by_dtype(tallies: dict[tuple[str, str], Tally], width: int) -> RenderableType:
    rows, last = [], ""
    for (title, dtype), tally in tallies.items():
        shown = "" if title == last else title
        rows.append([Text(clean(shown)), Text(clean(dtype)), *_row(tally, title)])
        last = title
    columns = _columns("operator, dtype | passed, of tolerance, worst ulp", "worst case")
    return columns_of(columns, rows, width)


def _row(tally: Tally, title: str) -> tuple[Text, ...]:
    if not tally.cases:
        return (Text(count(tally.skipped, "skipped", "skipped"), "dim"),)
    tone = "bold red" if tally.failed else "yellow" if tally.accepted else "green"
    return (
        Text(f"{tally.passed}/{tally.cases}", tone),
        Text(number(tally.ratio), "" if tally.inside else "bold red"),
        Text(in_ulp(tally.ulp, inside=tally.inside)),
        Text(clean(wording.local_id(tally.ratio_case, title)) if tally.ratio else "", "dim"),
    )


def _pairs(report: Report, width: int) -> RenderableType:
    """Both servers, and the first one's errors as multiples of the second's."""
    servers = [clean(each.target) for each in (report.server, report.against) if each]
    headings = [each for server in servers for each in (server, "ulp")]
    columns = _columns("operator, dtype")
    columns += [Column(name, number=True) for name in (*headings, *_TIMES)]
    rows = [
        [Text(clean(title.removeprefix("aclnn"))), Text(clean(dtype)), *_pair(pair)]
        for (title, dtype), pair in report.pairs().items()
    ]
    caption = "MARE, MERE and RMSE: times the errors of the second; small: wrong small values"
    return Group(columns_of(columns, rows, width, "Two servers"), Text(caption, "dim"))


def _pair(pair: Pair) -> Iterator[Text]:
    for side in pair.sides:
        whole = side.passed == pair.cases
        yield Text(f"{side.passed}/{pair.cases}", "green" if whole else "red")
        yield Text(in_ulp(side.ulp, inside=whole))
    if not any(side.figures.count for side in pair.sides):
        yield from [Text("")] * len(_TIMES)
        return
    times = pair.ratios
    yield from (Text(number(each)) for each in (times.mare, times.mere, times.rmse))
    yield Text("/".join(str(side.figures.small_errors) for side in pair.sides))
    yield Text(times.level or "none", "green" if times.level else "bold red")


def _sources(report: Report, width: int) -> RenderableType:
    rows = []
    for outcome in report.contradictions():
        if (sided := outcome.contradiction) is not None:
            cells = (str(sided.number), outcome.title.removeprefix("aclnn"), sided.topic)
            others = [source for source in sided.sources if source not in sided.agrees]
            texts = [Text(clean(cell)) for cell in cells]
            rows.append([*texts, _agreement(sided), Text(clean("; ".join(others)), "dim")])
    columns = _columns(" | row", "operator", "topic", "agrees with", "and not with")
    return columns_of(columns, rows, width, "Documents against behaviour")


def _agreement(sided: Sided) -> Text:
    if not sided.agrees:
        return Text(clean(f"none of them: {sided.answer}"), "bold red")
    style = "green" if sided.decided in sided.agrees else "yellow"
    return Text(clean("; ".join(sided.agrees)), style)


def _cause(report: Report, cause: Cause) -> Text:
    example = cause.example
    lines = [f"such as {example.case}"]
    lines += [f"  {each}" for each in (*example.problems, *wording.told(example.wrong))]
    return Text.assemble(
        (f"{count(len(cause.cases), 'case')} failed", "bold red"), f": {clean(cause.words)}",
        (f"\n  {clean(wording.scope(cause))}", "dim"),
        *(f"\n  {clean(line)}" for line in lines),
        (f"\n    {wording.rerun(report, example)}", "dim"),
    )  # fmt: skip


def _remarks(report: Report) -> Iterator[str]:
    yield from wording.covered(report)
    yield from wording.remarks(report)
    if report.unstated:
        yield f"not judged, for no statement has them: {', '.join(report.unstated)}"
    beside = f" and {wording.identity(report.against)}" if report.against else ""
    yield (
        f"{wording.identity(report.server)}{beside}, profile {report.profile}, "
        f"seed {report.seed}, {report.seconds:.1f} s"
    )

"""``npucall usage``: who used a server, or several, how long."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from npucall.texts import size
from npucall.v1 import access_service_pb2 as pb
from npucall_client.client import connect
from npucall_client.commands.as_json import AsJson, data_of, print_json
from npucall_client.commands.console import Column, Targets, TargetsOption, output, show, table
from npucall_client.commands.texts import seconds_of
from npucall_client.pool.sums import WHO, sum_of_usage

_NUMBERS = ("calls", "frames", "sent", "answered", "device s")


def usage(  # noqa: PLR0913  # options of a command
    targets: Targets = None,
    last: Annotated[
        str, typer.Option(metavar="TIME", help="Only the last 90s, 15m, 1h or 7d. 0: all of it.")
    ] = "0",
    since: Annotated[
        str, typer.Option(metavar="DATE", help="Only since a day such as 2026-11-16, or an hour.")
    ] = "",
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="WHO", help=f"{', '.join(WHO)}: a line for each; give it again."),
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002  # a flag
    target: TargetsOption = None,
) -> None:
    """Shows who used servers, and how long.

    A line for each caller and operator: calls, bytes, device time, refusals. You see your own
    lines; with the role admin you see those of everybody. The members of a pool, or several
    servers, are added up. Whole minutes count, and whole hours of what is older than two hours.

    Examples:
        npucall usage --target npu-host:50051 --last 24h
        npucall usage pool:directory:head.lab --since 2026-11-16 --by tenant
        npucall usage --target npu-a:50051 --target npu-b:50051 --json
    """
    seconds = _seconds(last, since)
    if wrong := set(by or ()) - set(WHO):
        raise ValueError(f"by: expected {', '.join(WHO)}, found {', '.join(sorted(wrong))}")
    answers = list[pb.GetUsageResponse]()
    for each in [*(targets or ()), *(target or ())] or [None]:
        with connect(each) as client:
            answers.append(client.usage(seconds).message)
    answer = sum_of_usage(answers, by or WHO)
    if as_json:
        print_json(data_of(answer))
        return
    console = output()
    numbers = [Column(name, number=True) for name in _NUMBERS]
    columns = [*map(Column, WHO), *numbers, Column("refused")]
    show(console, table(columns, _rows(answer.lines), console.width))
    begin = datetime.fromtimestamp(answer.since, UTC).isoformat(" ", "seconds")
    print(f"the account begins {begin}" if answer.since else "no account is kept here")


def _seconds(last: str, since: str) -> float:
    """The seconds to ask for; 0: all. Raises ValueError."""
    if not since:
        return seconds_of(last)
    if last != "0":
        raise ValueError(f"since: expected it or last, found {since} and {last}")
    try:
        passed = time.time() - datetime.fromisoformat(since).timestamp()
    except ValueError:
        raise ValueError(
            f"since: expected a day such as 2026-11-16, or an hour such as 2026-11-16T09:00, found "
            f"{since}"
        ) from None
    if passed <= 0:
        raise ValueError(f"since: expected a time that has passed, found {since}")
    return passed


def _rows(lines: Iterable[pb.UsageLine]) -> list[list[str]]:
    """The cells of the table, the sums below."""
    rows, sums = [], [0.0] * len(_NUMBERS)
    for line in lines:
        calls = line.calls, line.calls_in_frames
        numbers = (*calls, line.request_bytes, line.response_bytes, line.device_seconds)
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        who = map(escape, (line.tenant, line.caller, line.operator.removeprefix("aclnn")))
        rows.append([*who, *_shown(*numbers), _refusals(line.refusals)])
    return [*rows, [f"[bold]{cell}[/bold]" for cell in ("in all", "", "", *_shown(*sums))]]


def _shown(
    calls: float, in_frames: float, sent: float, answered: float, seconds: float
) -> tuple[str, ...]:
    return f"{calls:,.0f}", f"{in_frames:,.0f}", size(sent), size(answered), f"{seconds:,.3f}"


def _refusals(counts: Any) -> str:
    return "\n".join(f"{count} {reason}" for reason, count in sorted(counts.items()))

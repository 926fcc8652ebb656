"""``npucall usage``: who used a server, or several, how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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

_WHO = ("tenant", "caller", "operator")
_AMOUNTS = ("calls", "request_bytes", "response_bytes", "device_seconds", "calls_in_frames")
_NUMBERS = ("calls", "frames", "sent", "answered", "device s")


def usage(
    targets: Targets = None,
    last: Annotated[
        str, typer.Option(metavar="TIME", help="Only the last 90s, 15m, 1h or 7d. 0: all of it.")
    ] = "0",
    as_json: AsJson = False,  # noqa: FBT002  # a flag
    target: TargetsOption = None,
) -> None:
    """Shows who used servers, and how long.

    A line for each caller and operator: calls, bytes, device time, refusals. You see your own
    lines; with the role admin you see those of everybody. Several servers are added up.

    Examples:
        npucall usage --target npu-host:50051 --last 24h
        npucall usage --target npu-a:50051 --target npu-b:50051 --json
    """
    answers, several = (
        list[pb.GetUsageResponse](),
        list[str | None]([*(targets or ()), *(target or ())]),
    )
    for each in several or [None]:
        with connect(each) as client:
            answers.append(client.usage(seconds_of(last)))
    answer = added_up(answers)
    if as_json:
        print_json(data_of(answer))
        return
    console = output()
    numbers = [Column(name, number=True) for name in _NUMBERS]
    columns = [*map(Column, _WHO), *numbers, Column("refused")]
    show(console, table(columns, _rows(answer.lines), console.width))
    begin = datetime.fromtimestamp(answer.since, UTC).isoformat(" ", "seconds")
    print(f"the account begins {begin}" if answer.since else "no account is kept here")


def added_up(answers: Sequence[pb.GetUsageResponse]) -> pb.GetUsageResponse:
    """The accounts of several servers as one: a line for each tenant, caller and operator."""
    lines: dict[tuple[str, str, str], pb.UsageLine] = {}
    for line in (line for answer in answers for line in answer.lines):
        total = lines.setdefault((line.tenant, line.caller, line.operator), pb.UsageLine())
        refusals = Counter(total.refusals) + Counter(line.refusals)
        total.tenant, total.caller, total.operator = line.tenant, line.caller, line.operator
        for amount in _AMOUNTS:
            setattr(total, amount, getattr(total, amount) + getattr(line, amount))
        total.refusals.update(refusals)
    begins = [answer.since for answer in answers if answer.since]
    return pb.GetUsageResponse(
        lines=[lines[key] for key in sorted(lines)], since=min(begins, default=0.0)
    )


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

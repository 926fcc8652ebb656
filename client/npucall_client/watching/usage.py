"""``npucall usage``: who used a server, or several, how long."""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from npucall.v1 import access_service_pb2 as pb
from npucall_client.client import connect
from npucall_client.watching.texts import seconds_of, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
except ImportError:
    sys.exit("npucall: expected the extra cli, found it missing: pip install 'npucall-client[cli]'")

_NUMBERS = ("calls", "sent", "answered", "device s")


def usage(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="HOST:PORT or unix:PATH, of several servers added up; else NPUCALL_TARGET, "
            "127.0.0.1:50051.",
        ),
    ] = None,
    last: Annotated[
        str, typer.Option(help="Only the last 90s, 15m, 1h or 7d; else all that is known.")
    ] = "0",
    as_json: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--json", help="Print JSON, with everything as numbers.")
    ] = False,
) -> None:
    """Who used servers how long: calls, bytes, device time and refusals, by operator.

    Your own lines; those of everybody if your role is admin.
    """
    answers, several = list[pb.GetUsageResponse](), list[str | None](targets or ())
    for target in several or [None]:
        with connect(target) as client:
            answers.append(client.usage(seconds_of(last)))
    answer = added_up(answers)
    if as_json:
        print(json.dumps(as_data(answer), indent=2))
        return
    console = Console()
    console.print(_table(answer.lines))
    begin = datetime.fromtimestamp(answer.since, UTC).isoformat(" ", "seconds")
    console.print(f"the account begins {begin}" if answer.since else "no account is kept here")


def added_up(answers: Sequence[pb.GetUsageResponse]) -> pb.GetUsageResponse:
    """The accounts of several servers as one: a line for each tenant, caller and operator."""
    lines: dict[tuple[str, str, str], pb.UsageLine] = {}
    for line in (line for answer in answers for line in answer.lines):
        total = lines.setdefault((line.tenant, line.caller, line.operator), pb.UsageLine())
        refusals = Counter(total.refusals) + Counter(line.refusals)
        total.tenant, total.caller, total.operator = line.tenant, line.caller, line.operator
        for amount in "calls", "request_bytes", "response_bytes", "device_seconds":
            setattr(total, amount, getattr(total, amount) + getattr(line, amount))
        total.refusals.update(refusals)
    begins = [answer.since for answer in answers if answer.since]
    return pb.GetUsageResponse(
        lines=[lines[key] for key in sorted(lines)], since=min(begins, default=0.0)
    )


def as_data(answer: pb.GetUsageResponse) -> dict[str, Any]:
    """An answer as what JSON can hold."""
    return {
        "since": answer.since,
        "lines": [
            {
                "tenant": line.tenant,
                "caller": line.caller,
                "operator": line.operator,
                "calls": line.calls,
                "request_bytes": line.request_bytes,
                "response_bytes": line.response_bytes,
                "device_seconds": line.device_seconds,
                "refusals": dict(sorted(line.refusals.items())),
            }
            for line in answer.lines
        ],
    }


def _table(lines: Iterable[pb.UsageLine]) -> Table:
    table = Table(box=None)
    for heading in "tenant", "caller", "operator":
        table.add_column(heading, overflow="fold")
    for heading in _NUMBERS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("refused", overflow="fold")
    sums = [0.0] * len(_NUMBERS)
    for line in lines:
        numbers = (line.calls, line.request_bytes, line.response_bytes, line.device_seconds)
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        who = map(escape, (line.tenant, line.caller, line.operator.removeprefix("aclnn")))
        table.add_row(*who, *_shown(*numbers), _refusals(line.refusals))
    table.add_section()
    table.add_row("", "", "in all", *_shown(*sums), "", style="bold")
    return table


def _shown(calls: float, sent: float, answered: float, seconds: float) -> tuple[str, ...]:
    return f"{calls:,.0f}", size(sent), size(answered), f"{seconds:,.3f}"


def _refusals(counts: Any) -> str:
    return "\n".join(f"{count} {reason}" for reason, count in sorted(counts.items()))

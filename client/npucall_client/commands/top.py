"""``npucall top``: what servers do now."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from npucall.errors import NpucallError
from npucall.texts import duration, size
from npucall.v1 import access_service_pb2, operator_service_pb2
from npucall_client.client import Client, connect
from npucall_client.commands.as_json import AsJson, data_of, print_json
from npucall_client.commands.command_texts import HEALTH, busy_units, holder_of
from npucall_client.commands.console import Column, Targets, TargetsOption, output, show, table
from npucall_client.commands.exits import ExitCode

_PAUSE_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
_MINUTE = 60.0
_HEADINGS = ("calls", "streams", "holds", "calls/min", "frames/min", "device s/min")


class Seen(NamedTuple):
    """What a server said of itself."""

    info: operator_service_pb2.GetServerInfoResponse
    activity: access_service_pb2.GetActivityResponse


class WatchedServer:
    """One server, asked again and again, whether it answers or not.

    ``client``: a connection to it that there is already.
    """

    def __init__(self, target: str, client: Client | None = None) -> None:
        self.target = target
        self._client = client

    @property
    def answers(self) -> bool:
        """Whether it was there when it was asked."""
        return self._client is not None

    def look(self) -> Seen | str:
        """What it says, or why it says nothing."""
        try:
            if self._client is None:
                self._client = connect(
                    self.target or None,
                    timeout=_PATIENCE_SECONDS,
                    connect_timeout=_PATIENCE_SECONDS,
                )
            return Seen(self._client.server_info(), self._client.activity())
        except NpucallError as error:
            return f"{error} ({error.reason})"

    def close(self) -> None:
        """Gives the connection back."""
        if self._client is not None:
            self._client.close()


def top(
    targets: Targets = None,
    once: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--once", help="Print it once and end.")
    ] = False,
    as_json: AsJson = False,  # noqa: FBT002  # a flag
    target: TargetsOption = None,
) -> None:
    """Shows what servers do now, each second until Ctrl-C.

    For each server: its device, its queue, and who calls. In a pipe, and with --json, it prints
    once and ends.

    Examples:
        npucall top --target npu-host:50051
        npucall top --target npu-a:50051 --target npu-b:50051 --once
    """
    console = output()
    watched = [WatchedServer(each) for each in [*(targets or ()), *(target or ())] or [""]]
    try:
        with ThreadPoolExecutor(len(watched)) as threads:
            if once or as_json or not console.is_terminal:
                if as_json:
                    seen = zip(watched, threads.map(WatchedServer.look, watched), strict=True)
                    print_json([_data(*each) for each in seen])
                else:
                    show(console, shown(watched, threads, console.width))
                if not any(each.answers for each in watched):
                    raise typer.Exit(ExitCode.FAILED)
                return
            first = shown(watched, threads, console.width)
            with Live(first, console=console, auto_refresh=False) as live:
                while True:
                    time.sleep(_PAUSE_SECONDS)
                    live.update(shown(watched, threads, console.width), refresh=True)
    except KeyboardInterrupt:
        pass
    finally:
        for each in watched:
            each.close()


def _data(server: WatchedServer, seen: Seen | str) -> dict[str, Any]:
    told = (
        {"failure": seen}
        if isinstance(seen, str)
        else {name: data_of(message) for name, message in seen._asdict().items()}
    )
    return {"target": server.target, **told}


def shown(watched: list[WatchedServer], threads: ThreadPoolExecutor, width: int) -> RenderableType:
    """All servers, one below the other."""
    seen = threads.map(WatchedServer.look, watched)
    both = zip(watched, seen, strict=True)
    return Group(*(_server(each.target, found, width) for each, found in both))


def _server(target: str, seen: Seen | str, width: int) -> RenderableType:
    if isinstance(seen, str):
        return Group(f"[bold]{escape(target)}[/bold]  [red]{escape(seen)}[/red]", "")
    return Group(_heading(target, seen), *_facts(seen), _callers(seen.activity, width), "")


def _heading(target: str, seen: Seen) -> str:
    info = seen.info
    server = f"{info.server.device} as {info.server.soc}, up {duration(info.uptime_seconds)}"
    name = f"[bold]{escape(target)}[/bold]  " if target else ""
    return f"{name}{escape(server)}"


def _facts(seen: Seen) -> list[str]:
    """Lines on the device, its queue, its memory, and who has reserved it."""
    info, now = seen.info, seen.activity
    lanes = max(now.lanes, 1)
    busy = now.device_seconds / (min(max(info.uptime_seconds, 1.0), _MINUTE) * lanes)
    calls = f"{now.waiting} calls wait, {info.calls_in_flight} in flight"
    facts = [
        f"{now.running} of {lanes} turns taken, {calls}; held {busy:.0%} of the last minute",
    ]
    if limit := info.limits.memory_limit:
        facts.append(f"{size(info.bytes_in_flight)} of {size(limit)} in use")
    if device := _device(info.device):
        facts.append(device)
    if now.HasField("reservation"):
        held = now.reservation
        facts.append(
            f"[yellow]reserved by {escape(holder_of(held))}[/yellow] for "
            f"{duration(held.ends_seconds)}, {held.waiting} wait for it"
        )
    return facts


def _device(device: operator_service_pb2.DeviceInfo) -> str:
    facts = []
    if device.memory_total_bytes:
        taken = device.memory_total_bytes - device.memory_free_bytes
        facts.append(f"device memory {size(taken)} of {size(device.memory_total_bytes)}")
    facts += busy_units(device)
    if health := HEALTH.get(device.health):
        well = device.health == operator_service_pb2.DEVICE_HEALTH_NORMAL
        facts.append(f"health {health if well else f'[red]{health}[/red]'}")
    return ", ".join(facts)


def _callers(now: access_service_pb2.GetActivityResponse, width: int) -> RenderableType:
    rows: list[list[str | Text]] = [
        [
            Text(each.caller.tenant),
            Text(each.caller.name),
            str(each.calls),
            str(each.streams),
            size(each.bytes),
            f"{each.calls_answered:,}",
            f"{each.calls_in_frames:,}",
            f"{each.device_seconds:.2f}",
        ]
        for each in sorted(now.callers, key=lambda line: -line.device_seconds)
    ]
    columns = [
        *map(Column, ("tenant", "caller")),
        *(Column(heading, number=True) for heading in _HEADINGS),
    ]
    return table(columns, rows, width) if rows else "nobody has called in the last minute"

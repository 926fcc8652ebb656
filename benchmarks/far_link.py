"""``make bench-far``: calls over a slow link, compared with what the link itself allows.

It shows how calls far away behave [src:far-links]. The link is a wire between two network
namespaces of this machine: 20 ms there and back, 100 Mbit/s, unless told otherwise. It needs root,
and says so where it cannot run (exit code 3). See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cases import NOT_SENT, TENSORS
from figures import KIB, MIB, Series, compared
from goals import FAR_GOALS, rows_of
from link import SERVER_HOST, Ends, FarServer, Link, command_at, far_server, missing
from report import as_json, figure_table, goal_table, summary
from resident import CALL_BY_CALL, CONSTANT, IN_A_PROGRAM
from rich.console import Console
from workers import Worker
from yardstick import WINDOWS, running_yardstick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from figures import Figure

NOT_POSSIBLE = 3
"""Exit code where no wire can be laid."""
_CONSTANT = 64 * MIB
_SENT, _UNREAD = 16 * MIB, 1
"""Of a tensor of the large call; how many of its inputs are not sent, since nobody reads them."""


class Kernel(NamedTuple):
    """What the kernel alone gets through the link."""

    round_trip: float
    up: float
    """Seconds of ``_SENT`` bytes, unless told otherwise, to the server."""


class Site(NamedTuple):
    """Where the measurements happen."""

    link: Link
    ends: Ends
    server: FarServer
    kernel: Kernel
    rounds: int

    @contextmanager
    def worker(self, way: str, size: int, target: str = "") -> Iterator[Worker]:
        """A client with tensors of that size, which has made a call."""
        with Worker(way, target or self.server.target, self.ends.client) as worker:
            worker.ask("check")
            worker.ask("tensors", size, "float32")
            worker.ask("open", 1)
            worker.ask("once")
            yield worker

    def seconds(self, worker: Worker) -> list[float]:
        """Of a call, in each round."""
        return [worker.ask("once")["seconds"] for _ in range(self.rounds)]

    def on_wire(self, size: int) -> float:
        """Seconds of so many bytes at the wire's rate."""
        return size * 8 / self.link.rate


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, writes; answers the exit code."""
    options = _options(arguments)
    if lacking := missing():
        print(f"bench-far: skipped: {lacking}", file=sys.stderr)
        return NOT_POSSIBLE
    link = Link("far link", options.round_trip / 1e3, options.rate * 1e6)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with _site(link, options.rounds) as site:
        console.print(_described(site))
        rows = rows_of(_figures(site, options.only), FAR_GOALS)
    console.print(figure_table(rows), "", goal_table(rows), "", summary(rows), sep="\n")
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "bench-far.json").write_text(as_json(rows))
    return int(options.check and any(row.must_missed for row in rows))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--round-trip", type=float, default=20.0, help="of the wire, ms")
    parser.add_argument("--rate", type=float, default=100.0, help="of the wire, Mbit/s")
    parser.add_argument("--only", default="", metavar="TEXT", help="what has this in its name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("build"), help="of the JSON")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a must is missed")
    return parser.parse_args(arguments)


@contextmanager
def _site(link: Link, rounds: int) -> Iterator[Site]:
    with link.up() as ends, far_server(ends, f"--digest-cache-bytes={2 * _CONSTANT}") as server:
        yield Site(link, ends, server, _kernel(ends), rounds)


def _kernel(ends: Ends, size: int = _SENT) -> Kernel:
    command = command_at(ends.server, "tcp.py", "serve", SERVER_HOST)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            if serving.stdout is None:
                raise RuntimeError("tcp.py has no output")
            port = serving.stdout.readline().strip()
            measure = command_at(ends.client, "tcp.py", "measure", SERVER_HOST, port, str(size))
            done = subprocess.run(measure, check=True, capture_output=True, text=True)
        finally:
            serving.kill()
    return Kernel(**json.loads(done.stdout))


def _described(site: Site) -> str:
    rate = _SENT * 8 / site.kernel.up / 1e6
    return (
        f"wire: {site.link.round_trip * 1e3:g} ms, {site.link.rate / 1e6:g} Mbit/s; "
        f"the kernel alone: {site.kernel.round_trip * 1e3:.1f} ms, {rate:.1f} Mbit/s"
    )


def _figures(site: Site, only: str) -> Iterator[Figure]:
    for name, measured in MEASURED.items():
        if only in name:
            print(f"      {name}", file=sys.stderr, flush=True)
            yield measured(site, name)


def _beside(name: str, ours: Sequence[float], floor: float, unit: str = "s") -> Figure:
    series = Series(f"far link, {name}", "lower", unit)
    return compared(series, ours, [floor] * len(ours))


def _small(site: Site, name: str) -> Figure:
    with site.worker(NOT_SENT, KIB) as worker:
        return _beside(name, site.seconds(worker), site.link.round_trip)


def _large(site: Site, name: str) -> Figure:
    with site.worker(NOT_SENT, _SENT) as worker:
        return _beside(name, site.seconds(worker), site.on_wire((TENSORS - _UNREAD) * _SENT))


def _grpc(windows: str) -> Callable[[Site, str], Figure]:
    """The yardstick, which is plain gRPC: it sends every input."""

    def measured(site: Site, name: str) -> Figure:
        with (
            running_yardstick(*site.ends.server, host=SERVER_HOST, windows=windows) as (target, _),
            site.worker(f"yardstick, {windows}", _SENT, target) as worker,
        ):
            return _beside(name, site.seconds(worker), site.on_wire(TENSORS * _SENT))

    return measured


def _chain(way: str) -> Callable[[Site, str], Figure]:
    """20 operators over a resident tensor, of which one element comes down."""

    def measured(site: Site, name: str) -> Figure:
        with site.worker(way, 64 * KIB) as worker:
            return _beside(name, site.seconds(worker), site.link.round_trip)

    return measured


def _again(site: Site, name: str) -> Figure:
    """What the first run has sent, the second one does not."""
    with Worker(CONSTANT, site.server.target, site.ends.client) as worker:
        worker.ask("tensors", _CONSTANT, "float32")
        worker.ask("open", 1)
        worker.ask("once")
        before = site.server.bytes_on_wire()
        worker.ask("once")
        again = site.server.bytes_on_wire() - before
    return _beside(name, [float(again)], _CONSTANT, "bytes")


MEASURED: dict[str, Callable[[Site, str], Figure]] = {
    "1 KiB, round trips": _small,
    "16 MiB, time / bytes at the wire's rate": _large,
    "20 operators on resident data, a program, round trips": _chain(IN_A_PROGRAM),
    "20 operators on resident data, call by call, round trips": _chain(CALL_BY_CALL),
    "64 MiB constant, second run, bytes on the wire / bytes": _again,
    **{f"16 MiB, plain gRPC, {windows}": _grpc(windows) for windows in WINDOWS},
}
"""What is measured, by name."""


if __name__ == "__main__":
    sys.exit(main())

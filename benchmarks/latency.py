"""How long calls take from where people sit: the table of docs/sessions.md, in Markdown.

``python benchmarks/latency.py``: a laptop far away and a host of the same lab, each over a wire as
that of ``make bench-far``, and the server's own host over loopback. Medians, in milliseconds. The
wire of a lab is as fast as this machine moves packets from one namespace to the other.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from cases import NOT_SENT, RESIDENT, STEP, TEACHER
from figures import KIB, MIB
from link import Link, far_server, missing
from resident import CALL_BY_CALL, IN_A_PROGRAM
from workers import Worker

from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LINKS = Link("laptop", 0.020, 100e6), Link("lab", 0.0003, 1e9), None
"""The last one is loopback."""
ROWS = {
    "a call of 1 KiB": (NOT_SENT, KIB),
    "a call of 16 MiB a tensor": (NOT_SENT, 16 * MIB),
    "KL step of 16 MiB, teacher sent": (STEP, 16 * MIB),
    "KL step of 16 MiB, teacher resident": (TEACHER, 16 * MIB),
    "KL step of 16 MiB, result kept too": (RESIDENT, 16 * MIB),
    "20 operators on 64 KiB, call by call": (CALL_BY_CALL, 64 * KIB),
    "20 operators on 64 KiB, one program": (IN_A_PROGRAM, 64 * KIB),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; answers the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args(arguments).rounds
    if lacking := missing():
        print(f"latency: skipped: {lacking}", file=sys.stderr)
        return 3
    columns = [_column(link, rounds) for link in LINKS]
    heads = [f"{link.name}, {link.round_trip * 1e3:g} ms, {link.rate / 1e6:g} Mbit/s" if link
             else "same host" for link in LINKS]  # fmt: skip
    print(f"| ms | {' | '.join(heads)} |\n|---{'|---' * len(heads)}|")
    for row, *values in zip(ROWS, *columns, strict=True):
        print(f"| {row} | {' | '.join(map(_text, values))} |")
    return 0


def _column(link: Link | None, rounds: int) -> list[float]:
    with _server(link) as (target, inside):
        return [_milliseconds(target, inside, *row, rounds) for row in ROWS.values()]


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"  # noqa: PLR2004


@contextmanager
def _server(link: Link | None) -> Iterator[tuple[str, Sequence[str]]]:
    """A server's target, and what the command of its client begins with."""
    if link is None:
        with running_server("--log-calls=errors") as near:
            yield near.target, ()
        return
    with link.up() as ends, far_server(ends) as far:
        yield far.target, ends.client


def _milliseconds(target: str, inside: Sequence[str], way: str, size: int, rounds: int) -> float:
    with Worker(way, target, inside) as worker:
        worker.ask("tensors", size, "float32")
        worker.ask("open", 1)
        worker.ask("once")
        return median(worker.ask("once")["seconds"] for _ in range(rounds)) * 1e3


if __name__ == "__main__":
    sys.exit(main())

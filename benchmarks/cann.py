"""``make bench-cann``: what our code costs round CANN's, on the simulator, without kernels.

An NPU's own times are not measured: no speed of a simulator says anything about hardware.

Host: every C function that the device has bound is exchanged for one that looks at the clock, calls
it and looks again (``cann_clock.cpp``), so that the time in C of each call is known. What is left
of ``device.run``, from entry to return, is ours: Python; ctypes, with taking the interpreter's lock
again; two changes of thread; the looks at the clock. Steps are the same time, cut where methods
begin and end (``cann_steps.py``). "C empty" is the cross-check: C functions return 0 at once, so
that nothing waits, and nothing leaves the caches by waiting.

Copies: a call of three tensors of 64 MiB, copied as a whole, in pieces and waiting
(``cann_copies.py``).

Lanes: eight calls come 40 ms apart to one, two and four lanes, with simulated times of copies and
kernels; a trace says what ran when. A simulated lane copies and computes at full speed whatever the
others do. So the gain says how little lanes hold each other up on the host, no more.

Server: calls to a server process with a simulated NPU and to one with the CPU device, in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cann_copies import copies_in_turn
from cann_device import use_simulator
from cann_host import host_time, program_time
from cann_lanes import lanes_in_turn
from cann_picture import picture_of
from cann_service import compare
from cann_steps import STEPS, without_wrappers
from cann_timeline import trace_of
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_copies import Copied
    from cann_host import HostTime
    from cann_lanes import Lanes
    from cann_service import Compared
    from cann_steps import Step

KIB, MIB = 1 << 10, 1 << 20
PARTS = ("host", "copies", "lanes", "server")
OURS_MUST = 150
STEPS_OF_A_PROGRAM, A_STEP_MUST = 100, 25


@dataclass(frozen=True)
class Figure:
    """An object of the JSON file; ``must`` is the goal, None where there is none."""

    name: str
    absolute: float
    unit: str
    must: float | None
    better: str


def main() -> int:
    """Measures, prints, writes."""
    options = _options()
    console, simulated = Console(), use_simulator()
    figures: list[Figure] = []
    if "host" in options.only:
        figures += _host(console, options.rounds, options.calls)
    if "copies" in options.only:
        figures += _copies(console, copies_in_turn(simulated, options.rounds))
    if "lanes" in options.only:
        lanes = lanes_in_turn(simulated, options.rounds, options.lanes)
        figures += _lanes(console, lanes)
        runs = {f"{n.count} lane{'s' * (n.count > 1)}": n.spans for n in lanes}
        _write(options.trace, json.dumps(trace_of(runs)))
        _write(options.picture, picture_of(runs))
    if "server" in options.only:
        figures += _server(console, compare(options.rounds, options.calls))
    _write(options.json, json.dumps([dataclasses.asdict(f) for f in figures], indent=1))
    violations = simulated.control.violations()
    console.print(*violations, sep="\n", end="")
    return 1 if violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=600, help="small calls a measurement")
    parser.add_argument("--lanes", type=int, nargs="+", default=(1, 2, 4), metavar="COUNT")
    parser.add_argument("--json", type=Path, default=Path("build/bench-cann.json"))
    parser.add_argument("--trace", type=Path, default=Path("build/cann-trace.json"))
    parser.add_argument("--picture", type=Path, default=Path("build/cann-timeline.svg"))
    return parser.parse_args()


def _host(console: Console, rounds: int, calls: int) -> list[Figure]:
    small = host_time(KIB, rounds, calls)
    large_calls = max(calls // 60, 1)
    large = host_time(16 * MIB, rounds, large_calls)
    waiting = host_time(16 * MIB, rounds, large_calls, staging_limit=0)
    table = Table("device.run, us", "whole", "ours", "in C", "C empty", box=None)
    for name, host in ("1 KiB", small), ("16 MiB, in pieces", large), ("16 MiB, waiting", waiting):
        table.add_row(name, *(f"{value:.0f}" for value in host[:4]))
    program = program_time(KIB, STEPS_OF_A_PROGRAM, rounds, max(calls // 20, 1))
    name = f"1 KiB, a step of {STEPS_OF_A_PROGRAM}"
    table.add_row(name, *(f"{value:.1f}" for value in program))
    console.print(table, _functions(small))
    console.print(_steps("1 KiB, us", {"": without_wrappers(small.steps, small.ours)}, 1))
    console.print(_steps("16 MiB, ms", {"in pieces": large.steps, "waiting": waiting.steps}, 1e-3))
    return [
        Figure("1 KiB, host, ours", small.ours, "us", OURS_MUST, "lower"),
        Figure("1 KiB, host, ours, C empty", small.empty, "us", None, "lower"),
        Figure("1 KiB, a step of a program, host, ours", program.ours, "us", A_STEP_MUST, "lower"),
        Figure("1 KiB, a step of a program, C empty", program.empty, "us", None, "lower"),
        Figure("16 MiB, in pieces, host, ours", large.ours, "us", None, "lower"),
        Figure("16 MiB, waiting, host, ours", waiting.ours, "us", None, "lower"),
    ]


def _steps(title: str, columns: dict[str, dict[str, Step]], scale: float) -> Table:
    heads = (f"{name} {part}".strip() for name in columns for part in ("ours", "in C"))
    table = Table(title, *heads, box=None)
    for step in STEPS:
        both = (value for steps in columns.values() for value in steps[step][:2])
        table.add_row(step, *(f"{value * scale:.1f}" for value in both))
    return table


def _functions(host: HostTime) -> Table:
    table = Table("C function", "calls", "us each", box=None)
    for name, function in host.functions.items():
        table.add_row(name, f"{function.calls:.0f}", f"{function.microseconds:.1f}")
    return table


def _copies(console: Console, copies: Sequence[Copied]) -> list[Figure]:
    heads = ("3 x 64 MiB, copies", "GB/s", "call, ms", "ratio to waiting", "in, ms", "out, ms")
    table = Table(*heads, box=None)
    for each in copies:
        times = (each.milliseconds, each.copy_in, each.copy_out)
        whole, copy_in, copy_out = (f"{value:.1f}" for value in times)
        bandwidth = f"{each.bytes_per_second / 1e9:g}"
        table.add_row(each.way, bandwidth, whole, f"{each.ratio:.2f}", copy_in, copy_out)
    console.print(table)
    return [
        Figure(
            f"64 MiB at {each.bytes_per_second / 1e9:g} GB/s, {each.way}, ratio to waiting",
            each.ratio, "", None, "lower",
        )
        for each in copies
        if each.way != "waiting"
    ]  # fmt: skip


def _lanes(console: Console, lanes: Sequence[Lanes]) -> list[Figure]:
    heads = ("lanes", "wall, ms", "all steps, ms", "steps / wall", "copy beside run, ms", "gain")
    table = Table(*heads, box=None)
    for each in lanes:
        wall, steps, beside = each.overlap
        table.add_row(
            str(each.count), f"{wall:.0f}", f"{steps:.0f}", f"{steps / wall:.2f}", f"{beside:.0f}",
            f"{each.gain:.2f}",
        )  # fmt: skip
    console.print(table)
    first, *others = lanes
    return [
        Figure(f"{n.count} lanes, time of {first.count} / time", n.gain, "", None, "higher")
        for n in others
    ]


def _server(console: Console, compared: Sequence[Compared]) -> list[Figure]:
    table = Table("server", "NPU", "ratio to CPU device", "spread", box=None)
    for each in compared:
        absolute = f"{each.absolute:.4g} {each.unit}"
        table.add_row(each.name, absolute, f"{each.ratio:.2f}", f"{each.spread:.2f}")
    console.print(table)
    return [
        figure
        for each in compared
        for figure in (
            Figure(f"server, {each.name}", each.absolute, each.unit, None, each.better),
            Figure(f"server, {each.name}, ratio to CPU", each.ratio, "", None, each.better),
        )
    ]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())

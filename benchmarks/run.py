"""``make bench``: prints the ratios to the yardstick, what they are made of, and writes JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from latency import measure
from rich.console import Console
from rich.table import Table
from stages import stages

KIB = 1024


def main() -> int:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="pairs of measurements")
    parser.add_argument("--calls", type=int, default=600, help="calls a measurement")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"))
    options = parser.parse_args()
    console = Console()
    table = Table("figure", "ratio to yardstick", "spread", "must", "", "absolute", box=None)
    figures = measure(options.rounds, options.calls)
    for figure in figures:
        sign = "<=" if figure.better == "lower" else ">="
        table.add_row(
            figure.name, f"{figure.ratio:.2f}", f"{figure.spread:.2f}", f"{sign} {figure.must}",
            "ok" if figure.reached else "missed", f"{figure.absolute:.4g} {figure.unit}",
        )  # fmt: skip
    console.print(table)
    table = Table("stage of a 1 KiB call", "us", box=None)
    for name, microseconds in stages(KIB).items():
        table.add_row(name, f"{microseconds:.1f}")
    console.print(table)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([dataclasses.asdict(f) for f in figures], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

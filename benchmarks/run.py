"""``make bench``, ``make bench-full``: figures beside their goals, as text, JSON and a page.

Every ratio is to a yardstick that ran in turn with what is measured; see docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from goals import FULL_GOALS, GOALS, faults, rows_of
from page import page
from plan import full, quick
from report import as_json, figure_table, goal_table, summary
from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, writes; answers the exit code."""
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    plan, goals = (full(), FULL_GOALS) if options.full else (quick(), GOALS)
    if wrong := faults(list(plan.series()), goals):
        console.print(*wrong, sep="\n")
        return 2
    plan = plan.shortened(options.rounds, options.seconds).only(options.only)
    # Before a single second is spent, in case the folder cannot be written.
    options.folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - start:4.0f} s  {text}", file=sys.stderr, flush=True)

    rows = rows_of(plan.figures(say), goals)
    say("done")
    console.print(figure_table(rows), "", goal_table(rows), "", summary(rows), sep="\n")
    (options.folder / "bench.json").write_text(as_json(rows))
    (options.folder / "bench.html").write_text(page(rows))
    return int(options.check and any(row.must_missed for row in rows))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="everything, not only the goals")
    parser.add_argument("--only", default="", metavar="TEXT", help="what has this in its name")
    parser.add_argument("--rounds", type=int, help="of each measurement, instead of its own number")
    parser.add_argument("--seconds", type=float, help="about, that a way is measured in a round")
    parser.add_argument("--folder", type=Path, default=Path("build"), help="of JSON and page")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a must is missed")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

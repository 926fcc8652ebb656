"""Runs ``make test`` many times, in another random order each time, half of them beside other work.

``make test-steady`` prints a row a run, and at the end how many failed, and writes the same to
``docs/test-steady.txt``. A failure's output stays in ``build/steady/``, with the seed that repeats
its order (``pytest --randomly-seed=N``).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from commit import commit

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path("build/steady")
_REPORT = Path("docs/test-steady.txt")


class Run(NamedTuple):
    """One run of the tests."""

    busy: int
    seconds: float
    processor: float
    code: int
    said: str

    def __str__(self) -> str:
        outcome = "ok" if self.code == 0 else "FAILED"
        return (
            f"| {self.busy} | {self.seconds:.0f} | {self.processor:.0f} | {outcome} | {self.said} |"
        )


def run(number: int, busy: int) -> Run:
    """One run beside as many busy processes; ``number`` names the file of its output."""
    out = _FOLDER / f"{number}.txt"
    begun, before = time.monotonic(), os.times()
    with out.open("w") as printed, beside(busy):
        code = subprocess.run(["make", "test"], stdout=printed, stderr=printed, check=False)
        after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    text = out.read_text()
    seed = ", ".join(re.findall(r"randomly-seed=(\d+)", text))
    said = (re.findall(r"=+ (.*(?:passed|failed|error).*?) =+$", text, re.MULTILINE) or ["?"])[-1]
    return Run(busy, time.monotonic() - begun, used, code.returncode, f"{said}, seed {seed}")


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """As many processes that compute without end."""
    processes = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(busy)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()  # not waited for before the times are read: they count apart
            process.join()


def _compute() -> None:
    while True:
        sum(range(100_000))


def main() -> int:
    """Prints a row a run; the exit code says whether one failed."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=20)
    asked.add_argument("--busy", type=int, default=8, help="processes beside every second run")
    given = asked.parse_args()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    runs = []
    with _REPORT.open("w", encoding="utf-8") as out:

        def say(line: str) -> None:
            print(line, file=out, flush=True)
            print(line, flush=True)

        today = f"{datetime.now(UTC):%Y-%m-%d}"
        say(f"{today}, commit {commit()}, {os.cpu_count()} cores: make test-steady\n")
        say("| busy processes | wall s | processor s | outcome | pytest |\n|---|---|---|---|---|")
        for number in range(given.runs):
            runs.append(run(number, given.busy * (number % 2)))
            say(str(runs[-1]))
        failed = sum(each.code != 0 for each in runs)
        say(f"\n{failed} of {len(runs)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

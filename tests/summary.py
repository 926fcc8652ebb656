"""What a run of the tests prints at its end: a line a folder, a line for each reason to skip."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Folders in the order of their names, with the seconds that their tests took together."""
    seconds: Counter[str] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            counts[_folder(report), outcome] += 1
            if outcome == "skipped":
                reasons[_reason(report.longrepr)] += 1
    if not counts:
        return
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if hasattr(report, "duration"):  # set-up and teardown too
            seconds[_folder(report)] += report.duration
    terminalreporter.section("folders")
    for folder in sorted({folder for folder, _ in counts}):
        said = ", ".join(f"{n} {o}" for (f, o), n in counts.items() if f == folder)
        terminalreporter.line(f"{folder:28} {seconds[folder]:6.1f} s  {said}")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"skipped {count:5}: {reason}")


def _folder(report: Any) -> str:
    return "/".join(report.nodeid.partition("::")[0].split("/")[:2])


def _reason(longrepr: object) -> str:
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")

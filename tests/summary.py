"""What a run of the tests prints at its end: a line a folder, and a line for each reason to skip."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Folders in the order of their names, with the seconds that their tests took together."""
    seconds: Counter[str] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            folder = "/".join(report.nodeid.partition("::")[0].split("/")[:2])
            counts[folder, outcome] += 1
            seconds[folder] += getattr(report, "duration", 0.0)
            if outcome == "skipped":
                reasons[_reason(report.longrepr)] += 1
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "call") != "call" and getattr(report, "passed", False):
                seconds["/".join(report.nodeid.partition("::")[0].split("/")[:2])] += (
                    report.duration
                )
    if not seconds:
        return
    terminalreporter.section("folders")
    for folder in sorted({folder for folder, _ in counts}):
        said = ", ".join(f"{n} {o}" for (f, o), n in counts.items() if f == folder)
        terminalreporter.line(f"{folder:28} {seconds[folder]:6.1f} s  {said}")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"skipped {count:5}: {reason}")


def _reason(longrepr: object) -> str:
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")

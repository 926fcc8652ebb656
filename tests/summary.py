"""What a run of the tests says at its end: a line a folder, a reason to skip, a test with figures.

With ``--summary=FILE`` it stands in that file too, with the date and the commit. Until then the
file has what failed so far: a long run may be ended before it says so.
"""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

_FIGURES = "figures: "
_OUTCOMES = "passed", "failed", "error", "skipped"
_BEGUN = pytest.StashKey[float]()
_Stats = Mapping[str, Sequence[Any]]


def figures(*told: object) -> None:
    """Prints what a test has measured or counted; the summary repeats it."""
    print(f"\n{_FIGURES}{'; '.join(map(str, told))}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--summary", type=Path, metavar="FILE", help="a file for the summary too")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_BEGUN] = time.monotonic()
    if file := _file(config):
        config.pluginmanager.register(_Failures(file))


def _file(config: pytest.Config) -> Path | None:
    """The file for the summary; none in the processes that only run tests."""
    return None if hasattr(config, "workerinput") else config.getoption("summary")


class _Failures:
    """Writes what failed as soon as it has."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_text("The run goes on, or was ended. Failed so far:\n\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._file.open("a") as file:
                file.write(f"{report.nodeid}\n{report.longreprtext}\n\n")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    stats: _Stats = terminalreporter.stats
    if not any(stats.get(outcome) for outcome in _OUTCOMES):
        return
    lines = [*_folders(stats), *_reasons(stats), *_measured(stats)]
    terminalreporter.section("folders")
    for line in lines:
        terminalreporter.line(line)
    if file := _file(config):
        file.write_text("\n".join([*_head(config, stats), *lines, ""]))


def _folders(stats: _Stats) -> Iterator[str]:
    """In the order of their names, with the seconds that their tests took together."""
    seconds: Counter[str] = Counter()
    counts = Counter(
        (_folder(each), outcome) for outcome in _OUTCOMES for each in stats.get(outcome, ())
    )
    for report in chain.from_iterable(stats.values()):
        # Set-up and teardown too; a subtest's seconds are in those of its test.
        if hasattr(report, "duration") and not isinstance(report, pytest.SubtestReport):
            seconds[_folder(report)] += report.duration
    for folder in sorted({folder for folder, _ in counts}):
        said = ", ".join(f"{n} {o}" for (f, o), n in counts.items() if f == folder)
        yield f"{folder:28} {seconds[folder]:6.1f} s  {said}"


def _reasons(stats: _Stats) -> Iterator[str]:
    reasons = Counter(_reason(each.longrepr) for each in stats.get("skipped", ()))
    for reason, count in reasons.most_common():
        yield f"skipped {count:5}: {reason}"


def _measured(stats: _Stats) -> Iterator[str]:
    """By test, in the order of their names."""
    reports = chain.from_iterable(stats.get(outcome, ()) for outcome in ("passed", "failed"))
    for report in sorted(reports, key=lambda each: each.nodeid):
        told = [each for each in report.capstdout.splitlines() if each.startswith(_FIGURES)]
        for line in dict.fromkeys(told):
            yield f"{report.nodeid}\n    {line.removeprefix(_FIGURES)}"


def _head(config: pytest.Config, stats: _Stats) -> Iterator[str]:
    git = "git", "-C", str(config.rootpath), "describe", "--always", "--dirty", "--exclude=*"
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    seconds = time.monotonic() - config.stash[_BEGUN]
    counts = ", ".join(f"{len(stats.get(each, ()))} {each}" for each in _OUTCOMES)
    arguments = " ".join(config.invocation_params.args)
    yield f"{datetime.now(UTC):%Y-%m-%d}, commit {commit}: pytest {arguments}"
    yield f"{counts} in {seconds:.0f} s on {os.cpu_count()} cores\n"


def _folder(report: Any) -> str:
    return "/".join(report.nodeid.partition("::")[0].split("/")[:2])


def _reason(longrepr: object) -> str:
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")

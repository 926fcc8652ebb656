"""The options of a run, and the run itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from npucall_client.client import Client
from npucall_conformance import bundle
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.select import Selection, wanted
from npucall_conformance.reporting import baseline as deviations
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.running.paths import due
from npucall_conformance.running.runner import (
    QUICK_REPEAT,
    QUICK_ROUNDS,
    REPEAT,
    Runner,
    default_profile,
)
from npucall_conformance.running.search import Fuzz
from npucall_conformance.running.subject import Subject, SubjectOpener
from npucall_conformance.statements import statements

_PACKAGES = ("npucall", "npucall-client", "npucall-conformance", "numpy", "ml-dtypes", "grpcio",
             "protobuf")  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """The options of the command, except what is judged."""

    chosen: Selection
    cases: list[Case]
    profile: str
    """Empty: the default profile for the servers that are judged."""
    seed: int
    repeat: int | None
    """How often a crowd sends one call; None: the default of a quick or a full run."""
    fuzz: float
    """For so many seconds calls are drawn, in place of the cases; 0: the cases run."""
    save: Path | None
    baseline: Path | None
    allow_skipped: bool
    allow_missing: bool
    write_baseline: bool


def judge(  # noqa: PLR0913  # who is judged
    options: RunOptions,
    connect: Callable[..., Client],
    target: str | None,
    against: str | None = None,
    soc: str = "",
    adapter: str = "",
) -> Report:
    """Judges a server, two servers, or an adapter. Raises ValueError for impossible options."""
    with ExitStack() as stack:
        subjects = SubjectOpener(stack, connect, soc)
        first = subjects.first(target, adapter)
        second = subjects.second(against, first) if against else None
        report = _report(first, second, options)
        runner = Runner(
            first, second, report.profile, options.seed,
            on_failure=partial(bundle.save, options.save, report) if options.save else None,
            rounds=QUICK_ROUNDS if options.chosen.quick else options.repeat or REPEAT,
            repeat=options.repeat or (QUICK_REPEAT if options.chosen.quick else REPEAT),
            allow_missing=options.allow_missing,
        )  # fmt: skip
        start = time.monotonic()
        known = deviations.opened(options.baseline, report, write=options.write_baseline)
        outcomes = _drawn(runner, options) if options.fuzz else runner.run(options.cases)
        if known is not None and not options.write_baseline:
            outcomes = known.hold(outcomes)
        bar = import_module("npucall_conformance.reporting.terminal").progress
        try:
            report.outcomes.extend(bar(outcomes, None if options.fuzz else len(options.cases)))
        except KeyboardInterrupt:
            report.interrupted = True
        report.seconds = time.monotonic() - start
    if not report.interrupted:
        deviations.settle(report, known, options.baseline if options.write_baseline else None)
    return report


def _drawn(runner: Runner, options: RunOptions) -> Iterator[CaseOutcome]:
    """The outcomes of random calls."""
    some = [each for each in statements() if wanted(each, options.chosen)]
    return Fuzz(runner, options.fuzz, options.chosen.dtypes).outcomes(some)


def _report(first: Subject, second: Subject | None, options: RunOptions) -> Report:
    servers = [each.server for each in (first, second) if each is not None]
    stated = {each.title for each in statements()}
    return Report(
        options.profile or default_profile(*servers),
        options.seed,
        first.server,
        second.server if second is not None else None,
        quick=options.chosen.quick,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(),
        unstated=tuple(sorted(first.dtypes.keys() - stated)),
        chosen=replace(options.chosen, fuzz=options.fuzz),
        required=len(options.cases),
        paths=due(first, options.cases),
        allow_skipped=options.allow_skipped,
    )


def versions() -> dict[str, str]:
    """The versions of Python and the packages on this side."""
    return {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}}

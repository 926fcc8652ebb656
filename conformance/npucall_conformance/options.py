"""The options of a run, and the run itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from npucall_client.client import Client
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.select import Selection, wanted
from npucall_conformance.golden import save as save_case
from npucall_conformance.reporting import baseline as deviations
from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.running.paths import due
from npucall_conformance.running.runner import (
    QUICK_REPEAT,
    QUICK_ROUNDS,
    REPEAT,
    ROUNDS,
    Runner,
    default_profile,
)
from npucall_conformance.running.search import Fuzz
from npucall_conformance.running.subject import SubjectOpener
from npucall_conformance.statements import statements

_PACKAGES = ("npucall", "npucall-client", "npucall-conformance", "numpy", "ml-dtypes", "grpcio",
             "protobuf")  # fmt: skip


def judge(  # noqa: PLR0913  # the options of the command
    connect: Callable[..., Client],
    target: str | None,
    chosen: Selection,
    cases: list[Case],
    *,
    against: str | None = None,
    soc: str = "",
    adapter: str = "",
    profile: str = "",
    seed: int = 0,
    repeat: int | None = None,
    save: Path | None = None,
    baseline: Path | None = None,
    write_baseline: bool = False,
    allow_skipped: bool = False,
    allow_missing: bool = False,
) -> Report:
    """Judges a server, two servers, or an adapter. Raises ValueError for impossible options.

    Without a profile by the default one for the servers that are judged.
    """
    with ExitStack() as stack:
        subjects = SubjectOpener(stack, connect, soc)
        first = subjects.first(target, adapter)
        second = subjects.second(against, first) if against else None
        servers = [each.server for each in (first, second) if each is not None]
        stated = {each.title for each in statements()}
        report = Report(
            profile or default_profile(*servers), seed, first.server,
            second.server if second is not None else None,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(),
            unstated=tuple(sorted(first.dtypes.keys() - stated)),
            chosen=chosen, required=len(cases), paths=due(first, cases),
            allow_skipped=allow_skipped,
        )  # fmt: skip
        runner = Runner(
            first, second, report.profile, seed,
            on_failure=partial(save_case, save, report) if save else None,
            rounds=QUICK_ROUNDS if chosen.quick else repeat or ROUNDS,
            repeat=repeat or (QUICK_REPEAT if chosen.quick else REPEAT),
            allow_missing=allow_missing,
        )  # fmt: skip
        start = time.monotonic()
        known = deviations.opened(baseline, report, write=write_baseline)
        outcomes = _drawn(runner, chosen) if chosen.fuzz else runner.run(cases)
        if known is not None and not write_baseline:
            outcomes = known.hold(outcomes)
        bar = import_module("npucall_conformance.reporting.terminal").progress
        try:
            report.outcomes.extend(bar(outcomes, None if chosen.fuzz else len(cases)))
        except KeyboardInterrupt:
            report.interrupted = True
        report.seconds = time.monotonic() - start
    if not report.interrupted:
        deviations.settle(report, known, baseline if write_baseline else None)
    return report


def _drawn(runner: Runner, chosen: Selection) -> Iterator[CaseOutcome]:
    """The outcomes of random calls."""
    some = [each for each in statements() if wanted(each, chosen)]
    return Fuzz(runner, chosen.fuzz, chosen.dtypes).outcomes(some)


def versions() -> dict[str, str]:
    """The versions of Python and the packages on this side."""
    return {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}}

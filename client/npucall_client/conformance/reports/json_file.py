"""A report as JSON, for programs. Stable: keys are added, never changed or taken away.

The object has::

    format                  "npucall-conformance"
    format_version          1; changes only if a key changes its meaning
    passed                  nothing failed, and something ran
    profile, seed, quick    what was asked
    started, seconds        ISO 8601 in UTC; how long it took
    versions                of npucall, NumPy and the like on this side, by name
    server, against         target, device, soc, product, version, instance, default_variant,
                            variants; against is null without a second server
    unstated                operators that the server lists and nothing judges
    ulp_bins                upper ends of the bins of every histogram; one more bin is beyond
    total                   a tally: cases (that ran), passed, failed, skipped, ulp, ulp_case,
                            ratio, ratio_case, histogram
    by_operator_and_dtype   tallies with operator (variant included) and dtype
    by_operator_and_block   tallies with operator and block
    contradictions          case, operator, number, topic, sources, agrees, decided, answer
    skipped                 how many cases, by reason
    outcomes                every case in the order of the run: case, operator, variant, block,
                            dtype, status (passed, failed, skipped), problems, ulp, ratio, worst,
                            histogram, run_ns, total_ns, truth_ns, contradiction (or null), and, if
                            it failed, rerun, the command that runs it again

Numbers that JSON does not have are the strings inf, -inf and nan, which Python's ``float`` reads.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from npucall_client.conformance.report import ULP_BINS
from npucall_client.conformance.reports.text import rerun

if TYPE_CHECKING:
    from pathlib import Path

    from npucall_client.conformance.report import Outcome, Report, Tally


def write(report: Report, path: Path) -> None:
    """Writes the file."""
    path.write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """The text of the file. ASCII only, so that no text in it can fail to be written."""
    data = {
        "format": "npucall-conformance",
        "format_version": 1,
        "passed": report.passed,
        "profile": report.profile,
        "seed": report.seed,
        "quick": report.quick,
        "started": report.started,
        "seconds": report.seconds,
        "versions": report.versions,
        "server": asdict(report.server),
        "against": asdict(report.against) if report.against else None,
        "unstated": report.unstated,
        "ulp_bins": ULP_BINS,
        "total": _tally(report.total()),
        "by_operator_and_dtype": [
            {"operator": title, "dtype": dtype, **_tally(tally)}
            for (title, dtype), tally in report.by_operator_and_dtype().items()
        ],
        "by_operator_and_block": [
            {"operator": title, "block": block, **_tally(tally)}
            for (title, block), tally in report.by_operator_and_block().items()
        ],
        "contradictions": [
            {"case": each.case, "operator": each.title, **asdict(each.contradiction)}
            for each in report.contradictions()
            if each.contradiction
        ],
        "skipped": report.reasons_skipped(),
        "outcomes": [_outcome(report, each) for each in report.outcomes],
    }
    return json.dumps(_finite(data), indent=1, allow_nan=False) + "\n"


def _tally(tally: Tally) -> dict[str, Any]:
    return {**asdict(tally), "failed": tally.failed}


def _outcome(report: Report, outcome: Outcome) -> dict[str, Any]:
    again = {"rerun": rerun(report, outcome)} if outcome.status == "failed" else {}
    return {**asdict(outcome), **again}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

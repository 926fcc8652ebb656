"""A report as JSON, for programs. Stable: keys are added, never changed or taken away.

The object has::

    format                  "npucall-conformance"
    format_version          2; changes only if a key changes its meaning, or goes
    passed, verdict         the verdict is "conforms"; or "conforms in part", or "fails"
    profile, seed, quick    what was asked
    chosen                  the filters as options; empty for a whole run, the only one whose
                            verdict is of all that the suite judges
    allow_skipped           what was skipped did not lower the verdict
    started, seconds        ISO 8601 in UTC; how long it took
    versions                of npucall, NumPy and the like on this side, by name
    server, against         target, device, soc, product, version, instance, default_variant,
                            variants; against is null without a second server
    unstated                operators that the server lists and nothing judges
    total                   a tally: cases (that ran), passed, failed, skipped, accepted, ulp,
                            ratio, ratio_case, run_ns (the median of its cases)
    by_operator_and_dtype   tallies with operator (variant included) and dtype
    by_operator_and_block   tallies with operator and block
    outcomes                every case in the order of the run: case, operator, variant, block,
                            dtype, status (passed, failed, skipped; accepted: failed, as the
                            baseline says), problems, ulp, ratio, run_ns, total_ns, truth_ns,
                            contradiction (number, topic, sources, agrees, decided, answer; or
                            null), lowers (skipped though it should have been judged), paths (by
                            which it was sent once more), paths_skipped (why, by name), findings
                            (the problems in a form that cases of a cause share), wrong (or null; of
                            the worst output: its name, elements that are wrong, index of the worst,
                            expected, found, inputs there, others, size), and, if it failed, rerun,
                            the command that runs it again
    coverage                judged (cases); lowering (cases that should have been judged, by
                            reason); elsewhere (cases that are for others, by reason); paths (by
                            which calls were sent), paths_missing, and paths_elsewhere (why, by
                            name)
    baseline                vanished (cases that it names and that deviate no more), remarks
    causes                  failures grouped: words, cases (ids), example (the id of one that shows
                            it)

Numbers that JSON does not have are the strings inf, -inf and nan, which Python's ``float`` reads.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from npucall_conformance.reporting.causes import Cause, causes
from npucall_conformance.reporting.report import CaseOutcome, Report, Tally
from npucall_conformance.reporting.wording import rerun

_PLAIN = (
    "passed", "verdict", "profile", "seed", "quick", "allow_skipped", "started", "seconds",
    "versions", "unstated",
)  # fmt: skip


def render(report: Report) -> str:
    """The text of the file. ASCII only, so that no text in it can fail to be written."""
    return json.dumps(_finite(_of_one(report)), indent=1, allow_nan=False) + "\n"


def _of_one(report: Report) -> dict[str, Any]:
    return {
        "format": "npucall-conformance",
        "format_version": 2,
        **{name: getattr(report, name) for name in _PLAIN},
        "chosen": str(report.chosen),
        "server": asdict(report.server),
        "against": asdict(report.against) if report.against else None,
        "total": _tally(report.total()),
        **{
            f"by_operator_and_{name}": [
                {"operator": title, name: value, **_tally(tally)}
                for (title, value), tally in report.tallies("title", name).items()
            ]
            for name in ("dtype", "block")
        },
        "outcomes": [_outcome(report, each) for each in report.outcomes],
        "coverage": asdict(report.coverage()),
        "baseline": asdict(report.known),
        "causes": [_cause(each) for each in causes(report.failures)],
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {**asdict(tally), "failed": tally.failed}


def _outcome(report: Report, outcome: CaseOutcome) -> dict[str, Any]:
    again = {"rerun": rerun(report, outcome)} if outcome.status == "failed" else {}
    return {**asdict(outcome), **again}


def _cause(cause: Cause) -> dict[str, Any]:
    cases = [outcome.case for outcome in cause.outcomes]
    return {"words": cause.words, "cases": cases, "example": cause.example.case}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

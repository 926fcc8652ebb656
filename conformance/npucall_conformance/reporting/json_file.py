"""A report as JSON, for programs. Stable: keys are added, never changed or taken away.

The object has::

    format                  "npucall-conformance"
    format_version          1; changes only if a key changes its meaning
    passed                  the verdict is "conforms"
    profile, seed, quick    what was asked
    started, seconds        ISO 8601 in UTC; how long it took
    versions                of npucall, NumPy and the like on this side, by name
    server, against         target, device, soc, product, version, instance, default_variant,
                            variants; against is null without a second server
    unstated                operators that the server lists and nothing judges
    ulp_bins                upper ends of the bins of every histogram; one more bin is beyond
    total                   a tally: cases (that ran), passed, failed, skipped, ulp, ulp_case,
                            ratio, ratio_case, histogram, accepted, run_ns (the median of its cases)
    by_operator_and_dtype   tallies with operator (variant included) and dtype
    by_operator_and_block   tallies with operator and block
    contradictions          case, operator, number, topic, sources, agrees, decided, answer
    skipped                 how many cases, by reason
    outcomes                every case in the order of the run: case, operator, variant, block,
                            dtype, status (passed, failed, skipped; accepted: failed, as the
                            baseline says), problems, ulp, ratio, worst,
                            histogram, run_ns, total_ns, truth_ns, contradiction (or null), lowers
                            (skipped though it should have been judged), paths (by which it was sent
                            once more), paths_skipped (why, by name), columns (of two servers, or
                            null), findings (the problems in a
                            form that cases of a cause share), wrong (or null; of the worst output:
                            its name, elements that are wrong, index of the worst, expected, found,
                            inputs there, others, patterns), and, if it failed, rerun, the command
                            that runs it again
    verdict                 "conforms", "conforms in part" or "fails", of what was chosen
    chosen                  the filters as options; empty for a whole run, the only one whose
                            verdict is of all that the suite judges
    allow_skipped           what was skipped did not lower the verdict
    coverage                operators, dtypes ("aclnnGlu bf16"), blocks and paths, each with judged
                            (names), partly (cases not judged, by name), missing and elsewhere
                            (reasons, by name); product; judged and required (cases); lowering
                            (cases that should have been judged, by reason); elsewhere (cases that
                            are for others)
    pairs                   with a second server, by operator and dtype: cases, and of each server
                            (sides) passed, ulp, run_ns (the median) and figures (count, usual,
                            small_errors, MARE, MERE and RMSE beside the truth); ratios of the
                            first server's to the second's, and the level of CANN's standard that
                            they keep ("" for none)
    baseline                vanished (cases that it names and that deviate no more), remarks
    causes                  failures grouped: words, operators, dtypes, blocks, cases (ids), example
                            (the id of one that shows it)

The object of every product (``--matrix``) has format "npucall-conformance-matrix", format_version
1, passed, verdict (the worst of all), and products: by product an object as above.

Numbers that JSON does not have are the strings inf, -inf and nan, which Python's ``float`` reads.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from npucall_conformance.reporting.causes import causes
from npucall_conformance.reporting.coverage import Matrix
from npucall_conformance.reporting.pairs import Pair
from npucall_conformance.reporting.report import ULP_BINS, CaseOutcome, Report, Tally
from npucall_conformance.reporting.wording import rerun

_FIGURES = ("count", "usual", "mare", "mere", "rmse", "small_errors")


def render(found: Report | Matrix) -> str:
    """The text of the file. ASCII only, so that no text in it can fail to be written."""
    data = _of_products(found) if isinstance(found, Matrix) else _of_one(found)
    return json.dumps(_finite(data), indent=1, allow_nan=False) + "\n"


def _of_products(matrix: Matrix) -> dict[str, Any]:
    return {
        "format": "npucall-conformance-matrix",
        "format_version": 1,
        "passed": matrix.passed,
        "verdict": matrix.verdict,
        "products": {report.server.product: _of_one(report) for report in matrix.reports},
    }


def _of_one(report: Report) -> dict[str, Any]:
    plain = ("profile", "seed", "quick", "started", "seconds", "versions")
    return {
        "format": "npucall-conformance",
        "format_version": 1,
        "passed": report.passed,
        **{name: getattr(report, name) for name in plain},
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
        "verdict": report.verdict,
        "chosen": str(report.chosen),
        "allow_skipped": report.allow_skipped,
        "coverage": asdict(report.coverage()),
        "pairs": [_pair(*key, pair) for key, pair in report.pairs().items()],
        "baseline": asdict(report.known),
        "causes": [
            {**vars(each), "example": each.example.case} for each in causes(report.failures)
        ],
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {**asdict(tally), "failed": tally.failed}


def _outcome(report: Report, outcome: CaseOutcome) -> dict[str, Any]:
    again = {"rerun": rerun(report, outcome)} if outcome.status == "failed" else {}
    return {**asdict(outcome), **again}


def _pair(title: str, dtype: str, pair: Pair) -> dict[str, Any]:
    sides = [
        {**vars(side), "figures": {name: getattr(side.figures, name) for name in _FIGURES}}
        for side in pair.sides
    ]
    named = {"operator": title, "dtype": dtype, "cases": pair.cases, "sides": sides}
    return {**named, "ratios": asdict(pair.ratios), "level": pair.ratios.level}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

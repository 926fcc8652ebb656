"""Texts that all reports share: numbers, the command that runs a case again, harmless text."""

from __future__ import annotations

import math
import re
import shlex

from npucall.products import DEFAULT_SOC
from npucall_conformance.reporting.causes import Cause
from npucall_conformance.reporting.report import CaseOutcome, JudgedServer, Report, Wrong

# Besides these XML 1.0 has no surrogates, U+FFFE and U+FFFF; a terminal obeys some of the controls.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
NOTHING = "-"
"""In place of a figure that would mislead."""
NO_ULP = (
    f"worst ulp {NOTHING}: the expected number is nearly 0, and one ulp of it is tiny. Read "
    '"of tolerance": 1 is all that is allowed.'
)
_LARGE = 1024
"""An error that is inside its tolerance and more ulp than this is that of a number near 0."""
_NAMED = 6
"""Operators of a cause that are named."""


def clean(text: str) -> str:
    """The text without characters that a terminal obeys or XML forbids; a server may send any."""
    return _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", text)


def number(value: float) -> str:
    """Three digits: 0.5, 12.3, 3.5e+05."""
    if math.isinf(value):
        return "∞"
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def in_ulp(worst: float, *, inside: bool) -> str:
    """The worst error in ulp, if that says something."""
    return NOTHING if inside and worst > _LARGE else number(worst)


def count(value: int, singular: str, plural: str = "") -> str:
    """1 case, 3,160 cases."""
    return f"{value:,} {singular if value == 1 else plural or f'{singular}s'}"


def rerun(report: Report, outcome: CaseOutcome) -> str:
    """The command that runs a case again with the same data."""
    words = ["npucall", "conform", *_who(report.server)]
    if report.against is not None:
        words += ["--against", report.against.target]
    words += ["--profile", report.profile, "--seed", str(report.seed), "--case", outcome.case]
    return clean(shlex.join(words))


def _who(server: JudgedServer) -> list[str]:
    """The words of the command that name the judged server."""
    if server.device.startswith(f"{server.target}:"):  # no server, but a library on a device
        return ["--adapter", server.target]
    is_usual = server.device != "local" or server.soc == DEFAULT_SOC
    return [server.target] if is_usual else [server.target, "--soc", server.soc]


def identity(server: JudgedServer) -> str:
    """Who was judged, in one line."""
    return f"{server.target} ({server.device} as {server.soc}, {server.product})"


def scope(cause: Cause) -> str:
    """Where a cause shows: operators, dtypes and blocks, in one line."""
    operators = [title.removeprefix("aclnn") for title in cause.all("title")]
    more = f" and {len(operators) - _NAMED:,} more" if len(operators) > _NAMED else ""
    named = ", ".join(operators[:_NAMED]) + more
    return f"{named}; {', '.join(cause.all('dtype'))}; {', '.join(cause.all('block'))}"


def told(wrong: Wrong | None) -> list[str]:
    """The worst element and what it was computed from, and which elements are wrong."""
    if wrong is None:
        return []
    given = [f"{name} {value:.9g}" for name, value in wrong.inputs.items()]
    given += [f"{name} {value}" for name, value in wrong.others.items()]
    place = f"{wrong.output}{list(wrong.index)}" if wrong.index else wrong.output
    computed = f" for {', '.join(given)}" if given else ""
    return [
        f"{place} is {wrong.found:.9g}, expected {wrong.expected:.9g}{computed}",
        f"wrong: {wrong.elements}",
    ]


def remarks(report: Report) -> list[str]:
    """What was judged of what should have been, and why the rest was not; and who was judged."""
    accepted = report.total().accepted
    interrupted = "somebody interrupted the run; the rest of the cases was not judged"
    beside = f" and {identity(report.against)}" if report.against else ""
    told = f"profile {report.profile}, seed {report.seed}"
    unstated = f"not judged, for no statement has them: {', '.join(report.unstated)}"
    return [
        *_covered(report),
        *[interrupted] * report.interrupted,
        *[f"accepted {count(accepted, 'deviation')} that the baseline names"] * bool(accepted),
        *report.known.remarks,
        *(
            f"the baseline names {case}, which deviates no more: remove it (--write-baseline)"
            for case in report.known.vanished
        ),
        *[unstated] * bool(report.unstated),
        f"{identity(report.server)}{beside}, {told}, {report.seconds:.1f} s",
    ]


def _covered(report: Report) -> list[str]:
    found = report.coverage()
    cases = f"{found.judged:,} of {count(found.required, 'case')}"
    by = f", by {count(len(found.paths), 'path')}" if found.paths else ""
    ways: dict[str, list[str]] = {}
    for path, why in found.paths_elsewhere.items():
        ways.setdefault(why, []).append(path)
    return [
        f"judged on {report.server.product}: {cases}{by}",
        *(f"not judged: path {path}: no case travelled by it" for path in found.paths_missing),
        *(f"{count(n, 'case')} should have been judged: {w}" for w, n in found.lowering.items()),
        *(f"skipped {count(n, 'case')}: {why}" for why, n in found.elsewhere.items()),
        *(f"not by {', '.join(paths)}: {why}" for why, paths in ways.items()),
    ]


def verdict(report: Report) -> str:
    """What came of it, in one sentence without its full stop, and of what it speaks."""
    total, coverage = report.total(), report.coverage()
    cases = count(total.cases, "case")
    scope = "" if report.chosen.whole else f" in what was chosen ({report.chosen})"
    if not total.cases:
        return f"Fails{scope}: nothing ran"
    if total.failed:
        return f"Fails{scope}: {total.failed:,} of {cases} failed"
    skipped, paths = sum(coverage.lowering.values()), len(coverage.paths_missing)
    lacking = [count(skipped, "case")] * bool(skipped) + [count(paths, "path")] * bool(paths)
    missing = f"{' and '.join(lacking)} not judged"
    if report.verdict == "conforms in part":
        return f"Conforms in part{scope}: {cases} passed, {missing}"
    passed = f"all {cases} passed"
    if total.accepted:
        known = count(total.accepted, "known deviation")
        passed = f"{total.passed:,} of {cases} passed, {known} of the baseline"
    return f"Conforms{scope}: {passed}" + (f"; {missing}, as allowed" if lacking else "")

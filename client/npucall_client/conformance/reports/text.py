"""What the reports say alike: numbers, the command that runs a case again, harmless text."""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npucall_client.conformance.report import Outcome, Report, Server

# Besides these XML 1.0 has no surrogates, U+FFFE and U+FFFF; a terminal obeys some of the controls.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """The text without characters that a terminal obeys or XML forbids; a server may send any."""
    return _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", text)


def number(value: float) -> str:
    """Three digits: 0.5, 12.3, 3.5e+05."""
    if math.isinf(value):
        return "∞"
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def count(value: int, singular: str, plural: str = "") -> str:
    """1 case, 3,160 cases."""
    return f"{value:,} {singular if value == 1 else plural or f'{singular}s'}"


def rerun(report: Report, outcome: Outcome) -> str:
    """The command that runs a case again, with the same data."""
    words = ["npucall", "conform", report.server.target]
    if report.against is not None:
        words += ["--against", report.against.target]
    words += ["--profile", report.profile, "--seed", str(report.seed), "--case", outcome.case]
    return clean(shlex.join(words))


def local_id(outcome_id: str, title: str) -> str:
    """A case's id beneath the name of its operator."""
    return outcome_id.removeprefix(f"{title}/")


def identity(server: Server) -> str:
    """Who was judged, in one line."""
    return f"{server.target} ({server.device} as {server.soc}, {server.product})"


def verdict(report: Report) -> str:
    """What came of it, in one sentence."""
    total = report.total()
    if not total.cases:
        return "Nothing ran"
    if report.passed:
        return f"All {count(total.cases, 'case')} passed"
    return f"{total.failed:,} of {count(total.cases, 'case')} failed"

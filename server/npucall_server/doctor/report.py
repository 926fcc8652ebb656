"""Findings as text for a person, and as JSON for a program."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from npucall_server.devices.cann.unverified import UNVERIFIED
from npucall_server.doctor.finding import Finding, Section, Verdict

_WIDTH = 100
_COLUMN = 10
"""Where a finding's text begins, behind its verdict."""


def as_lines(messages: Iterable[Section | Finding]) -> Iterator[str]:
    """Text, as the findings come: a title a section, a line a finding, and one for what to do."""
    title = ""
    for message in messages:
        if isinstance(message, Finding):
            yield _finding(message)
        elif message.title != title:
            title = message.title
            yield f"\n{title}\n"


def ending(findings: Sequence[Finding]) -> str:
    """The sum; and, once nothing is a fault, what is left to prove on hardware."""
    faults, warnings = (_count(findings, v) for v in (Verdict.FAULT, Verdict.WARNING))
    counts = f"\n{faults} fault{'s' * (faults != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    if faults:
        return f"{counts}. Begin with the first fault: later ones often follow from it.\n"
    claims = "".join(f"  {claim.title}\n" for claim in UNVERIFIED if not claim.seen)
    return (
        "\nnever proved on an NPU yet; docs/ascend.md says how to check each, once for a kind of "
        f"host\n{claims}{counts}.\n"
    )


def as_json(device: str, messages: Iterable[Section | Finding]) -> str:
    """The same as one JSON object."""
    findings, title = [], ""
    for message in messages:
        if isinstance(message, Section):
            title = message.title
        else:
            findings.append({"section": title, **message._asdict()})
    counts = {
        f"{verdict.lower()}s": sum(f["verdict"] == verdict for f in findings)
        for verdict in (Verdict.FAULT, Verdict.WARNING)
    }
    unverified = [claim._asdict() for claim in UNVERIFIED]
    answer = {"device": device, **counts, "findings": findings, "unverified": unverified}
    return json.dumps(answer, indent=1, ensure_ascii=False) + "\n"


def _count(findings: Sequence[Finding], verdict: Verdict) -> int:
    return sum(finding.verdict is verdict for finding in findings)


def _finding(finding: Finding) -> str:
    found = _indented(f"  {finding.verdict:<{_COLUMN - 2}}", finding.found)
    return found + _indented(f"{'':{_COLUMN}}-> ", finding.todo) if finding.todo else found


def _indented(start: str, text: str) -> str:
    """The text behind ``start``, its own lines kept, long ones cut between words."""
    first, *others = text.splitlines() or [""]
    space = " " * len(start)
    wrapped = [_wrapped(first, start, space), *(_wrapped(line, space, space) for line in others)]
    return "".join(f"{line}\n" for line in wrapped)


def _wrapped(line: str, start: str, space: str) -> str:
    return textwrap.fill(
        line, _WIDTH, initial_indent=start, subsequent_indent=space,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip

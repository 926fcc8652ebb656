"""Findings as text for a person, as JSON for a program, and as a file that has both."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from npucall_server.commands.doctor.finding import Facts, Finding, Section, Verdict
from npucall_server.devices.cann.unverified import UNVERIFIED

if TYPE_CHECKING:
    from npucall_server.commands.doctor.finding import Message
    from npucall_server.devices.cann.claims import Claim

_WIDTH = 100
_COLUMN = 10
"""The column where a finding's text begins, after its verdict."""
_SETTLED = {Verdict.OK: "holds", Verdict.WARNING: "look", Verdict.FAULT: "does not"}
"""What the worst finding about a claim says about it."""
_FENCE = "```"


def as_lines(messages: Iterable[Message]) -> Iterator[str]:
    """Text as findings come: a title a section; a line a finding, and one for what to do."""
    title = shown = ""
    for message in messages:
        if isinstance(message, Section):
            title = message.title
        elif isinstance(message, Finding):
            if title != shown:
                yield f"\n{title}\n"
                shown = title
            yield _finding(message)


def ending(messages: Sequence[Message]) -> str:
    """Which claims that only hardware can prove are settled, which are left, and the totals."""
    findings = _findings(messages)
    if _count(findings, Verdict.FAULT):
        return f"\n{_sum(findings)}. Begin with the first fault: later ones often follow from it.\n"
    settled = settled_by(findings)
    left = [claim for claim in UNVERIFIED if claim.key not in settled and not claim.seen]
    lines = "".join(f"  {claim.title}\n" for claim in left)
    return (
        f"\n{_settled_here(settled)}\n"
        "left to check by hand, once for a kind of host; docs/ascend.md says how to check each\n"
        f"{lines}\n{_sum(findings)}.\n"
    )


def as_object(header: dict[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    """Everything, for a program."""
    findings: list[dict[str, Any]] = []
    title = ""
    for message in messages:
        if isinstance(message, Section):
            title = message.title
        elif isinstance(message, Finding):
            told = {**message._asdict(), "times_ms": dict(message.times)}
            del told["times"]
            findings.append({"section": title, **told})
    given = _findings(messages)
    settled = settled_by(given)
    return {
        **header,
        "facts": facts_in(messages),
        "faults": _count(given, Verdict.FAULT),
        "warnings": _count(given, Verdict.WARNING),
        "findings": findings,
        "claims": [_claim(claim, settled) for claim in UNVERIFIED],
    }


def as_json(header: dict[str, Any], messages: Sequence[Message]) -> str:
    """``as_object`` as JSON text."""
    return json.dumps(as_object(header, messages), indent=1, ensure_ascii=False) + "\n"


def as_file(header: dict[str, Any], messages: Sequence[Message]) -> str:
    """The report for a person to read and send: facts, findings, claims, and the JSON."""
    findings = _findings(messages)
    facts = {**header, **facts_in(messages), "result": _sum(findings)}
    width = max(map(len, facts)) + 2
    head = "".join(_indented(f"{name:<{width}}", str(value)) for name, value in facts.items())
    body = "".join(as_lines(messages))
    return (
        f"Report of npucall-server doctor\n\n{head}{body}{_claims(findings)}\n"
        f"All of this for programs:\n\n{_FENCE}json\n{as_json(header, messages)}{_FENCE}\n"
    )


def settled_by(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings about each claim, by its key."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        for key in finding.settles:
            found.setdefault(key, []).append(finding)
    return found


def facts_in(messages: Iterable[Message]) -> dict[str, str]:
    """What the device and its software say about themselves, as far as the doctor came."""
    every = [message.facts for message in messages if isinstance(message, Facts)]
    return {name: value for facts in every for name, value in facts}


def _claims(findings: Sequence[Finding]) -> str:
    settled = settled_by(findings)
    lines = [f"\n{_settled_here(settled)}\n"]
    for claim in UNVERIFIED:
        for number, finding in enumerate(settled.get(claim.key, ())):
            if not number:
                lines.append(_indented(f"  {_verdict(settled[claim.key]):<10}", claim.title))
            lines.append(_indented(f"{'':12}", f"by: {finding.found}"))
    lines.append("\nleft to check by hand\n")
    for claim in UNVERIFIED:
        if claim.key not in settled:
            lines.append(_indented("  [ ] ", claim.title))
            lines.append(_indented("      -> ", claim.check))
    return "".join(lines)


def _settled_here(settled: dict[str, list[Finding]]) -> str:
    return f"settled here: {len(settled)} of {len(UNVERIFIED)} things that only an NPU can prove"


def _claim(claim: Claim, settled: dict[str, list[Finding]]) -> dict[str, Any]:
    by = settled.get(claim.key, [])
    return {
        "key": claim.key,
        "title": claim.title,
        "settled": _verdict(by) if by else None,
        "by": [finding.found for finding in by],
        "check": claim.check,
    }


def _verdict(findings: Sequence[Finding]) -> str:
    verdicts = {finding.verdict for finding in findings}
    return _SETTLED[max(verdicts, key=list(Verdict).index)]


def _sum(findings: Sequence[Finding]) -> str:
    faults, warnings = (_count(findings, v) for v in (Verdict.FAULT, Verdict.WARNING))
    return f"{faults} fault{'s' * (faults != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def _findings(messages: Iterable[Message]) -> list[Finding]:
    return [message for message in messages if isinstance(message, Finding)]


def _count(findings: Sequence[Finding], verdict: Verdict) -> int:
    return sum(finding.verdict is verdict for finding in findings)


def _finding(finding: Finding) -> str:
    found = _indented(f"  {finding.verdict:<{_COLUMN - 2}}", finding.found)
    return found + _indented(f"{'':{_COLUMN}}-> ", finding.todo) if finding.todo else found


def _indented(start: str, text: str) -> str:
    """The text after ``start``. Its lines are kept; long ones are cut between words."""
    first, *others = text.splitlines() or [""]
    space = " " * len(start)
    wrapped = [_wrapped(first, start, space), *(_wrapped(line, space, space) for line in others)]
    return "".join(f"{line}\n" for line in wrapped)


def _wrapped(line: str, start: str, space: str) -> str:
    return textwrap.fill(
        line, _WIDTH, initial_indent=start, subsequent_indent=space,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip

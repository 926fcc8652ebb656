"""Findings as text for a person, as JSON for a program, and as a file that has both."""

from __future__ import annotations

import json
import os
import platform
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

from npucall_server.commands.doctor.finding import Finding, Verdict
from npucall_server.devices.cann.unverified import UNVERIFIED

_COLUMN = 10
"""The column where a finding's text begins, after its verdict."""
_SETTLED = {Verdict.OK: "holds", Verdict.WARNING: "look", Verdict.FAULT: "does not"}
"""What the worst finding about a claim says about it."""
_FENCE = "```"


def header_of(device: str) -> dict[str, str]:
    """Facts of the machine that help to explain findings, and do not name the host."""
    libc, number = platform.libc_ver()
    system = f"{platform.system()} {platform.release()}"
    return {
        "device": device,
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "npucall": version("npucall-server"),
        "python": f"{platform.python_version()}, {libc or 'libc'} {number or 'unknown'}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {system}",
    }


def as_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Text as findings come: a title a section; a line a finding, and one for what to do."""
    shown = ""
    for finding in findings:
        if finding.section != shown:
            shown = finding.section
            yield f"\n{shown}\n"
        yield _indented(f"  {finding.verdict:<{_COLUMN - 2}}", finding.found)
        if finding.todo:
            yield _indented(f"{'':{_COLUMN}}-> ", finding.todo)


def ending(findings: Sequence[Finding]) -> str:
    """How many claims that only hardware can prove are settled, what is left, and the totals."""
    if count(findings, Verdict.FAULT):
        return f"\n{_sum(findings)}. Begin with the first fault: later ones often follow from it.\n"
    settled = _settled_by(findings)
    left = [each for each in UNVERIFIED if each.key not in settled and not each.seen]
    titles = "".join(f"  {claim.title}\n" for claim in left)
    return (
        f"\n{_settled_here(settled)}\n"
        "left to check by hand, once for a kind of host; docs/ascend.md says how to check each\n"
        f"{titles}\n{_sum(findings)}.\n"
    )


def as_object(header: dict[str, str], facts: dict[str, str], findings: Sequence[Finding]) -> Any:
    """Everything, for a program."""
    settled = _settled_by(findings)
    claims = [
        {
            "key": claim.key,
            "title": claim.title,
            "settled": _verdict(by) if (by := settled.get(claim.key, [])) else None,
            "by": [finding.found for finding in by],
            "check": claim.check,
        }
        for claim in UNVERIFIED
    ]
    return {
        **header,
        "facts": facts,
        "faults": count(findings, Verdict.FAULT),
        "warnings": count(findings, Verdict.WARNING),
        "findings": [{**each._asdict(), "times_ms": dict(each.times)} for each in findings],
        "claims": claims,
    }


def as_json(header: dict[str, str], facts: dict[str, str], findings: Sequence[Finding]) -> str:
    """``as_object`` as JSON text."""
    return json.dumps(as_object(header, facts, findings), indent=1, ensure_ascii=False) + "\n"


def as_file(header: dict[str, str], facts: dict[str, str], findings: Sequence[Finding]) -> str:
    """The report for a person to read and send: facts, findings, claims, and the JSON."""
    heads = {**header, **facts, "result": _sum(findings)}
    width = max(map(len, heads)) + 2
    head = "".join(_indented(f"{name:<{width}}", value) for name, value in heads.items())
    body = "".join(as_lines(findings))
    return (
        f"Report of npucall-server doctor\n\n{head}{body}{_claims(findings)}\n"
        f"All of this for programs:\n\n{_FENCE}json\n{as_json(header, facts, findings)}{_FENCE}\n"
    )


def count(findings: Sequence[Finding], verdict: Verdict) -> int:
    """How many findings have a verdict."""
    return sum(finding.verdict is verdict for finding in findings)


def _claims(findings: Sequence[Finding]) -> str:
    settled = _settled_by(findings)
    done, left = [f"\n{_settled_here(settled)}\n"], ["\nleft to check by hand\n"]
    for claim in UNVERIFIED:
        if by := settled.get(claim.key):
            done.append(_indented(f"  {_verdict(by):<10}", claim.title))
            done += [_indented(f"{'':12}", f"by: {finding.found}") for finding in by]
        else:
            left += [_indented("  [ ] ", claim.title), _indented("      -> ", claim.check)]
    return "".join([*done, *left])


def _settled_by(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings about each claim, by its key."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        for key in finding.settles:
            found.setdefault(key, []).append(finding)
    return found


def _settled_here(settled: dict[str, list[Finding]]) -> str:
    return f"settled here: {len(settled)} of {len(UNVERIFIED)} things that only an NPU can prove"


def _verdict(findings: Sequence[Finding]) -> str:
    verdicts = {finding.verdict for finding in findings}
    return _SETTLED[max(verdicts, key=list(Verdict).index)]


def _sum(findings: Sequence[Finding]) -> str:
    faults, warnings = count(findings, Verdict.FAULT), count(findings, Verdict.WARNING)
    return f"{faults} fault{'s' * (faults != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def _indented(start: str, text: str) -> str:
    """The text after ``start``. Its lines are kept; long ones are cut between words."""
    space = " " * len(start)
    lines = [
        textwrap.fill(
            line, 100, initial_indent=space if number else start, subsequent_indent=space,
            break_long_words=False, break_on_hyphens=False,
        )
        for number, line in enumerate(text.splitlines() or [""])
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)

"""Two servers next to each other: the answers of both, their errors, and how they differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_conformance.judging.benchmark import Figures, figures
from npucall_conformance.judging.check import arrays_of
from npucall_conformance.judging.tolerance import judge
from npucall_conformance.reporting.pairs import ServerColumn
from npucall_conformance.stating.arguments import wide

if TYPE_CHECKING:
    from npucall_conformance.judging.check import CheckResult, Expectation
    from npucall_conformance.wire import WireAnswer


def column(
    expectation: Expectation, answer: WireAnswer | NpucallError, checked: CheckResult
) -> ServerColumn:
    """The column of one server's answer to a case."""
    verdicts = checked.verdicts.values()
    bins = zip(*(verdict.histogram for verdict in verdicts), strict=True)
    own = ServerColumn(
        passed=not checked.problems,
        ulp=max((verdict.ulp for verdict in verdicts), default=0.0),
        ratio=max((verdict.ratio for verdict in verdicts), default=0.0),
        histogram=tuple(map(sum, bins)),
    )
    if isinstance(answer, NpucallError):
        return own
    total = Figures()
    for name in checked.verdicts:
        truth = expectation.outputs[name]
        if truth.dtype.kind == "float":
            total += figures(arrays_of(answer)[name], truth.value, truth.dtype)
    return replace(own, run_ns=answer.timings.run_ns, figures=total)


def differences(
    expectation: Expectation, one: WireAnswer, other: WireAnswer, target: str, profile: str
) -> list[str]:
    """Where a server's answer differs from another's, which is at ``target``."""
    problems = []
    found = arrays_of(one)
    for name, array in arrays_of(other).items():
        beside = replace(expectation.outputs[name], value=wide(array))
        verdict = judge(profile, found[name], beside)
        if not verdict.passed:
            problems.append(f"{name} differs from {target}: {verdict.problem}")
    return problems

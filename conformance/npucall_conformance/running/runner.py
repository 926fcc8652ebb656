"""Runs cases against a server, or two. Whatever a server does is an outcome, never an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any

from npucall.errors import NpucallError
from npucall_conformance.cases.case import FUZZ, Case
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.cases.product_cases import LISTING
from npucall_conformance.judging.check import CheckResult, arrays_of, check, expectation_of
from npucall_conformance.judging.profiles import CANN_STANDARD, CPU_STRICT
from npucall_conformance.judging.tolerance import judge
from npucall_conformance.reporting.causes import findings, wrong
from npucall_conformance.reporting.report import CaseOutcome, JudgedServer, Status
from npucall_conformance.running.crowd import Observation, crowd, repeated
from npucall_conformance.running.listing import listing_problems
from npucall_conformance.running.not_judged import NotJudgedError, check_applies
from npucall_conformance.running.paths import by_every_path
from npucall_conformance.running.subject import Subject
from npucall_conformance.stating.arguments import wide
from npucall_conformance.wire import ON_CPU, WireAnswer

REPEAT, ROUNDS, QUICK_REPEAT, QUICK_ROUNDS = 50, 16, 12, 3
"""How often a crowd sends one call in all, and how often together with the others, in full and
quick. Eight rounds show every time that two calls compute in one array."""

LOOKS: dict[str, Callable[[Observation], list[str]]] = {
    "determinism": repeated, "crowd": crowd, "paths": by_every_path,
}  # fmt: skip
"""Blocks whose calls are sent again, in another way: what finds the problems of that."""


def default_profile(*servers: JudgedServer) -> str:
    """cpu-strict for the CPU reference; cann-standard if one of the servers is a device."""
    on_cpu = all(server.device in ON_CPU for server in servers)
    return CPU_STRICT if on_cpu else CANN_STANDARD


@dataclass
class Runner:
    """How cases are run."""

    first: Subject
    second: Subject | None = None
    """A second server. Its outputs are judged too, and compared with the first server's."""
    profile: str = CPU_STRICT
    seed: int = 0
    on_failure: Callable[[Observation], object] | None = None
    rounds: int = ROUNDS
    """How often each call of a crowd is sent together with the others."""
    repeat: int = REPEAT
    """How often one of them is sent in all."""
    allow_missing: bool = False
    """A case is skipped, instead of failing, if the server does not list what it should have."""

    def run(self, cases: Iterable[Case]) -> Iterator[CaseOutcome]:
        """The outcomes, in the order of the cases, one by one as they come."""
        for outcome, seen in map(self.judged, cases):
            if seen is not None and self.on_failure is not None:
                self.on_failure(seen)
            yield outcome

    @property
    def _both(self) -> tuple[Subject, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    def judged(self, case: Case) -> tuple[CaseOutcome, Observation | None]:
        """The outcome of a case, and all about its call if it failed."""
        outcome = _blank(case)
        try:
            for each in self._both:
                check_applies(case, each, allow_missing=self.allow_missing)
            return self._outcome(case, outcome)
        except NotJudgedError as why:
            skipped = replace(outcome, status="skipped", problems=(str(why),), lowers=why.lowers)
            return skipped, None
        except Exception as error:  # noqa: BLE001  # a wrong statement ends no run
            text = f"the suite itself failed: {type(error).__name__}: {error}"
            return replace(outcome, status="failed", problems=(text,)), None

    def _outcome(self, case: Case, outcome: CaseOutcome) -> tuple[CaseOutcome, Observation | None]:
        for each in self._both:
            each.check_there()
        if case.block == LISTING:
            return self._listing(case, outcome), None
        written = case.written
        if written is not None and written.open_on_devices and self.profile != CPU_STRICT:
            raise NotJudgedError("devices answer what they like", lowers=False)
        seen = self._observed(case, outcome)
        checked = check(seen.expectation, seen.answer, self.profile)
        problems = list(checked.problems)
        try:
            problems += LOOKS[case.block](seen) if case.block in LOOKS else []
            if self.second is not None:
                problems += self._compared(self.second, seen)
        except NotJudgedError:
            if not problems:  # a problem that was found stays
                raise
        outcome = finished(seen, checked, problems)
        if not problems:
            return outcome, None
        if case.block == FUZZ:
            outcome = replace(outcome, problems=(*problems, f"drawn: {seen.call}"))
        seen.outcome = replace(
            outcome,
            findings=findings(problems, seen.answer),
            wrong=wrong(seen.call, seen.expectation, seen.answer, checked),
        )
        return seen.outcome, seen

    def _observed(self, case: Case, outcome: CaseOutcome) -> Observation:
        """The call with its answer."""
        start = perf_counter_ns()
        call = call_of(case, self.seed, self.first.server.product)
        expectation = expectation_of(case, call)
        truth_ns = perf_counter_ns() - start
        answer = self.first.ask(call)
        return Observation(self, outcome, case, call, expectation, answer, truth_ns)

    def _listing(self, case: Case, outcome: CaseOutcome) -> CaseOutcome:
        """Judges what each server lists of the operator."""
        problems = [
            problem
            for each in self._both
            for problem in listing_problems(case.statement, each, partly=self.allow_missing)
        ]
        status: Status = "failed" if problems else "passed"
        return replace(outcome, status=status, problems=tuple(problems))

    def _compared(self, second: Subject, seen: Observation) -> list[str]:
        """What is wrong with the answer of the second server, and how both answers differ."""
        target, expectation, answer = second.server.target, seen.expectation, seen.answer
        other = second.ask(seen.call)
        problems = [
            f"{target}: {each}" for each in check(expectation, other, self.profile).problems
        ]
        if problems or isinstance(answer, NpucallError) or isinstance(other, NpucallError):
            return problems
        arrays = arrays_of(answer)
        for name, array in arrays_of(other).items() if expectation.outputs else ():
            beside = replace(expectation.outputs[name], value=wide(array), exact=None)
            verdict = judge(self.profile, arrays[name], beside)
            if not verdict.passed:
                problems.append(f"{name} differs from {target}: {verdict.problem}")
        return problems


def finished(seen: Observation, checked: CheckResult, problems: list[str]) -> CaseOutcome:
    """The outcome of a case with the problems that were found."""
    times: dict[str, Any] = {"truth_ns": seen.truth_ns}
    answer = seen.answer
    if isinstance(answer, WireAnswer):
        times |= {"run_ns": answer.timings.run_ns, "total_ns": answer.total_ns}
    return replace(
        seen.outcome,
        **times,
        status="failed" if problems else "passed",
        problems=tuple(problems),
        ulp=checked.ulp,
        ratio=checked.ratio,
        contradiction=checked.sided,
        paths=tuple(seen.paths),
        paths_skipped=seen.paths_skipped,
    )


def _blank(case: Case) -> CaseOutcome:
    statement = case.statement
    return CaseOutcome(
        case.id, statement.operator, statement.variant, case.block, case.dtype.short, "passed"
    )

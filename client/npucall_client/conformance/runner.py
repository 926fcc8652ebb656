"""Runs cases against a server, or two. Whatever a server does is an outcome, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from grpc import StatusCode

from npucall.dtypes import BF16, BY_WIRE
from npucall.errors import InternalError, NpucallError
from npucall_client.conformance import wire
from npucall_client.conformance.calls import MadeCall, call_of
from npucall_client.conformance.cases import short
from npucall_client.conformance.check import (
    Checked,
    Expectation,
    Refused,
    arrays_of,
    check,
    described,
)
from npucall_client.conformance.report import Outcome, Server
from npucall_client.conformance.statement import WITHOUT_BFLOAT16
from npucall_client.conformance.tolerance import CPU_STRICT, judge
from npucall_client.conformance.truth import expected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npucall.dtypes import DType
    from npucall_client.client import Client
    from npucall_client.conformance.cases import Case

_AT_ONCE = 8
"""Threads that repeat a call of the block ``determinism``, and how often they do."""
_GONE = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
_TIMEOUT, _TIMEOUT_WHEN_GONE = 60.0, 2.0
_GIVE_UP = 3
"""Calls in a row without an answer after which nothing more is sent."""


@dataclass
class Judged:
    """A server that is judged."""

    client: Client
    server: Server
    dtypes: dict[str, frozenset[DType]]
    """By title of the operators that it can run: what the product takes."""
    listed: frozenset[str]
    silent: int = 0
    """Calls in a row that had no answer."""


@dataclass(frozen=True)
class Evidence:
    """All about a case that failed."""

    outcome: Outcome
    call: MadeCall
    expectation: Expectation
    answer: wire.Answer | NpucallError


def judged(client: Client, target: str) -> Judged:
    """Asks a server who it is and what it can run. Raises NpucallError."""
    info = client.server_info()
    dtypes, listed = {}, set()
    for each in client.operators():
        title = f"{each.name}.{each.variant}" if each.variant else each.name
        listed.add(title)
        if each.available:
            here = [p for p in each.products if p.soc == info.product]
            dtypes[title] = frozenset(BY_WIRE[wire_] for p in here for wire_ in p.dtypes)
    server = Server(
        target, info.server.device, info.server.soc, info.product, info.version,
        info.server.instance, info.default_variant, tuple(sorted(dtypes)),
    )  # fmt: skip
    return Judged(client, server, dtypes, frozenset(listed))


def default_profile(*servers: Server) -> str:
    """cpu-strict for the CPU reference, cann-standard as soon as one is a device."""
    on_cpu = all(server.device in ("local", "cpu") for server in servers)
    return CPU_STRICT if on_cpu else "cann-standard"


@dataclass
class Runner:
    """How cases are run."""

    first: Judged
    second: Judged | None = None
    """Its outputs are judged as well, and compared with the first's."""
    profile: str = CPU_STRICT
    seed: int = 0
    torch: bool = False
    """Ask torch for a third opinion in the block ``grid``."""
    on_failure: Callable[[Evidence], None] | None = None

    def run(self, cases: Iterable[Case]) -> Iterator[Outcome]:
        """The outcomes, one by one as they come."""
        for case in cases:
            outcome = _blank(case)
            reason = self._reason_to_skip(case)
            if reason:
                yield replace(outcome, status="skipped", problems=(reason,))
                continue
            try:
                yield self._outcome(case, outcome)
            except Exception as error:  # noqa: BLE001  # a wrong statement ends no run
                text = f"the suite itself failed: {type(error).__name__}: {error}"
                yield replace(outcome, status="failed", problems=(text,))

    def _reason_to_skip(self, case: Case) -> str:
        for each in filter(None, (self.first, self.second)):
            title, product = case.statement.title, each.server.product
            if title not in each.listed:
                return f"{each.server.target} does not list {title}"
            if title not in each.dtypes:
                return f"{title} is not on {product}"
            if case.products and product not in case.products:
                return f"for {', '.join(case.products)} alone"
            taken = each.dtypes[title]
            used = [*case.dtypes.values(), *case.outputs.values(), *case.attributes.values()]
            has_bf16 = any(value is BF16 for value in used)
            # A list may have it where it is taken for some tensors; setups say which.
            without = product in WITHOUT_BFLOAT16 and not case.products
            is_plain = not case.defects and not case.contradiction
            if is_plain and case.dtype not in taken:
                return f"{title} takes no {case.dtype} on {product}"
            lacking = without or (is_plain and BF16 not in taken)
            if has_bf16 and lacking and not case.contradiction:
                return f"{title} takes no BF16 on {product}"
        return ""

    def _outcome(self, case: Case, outcome: Outcome) -> Outcome:
        start = perf_counter_ns()
        call = call_of(case, self.seed, self.first.server.product)
        expectation = self._expectation(case, call)
        truth_ns = perf_counter_ns() - start
        answer = _ask(self.first, call)
        checked = check(expectation, answer, self.profile)
        problems = [*checked.problems, *_repeated(self.first, case, call, answer)]
        if self.second is not None:
            problems += self._compared(self.second, call, expectation, answer)
        outcome = finished(replace(outcome, truth_ns=truth_ns), checked, problems, answer)
        if problems and self.on_failure is not None:
            self.on_failure(Evidence(outcome, call, expectation, answer))
        return outcome

    def _expectation(self, case: Case, call: MadeCall) -> Expectation:
        variant = case.statement.variant
        if case.contradiction is not None:
            return Expectation(variant, contradiction=case.contradiction)
        if case.defects:
            row = case.defects[0]
            return Expectation(variant, refused=Refused(row.status, row.error.reason, row.blames))
        torch = self.torch and case.block == "grid"
        truth = expected(case.statement, call, filled=case.setup.filled, torch=torch)
        return Expectation(variant, truth)

    def _compared(
        self, second: Judged, call: MadeCall, expectation: Expectation, answer: Any
    ) -> list[str]:
        """What is wrong with the second server, and where it differs from the first."""
        target = second.server.target
        other = _ask(second, call)
        problems = [f"{target}: {p}" for p in check(expectation, other, self.profile).problems]
        if isinstance(answer, NpucallError) or isinstance(other, NpucallError):
            return problems
        if expectation.contradiction is not None or problems:
            return problems
        found = arrays_of(answer)
        for name, array in arrays_of(other).items():
            truth = expectation.outputs[name]
            beside = replace(truth, value=array.astype(np.float64))
            verdict = judge(self.profile, found[name], beside)
            if not verdict.passed:
                problems.append(f"{name} differs from {target}: {verdict.problem}")
        return problems


def finished(
    outcome: Outcome, checked: Checked, problems: list[str], answer: wire.Answer | NpucallError
) -> Outcome:
    """The outcome of a case with what was found."""
    if checked.verdicts:
        name, worst = max(checked.verdicts.items(), key=lambda item: item[1].ratio)
        columns = zip(*(v.histogram for v in checked.verdicts.values()), strict=True)
        outcome = replace(
            outcome,
            ulp=max(verdict.ulp for verdict in checked.verdicts.values()),
            ratio=worst.ratio,
            worst=f"{name}{list(worst.worst)}",
            histogram=tuple(map(sum, columns)),
        )
    if isinstance(answer, wire.Answer):
        outcome = replace(outcome, run_ns=answer.run_ns, total_ns=answer.total_ns)
    return replace(
        outcome,
        status="failed" if problems else "passed",
        problems=tuple(problems),
        contradiction=checked.sided,
    )


def _blank(case: Case) -> Outcome:
    statement = case.statement
    return Outcome(
        case.id, statement.operator, statement.variant, case.block, short(case.dtype), "passed"
    )


def _ask(server: Judged, call: MadeCall) -> wire.Answer | NpucallError:
    """The answer, or the error that came instead."""
    if server.silent >= _GIVE_UP:
        return InternalError(f"not sent, for {server.server.target} did not answer before")
    timeout = _TIMEOUT_WHEN_GONE if server.silent else _TIMEOUT
    try:
        answer = wire.send(
            server.client, call.operator, call.variant, call.arguments, call.storages, timeout
        )
    except NpucallError as error:
        server.silent = server.silent + 1 if error.code in _GONE else 0
        return error
    except Exception as error:  # noqa: BLE001  # an answer that cannot be read is a wrong one
        return InternalError(f"unreadable answer: {type(error).__name__}: {error}")
    server.silent = 0
    return answer


def _repeated(server: Judged, case: Case, call: MadeCall, answer: Any) -> list[str]:
    """Whether the same call has the same bits again, alone and among others."""
    if not case.repeated or isinstance(answer, NpucallError):
        return []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        again = [_ask(server, call), *pool.map(lambda _: _ask(server, call), range(_AT_ONCE))]
    for other in again:
        if isinstance(other, NpucallError):
            return [f"repeated: expected an answer, found {described(other)}"]
        if other.storages != answer.storages:
            return ["repeated: expected the same bits, found others"]
    return []

"""Compares an answer, or the error that came instead, with the expected one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npucall.dtypes import AnyArray, DType
from npucall.errors import (
    ArgumentError,
    NpucallError,
    OperatorUnavailableError,
    VariantUnavailableError,
)
from npucall.tensors import Buffer, TensorSpec
from npucall.wire.replies import Reply
from npucall_conformance.cases.arrangements import gaps, view
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.judging.profiles import CPU_STRICT
from npucall_conformance.judging.tolerance import Judgement, judge
from npucall_conformance.judging.truth import Expected, expected, written
from npucall_conformance.stating.parts import Contradiction, Invalid, Refusal
from npucall_conformance.wire import ON_CPU, AnswerOrError, WireAnswer

_UNAVAILABLE = (OperatorUnavailableError.reason, VariantUnavailableError.reason)
_NEAR = 0.01
"""The largest relative distance from a source's numbers; sources differ by far more."""


@dataclass(frozen=True)
class Sided:
    """Which sources of a contradiction the server agrees with."""

    number: int | str
    """The row in the table of contradictions in docs/conformance.md."""
    topic: str
    sources: tuple[str, ...]
    agrees: tuple[str, ...]
    """The sources whose expectation the answer meets."""
    decided: str
    """The source that the reference follows."""
    answer: str
    """What the server answered."""


@dataclass(frozen=True)
class Expectation:
    """The expected answer to one call: outputs, an error, or agreement with a source."""

    variant: str
    outputs: Mapping[str, Expected] = field(default_factory=dict)
    refused: Invalid | None = None
    """The defect for which the call must be refused."""
    contradiction: Contradiction | None = None
    sent: Mapping[str, Buffer] = field(default_factory=dict)
    """Storages of outputs as they were sent."""
    kernel: DType | None = None
    """The dtype in which the operator computes and rounds; None: the reply may name any."""
    warned: frozenset[str] | None = None
    """The parameters for which the reply must warn; None: the reply may warn for any."""


@dataclass(frozen=True)
class CheckResult:
    """The result of checking an answer."""

    problems: tuple[str, ...]
    verdicts: Mapping[str, Judgement] = field(default_factory=dict)
    sided: Sided | None = None

    @property
    def ulp(self) -> float:
        """The worst error in ulp of all outputs."""
        return max((each.ulp for each in self.verdicts.values()), default=0.0)

    @property
    def ratio(self) -> float:
        """The worst error as a share of the tolerance."""
        return max((each.ratio for each in self.verdicts.values()), default=0.0)


def arrays_of(answer: WireAnswer) -> dict[str, AnyArray]:
    """The outputs' elements by name."""
    return {n: view(spec, answer.storages[n]) for n, spec in answer.outputs.items()}


def expectation_of(case: Case, call: MadeCall) -> Expectation:
    """The expected answer to the call of a case."""
    variant = case.statement.variant
    if case.contradiction is not None:
        return Expectation(variant, contradiction=case.contradiction)
    if case.defects:
        return Expectation(variant, refused=case.defects[0])
    if case.written is not None:
        return Expectation(variant, written(call, case.written))
    truth = expected(case.statement, call, case.setup.filled)
    sent = {name: storage for name, storage in call.storages.items() if name in truth}
    unwarned = case.statement.unwarned
    warned = frozenset(n for n, usual in unwarned.items() if call.given[n] not in usual)
    said = case.statement.kernel_said
    kernel = said(call.given.dtypes) if said else call.given.kernel
    return Expectation(variant, truth, sent=sent, kernel=kernel, warned=warned)


def check(expectation: Expectation, answer: AnswerOrError, profile: str) -> CheckResult:
    """What is wrong with an answer."""
    if expectation.contradiction is not None:
        return _check_sources(expectation.contradiction, answer, profile)
    if isinstance(answer, NpucallError):
        if expectation.refused is None:
            return CheckResult((f"expected an answer, found {described(answer)}",))
        return CheckResult(tuple(_error_problems(expectation.refused, answer, profile)))
    if expectation.refused is not None:
        wanted = expectation.refused
        blamed = ", ".join(wanted.blames)
        return CheckResult((f"expected error {wanted.status} blaming {blamed}, found an answer",))
    return _check_outputs(expectation, answer, profile)


def described(error: AnswerOrError) -> str:
    """An error in one line; of an answer that it is one."""
    if not isinstance(error, NpucallError):
        return "an answer"
    status = f" {error.aclnn_status}" if error.aclnn_status else ""
    return f"{error.reason}{status}: {error}"


def _error_problems(refused: Invalid, error: NpucallError, profile: str) -> list[str]:
    """What is wrong with an error.

    A device tells the status. It tells the reason and the parameters to blame only if its text
    shows them.
    """
    strict = profile == CPU_STRICT
    lacking = not refused.changes  # the product does not have the operator; a host may say so
    if lacking and not strict and error.reason in _UNAVAILABLE:
        return []
    problems = []
    if error.aclnn_status != refused.status:
        problems.append(f"expected status {refused.status}, found {error.aclnn_status}: {error}")
    blamed = set(error.parameters)
    fits = blamed and blamed <= {*refused.blames} if refused.whoever else None
    if (strict or blamed) and not (error.parameters == refused.blames or fits):
        problems.append(f"expected {refused.blames} blamed, found {error.parameters}: {error}")
    if (strict or error.reason != ArgumentError.reason) and error.reason != refused.error.reason:
        problems.append(f"expected reason {refused.error.reason}, found {error.reason}: {error}")
    return problems


def _check_outputs(expectation: Expectation, answer: WireAnswer, profile: str) -> CheckResult:
    problems = list(_told(expectation, answer.reply))
    verdicts = {}
    if answer.reply.variant != expectation.variant:
        problems.append(f"expected variant {expectation.variant!r}, found {answer.reply.variant!r}")
    if list(answer.outputs) != list(expectation.outputs):
        found = f"expected outputs {list(expectation.outputs)}, found {list(answer.outputs)}"
        return CheckResult((*problems, found))
    for name, truth in expectation.outputs.items():
        spec = answer.outputs[name]
        if spec.shape != truth.value.shape or spec.dtype is not truth.dtype:
            problems.append(
                f"{name}: expected {truth.dtype} {truth.value.shape}, "
                f"found {spec.dtype} {spec.shape}"
            )
            continue
        problems += _gap_problems(name, spec, answer.storages[name], expectation.sent.get(name))
        verdicts[name] = judge(profile, view(spec, answer.storages[name]), truth)
        if not verdicts[name].passed:
            problems.append(f"{name}: {verdicts[name].problem}")
    return CheckResult(tuple(problems), verdicts)


def _gap_problems(name: str, spec: TensorSpec, storage: bytes, sent: Buffer | None) -> list[str]:
    """What is wrong with bytes that no element owns.

    If the storage was sent, these bytes must stay as they were. If not, the output must come
    without gaps.
    """
    found = gaps(spec, storage)
    if sent is None:
        return [f"{name}: expected nothing but its elements, found gaps"] if found.size else []
    wanted = gaps(spec, sent)
    if found.shape == wanted.shape and (found == wanted).all():
        return []
    return [f"{name}: expected gaps that are left alone, found them written"]


def _told(expectation: Expectation, reply: Reply) -> Iterator[str]:
    """What is wrong with the reply.

    A device need not tell the kernel's dtype. A library in place of a server does not warn.
    """
    kernel, is_reference = expectation.kernel, reply.server.device in ON_CPU
    told = kernel is not None and (reply.kernel_dtype is not None or is_reference)
    if told and reply.kernel_dtype is not kernel:
        yield f"kernel dtype: expected {kernel}, found {reply.kernel_dtype}"
    if expectation.warned is not None and {*reply.warned} != expectation.warned:
        wanted = ", ".join(sorted(expectation.warned)) or "nothing"
        found = ", ".join(sorted(reply.warned)) or "nothing"
        yield f"warnings: expected one of {wanted}, found one of {found}"


def _check_sources(
    contradiction: Contradiction, answer: AnswerOrError, profile: str
) -> CheckResult:
    agrees = tuple(n for n, wanted in contradiction.sources.items() if _meets(wanted, answer))
    if isinstance(answer, NpucallError):
        text = described(answer)
    else:
        text = "; ".join(_text(array) for array in arrays_of(answer).values())
    sided = Sided(
        contradiction.number, contradiction.topic, tuple(contradiction.sources), agrees,
        contradiction.decided, text,
    )  # fmt: skip
    # The reference must follow its decision; hardware may side with any source.
    fine = contradiction.decided in agrees if profile == CPU_STRICT else bool(agrees)
    wanted = contradiction.decided if profile == CPU_STRICT else "one of the sources"
    problem = f"{contradiction.topic}: expected what {wanted} says, found {text}"
    return CheckResult(() if fine else (problem,), sided=sided)


def _meets(wanted: Any, answer: AnswerOrError) -> bool:
    if isinstance(answer, NpucallError):
        return isinstance(wanted, Refusal) and answer.aclnn_status == wanted.status
    if isinstance(wanted, Refusal):
        return False
    if wanted is ...:
        return True
    found, *_ = arrays_of(answer).values()
    numbers = np.asarray(wanted, np.float64)
    return found.shape == numbers.shape and np.allclose(
        found.astype(np.float64), numbers, rtol=_NEAR, atol=1e-6, equal_nan=True
    )


def _text(array: AnyArray) -> str:
    if array.size > 12:  # noqa: PLR2004  # as fits a line
        return f"an answer of shape {array.shape}"
    return str(array.astype(np.float64).tolist())

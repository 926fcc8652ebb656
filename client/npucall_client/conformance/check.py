"""Holds an answer, or the error that came instead, against what is expected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.errors import ArgumentError, NpucallError
from npucall.tensors import view
from npucall_client.conformance.arrangements import SENTINEL, gaps
from npucall_client.conformance.report import Sided
from npucall_client.conformance.statement import Contradiction, Refusal
from npucall_client.conformance.tolerance import CPU_STRICT, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.dtypes import AnyArray
    from npucall_client.conformance.truth import Expected
    from npucall_client.conformance.wire import Answer

_NEAR = 0.01
"""How near numbers must be to a source's; sources differ by far more."""


@dataclass(frozen=True)
class Refused:
    """The error that is expected."""

    status: int
    reason: str
    blames: tuple[str, ...]


@dataclass(frozen=True)
class Expectation:
    """What is expected of one call: outputs, an error, or to side with a source."""

    variant: str
    outputs: Mapping[str, Expected] = field(default_factory=dict)
    refused: Refused | None = None
    contradiction: Contradiction | None = None


@dataclass(frozen=True)
class Checked:
    """What a look at an answer found."""

    problems: tuple[str, ...]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    sided: Sided | None = None


def arrays_of(answer: Answer) -> dict[str, AnyArray]:
    """The outputs' elements by name."""
    return {n: view(spec, answer.storages[n]) for n, spec in answer.outputs.items()}


def check(expectation: Expectation, answer: Answer | NpucallError, profile: str) -> Checked:
    """What is wrong with an answer."""
    if expectation.contradiction is not None:
        return _check_sources(expectation.contradiction, answer, profile)
    if isinstance(answer, NpucallError):
        if expectation.refused is None:
            return Checked((f"expected an answer, found {described(answer)}",))
        return Checked(tuple(_error_problems(expectation.refused, answer, profile)))
    if expectation.refused is not None:
        wanted = expectation.refused
        blamed = ", ".join(wanted.blames)
        return Checked((f"expected error {wanted.status} blaming {blamed}, found an answer",))
    return _check_outputs(expectation, answer, profile)


def described(error: NpucallError) -> str:
    """An error in one line."""
    status = f" {error.aclnn_status}" if error.aclnn_status else ""
    return f"{error.reason}{status}: {error}"


def _error_problems(refused: Refused, error: NpucallError, profile: str) -> list[str]:
    """A device tells the status, and whom it blames and why only if its text shows it."""
    strict = profile == CPU_STRICT
    problems = []
    if error.aclnn_status != refused.status:
        problems.append(f"expected status {refused.status}, found {error.aclnn_status}: {error}")
    if (strict or error.parameters) and error.parameters != refused.blames:
        problems.append(f"expected {refused.blames} blamed, found {error.parameters}: {error}")
    if (strict or error.reason != ArgumentError.reason) and error.reason != refused.reason:
        problems.append(f"expected reason {refused.reason}, found {error.reason}: {error}")
    return problems


def _check_outputs(expectation: Expectation, answer: Answer, profile: str) -> Checked:
    problems = []
    verdicts = {}
    if answer.variant != expectation.variant:
        problems.append(f"expected variant {expectation.variant!r}, found {answer.variant!r}")
    if list(answer.outputs) != list(expectation.outputs):
        found = f"expected outputs {list(expectation.outputs)}, found {list(answer.outputs)}"
        return Checked((*problems, found))
    for name, truth in expectation.outputs.items():
        spec = answer.outputs[name]
        if spec.shape != truth.value.shape or spec.dtype is not truth.dtype:
            problems.append(
                f"{name}: expected {truth.dtype} {truth.value.shape}, "
                f"found {spec.dtype} {spec.shape}"
            )
            continue
        if (gaps(spec, answer.storages[name]) != SENTINEL).any():
            problems.append(f"{name}: expected gaps that are left alone, found them written")
        verdicts[name] = judge(profile, view(spec, answer.storages[name]), truth)
        if not verdicts[name].passed:
            problems.append(f"{name}: {verdicts[name].problem}")
    return Checked(tuple(problems), verdicts)


def _check_sources(
    contradiction: Contradiction, answer: Answer | NpucallError, profile: str
) -> Checked:
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
    return Checked(() if fine else (problem,), sided=sided)


def _meets(wanted: Any, answer: Answer | NpucallError) -> bool:
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

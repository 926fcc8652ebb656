"""Describes a failed case: its worst element, the inputs of that element, and patterns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall_conformance.judging.check import arrays_of
from npucall_conformance.reporting.patterns import Difference, elements, patterns
from npucall_conformance.reporting.report import Wrong

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall_conformance.cases.made_call import MadeCall
    from npucall_conformance.judging.check import CheckResult, Expectation
    from npucall_conformance.judging.tolerance import Judgement
    from npucall_conformance.wire import WireAnswer

_LISTS = re.compile(r"[\[(][^\[\]()]*\d[^\[\]()]*[\])]")
_IDS = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_STATUS = r"[135]6[01]\d{3}\b"
_NUMBERS = re.compile(
    rf"(?<![\w.])[-+]?(?!{_STATUS})\d+(?:,\d{{3}})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)"
)
_SHOWN = 60
"""Characters of an attribute."""


def wrong(
    call: MadeCall,
    expectation: Expectation,
    answer: WireAnswer | NpucallError,
    checked: CheckResult,
) -> Wrong | None:
    """The worst of the outputs whose numbers are wrong; None if none are."""
    failed = {name: each for name, each in checked.verdicts.items() if not each.passed}
    if not failed or isinstance(answer, NpucallError):
        return None
    name, verdict = max(failed.items(), key=lambda item: item[1].ratio)
    truth = expectation.outputs[name]
    if truth.dtype.kind == "complex":
        return None  # patterns are of real numbers
    found = arrays_of(answer)[name].astype(np.float64)
    there = _outside(verdict, truth.value, found)
    if not there.any():
        return None
    values = call.given.values
    tensors = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    fraction = (truth.dtype if truth.dtype.kind == "float" else FLOAT).fraction
    seen = Difference(truth.value, found, there, tensors, fraction)
    at = verdict.worst
    return Wrong(
        name,
        elements(seen.wrong),
        at,
        float(truth.value[at]),
        float(found[at]),
        {n: float(array[at]) for n, array in seen.beside.items()},
        {
            n: _told(v)
            for n, v in call.given.values.items()
            if v is not None and n not in seen.beside
        },
        patterns(seen),
    )


def findings(
    problems: Iterable[str], checked: CheckResult, answer: WireAnswer | NpucallError
) -> tuple[str, ...]:
    """The problems in a form that is the same for every case with the same cause."""
    text = f": {answer}" if isinstance(answer, NpucallError) else ""
    numbers = {
        f"{name}: {each.problem}": f"{name}: wrong numbers"
        for name, each in checked.verdicts.items()
        if each.problem.startswith("element ")
    }
    return tuple(numbers.get(each) or stable(each.replace(text, "")) for each in problems)


def stable(problem: str) -> str:
    """A problem without its numbers, but with CANN's statuses, such as 161002 and 561103."""
    text = _LISTS.sub("...", problem)
    return _NUMBERS.sub("...", _IDS.sub("...", text))


def _outside(verdict: Judgement, value: Any, found: Any) -> Any:
    """The elements that are wrong; where only all of them together are, those that differ."""
    if verdict.outside is not None and verdict.outside.any():
        return verdict.outside
    return ~((value == found) | (np.isnan(value) & np.isnan(found)))


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a tensor of shape {list(value.shape)}"
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."

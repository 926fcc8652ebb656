"""Describes failed cases, and groups them by what they have in common: 300 cases in a few lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from npucall.errors import NpucallError
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.judging.check import CheckResult, Expectation, arrays_of
from npucall_conformance.reporting.report import CaseOutcome, Wrong
from npucall_conformance.stating.promotion import common_shape
from npucall_conformance.wire import AnswerOrError

_WRONG = re.compile(r"element \[.*? are outside")
_CASES = re.compile(r"\baclnn[\w.]+/[^\s:,]+")
_LISTS = re.compile(r"[\[(][^\[\]()]*\d[^\[\]()]*[\])]")
_IDS = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_NUMBERS = re.compile(
    r"(?<![\w.])[-+]?(?![135]6[01]\d{3}\b)\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)"
    r"|(?<![\w.])-?(?:nan|inf)\b"
)
_SHOWN = 60
"""Characters of an attribute."""
_TOGETHER = 3
"""If more operators than this have a cause, it is told once, for all of them."""
_RANGES = 8
"""So many ranges of elements are named."""


def wrong(
    call: MadeCall,
    expectation: Expectation,
    answer: AnswerOrError,
    checked: CheckResult,
) -> Wrong | None:
    """The worst of the outputs with wrong numbers; None if there are none, or if it is complex."""
    failed = {name: each for name, each in checked.verdicts.items() if not each.passed}
    if not failed or isinstance(answer, NpucallError):
        return None
    name, verdict = max(failed.items(), key=lambda item: item[1].ratio)
    truth = expectation.outputs[name]
    if truth.dtype.kind == "complex":
        return None  # it has no one error
    with np.errstate(invalid="ignore"):  # of a NaN that signals
        value, found = truth.value, arrays_of(answer)[name].astype(np.float64)
    there = verdict.outside
    if there is None or not there.any():  # only all of them together are wrong
        there = ~((value == found) | (np.isnan(value) & np.isnan(found)))
    if not there.any():
        return None
    given = {n: v for n, v in call.given.values.items() if v is not None}
    tensors = {n: v for n, v in given.items() if isinstance(v, np.ndarray)}
    near, at = _beside(tensors, value.shape), verdict.worst
    return Wrong(
        name, elements(there), at, float(value[at]), float(found[at]),
        {n: float(array[at]) for n, array in near.items()},
        {n: _told(v) for n, v in given.items() if n not in near},
        value.size,
    )  # fmt: skip


def _beside(inputs: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """The inputs that broadcast to an output, in its shape."""
    return {
        name: np.broadcast_to(array, shape)
        for name, array in inputs.items()
        if common_shape(array.shape, shape) == shape
    }


def elements(wrong: Any) -> str:
    """Which elements of a mask are set: by dimension if that says it all, else by flat number."""
    many, size = int(wrong.sum()), wrong.size
    if many == size:
        return f"all {size:,} elements" if size != 1 else "the only element"
    told = f"{many:,} of {size:,} elements"
    places = [np.unique(axis) for axis in np.nonzero(wrong)]
    if wrong.ndim > 1 and prod(map(len, places)) != many:
        return f"in flat order {_ranges(np.flatnonzero(wrong))}, {told}"
    pairs = zip(places, wrong.shape, strict=True)
    box = (":" if len(place) == extent else _ranges(place) for place, extent in pairs)
    return f"[{', '.join(box)}], {told}"


def _ranges(numbers: Any) -> str:
    """Ascending numbers as ranges; of very many the first."""
    ends = np.flatnonzero(np.diff(numbers) != 1)
    starts = [numbers[0], *numbers[ends + 1]]
    texts = [
        f"{first:,}" if first == last else f"{first:,}-{last:,}"
        for first, last in zip(starts, [*numbers[ends], numbers[-1]], strict=True)
    ]
    more = [f"and more up to {numbers[-1]:,}"] if len(texts) > _RANGES else []
    return " ".join([", ".join(texts[:_RANGES]), *more])


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a tensor of shape {list(value.shape)}"
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def findings(problems: Iterable[str], answer: AnswerOrError) -> tuple[str, ...]:
    """The problems in a form that is the same for every case with the same cause."""
    text = f": {answer}" if isinstance(answer, NpucallError) else ""
    return tuple(stable(each.replace(text, "")) for each in problems)


def stable(problem: str) -> str:
    """A problem without its numbers, but with CANN's statuses, such as 161002 and 561103."""
    text = _WRONG.sub("wrong numbers", problem)
    for pattern in (_CASES, _LISTS, _IDS, _NUMBERS):
        text = pattern.sub("...", text)
    return text


@dataclass(frozen=True)
class Cause:
    """Cases that fail in the same way."""

    words: str
    outcomes: tuple[CaseOutcome, ...]
    """In the order in which they ran."""

    def all(self, name: str) -> tuple[str, ...]:
        """What they have in a field, such as title, dtype and block."""
        return tuple(dict.fromkeys(getattr(outcome, name) for outcome in self.outcomes))

    @property
    def example(self) -> CaseOutcome:
        """The failure of the smallest output."""
        return min(self.outcomes, key=lambda each: each.wrong.size if each.wrong else 0)


def causes(failures: Iterable[CaseOutcome]) -> list[Cause]:
    """The causes of failures, those of most cases first. One of many operators is told once."""
    found: dict[str, dict[str, list[CaseOutcome]]] = {}
    for each in failures:
        words = "; ".join(dict.fromkeys(each.findings or each.problems[:1]))
        found.setdefault(words, {}).setdefault(each.title, []).append(each)
    told: list[Cause] = []
    for words, by_title in found.items():
        together = [[each for group in by_title.values() for each in group]]
        groups = together if len(by_title) > _TOGETHER else list(by_title.values())
        told += [Cause(words, tuple(group)) for group in groups]
    return sorted(told, key=lambda cause: -len(cause.outcomes))

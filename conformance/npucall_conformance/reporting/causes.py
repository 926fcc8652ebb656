"""Describes failed cases, and groups them by what they have in common: 300 cases in a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.judging.check import CheckResult, Expectation, arrays_of
from npucall_conformance.reporting.patterns import beside, elements, patterns
from npucall_conformance.reporting.report import CaseOutcome, Wrong
from npucall_conformance.wire import WireAnswer

_LISTS = re.compile(r"[\[(][^\[\]()]*\d[^\[\]()]*[\])]")
_IDS = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_NUMBERS = re.compile(
    r"(?<![\w.])[-+]?(?![135]6[01]\d{3}\b)\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)"
)
_SHOWN = 60
"""Characters of an attribute."""
_TOGETHER = 3
"""If more operators than this have a cause, it is told once, for all of them."""
_SHARE = 0.2
"""A smaller share of the cases may share a pattern by chance."""


def wrong(
    call: MadeCall,
    expectation: Expectation,
    answer: WireAnswer | NpucallError,
    checked: CheckResult,
) -> Wrong | None:
    """The worst of the outputs with wrong numbers; None if there are none, or if it is complex."""
    failed = {name: each for name, each in checked.verdicts.items() if not each.passed}
    if not failed or isinstance(answer, NpucallError):
        return None
    name, verdict = max(failed.items(), key=lambda item: item[1].ratio)
    truth = expectation.outputs[name]
    if truth.dtype.kind == "complex":
        return None  # patterns are of real numbers
    value, found = truth.value, arrays_of(answer)[name].astype(np.float64)
    there = verdict.outside
    if there is None or not there.any():  # only all of them together are wrong
        there = ~((value == found) | (np.isnan(value) & np.isnan(found)))
    if not there.any():
        return None
    given = {n: v for n, v in call.given.values.items() if v is not None}
    tensors = {n: v for n, v in given.items() if isinstance(v, np.ndarray)}
    near, at = beside(tensors, value.shape), verdict.worst
    fraction = (truth.dtype if truth.dtype.kind == "float" else FLOAT).fraction
    return Wrong(
        name, elements(there), at, float(value[at]), float(found[at]),
        {n: float(array[at]) for n, array in near.items()},
        {n: _told(v) for n, v in given.items() if n not in near},
        patterns(value, found, there, tensors, fraction), value.size,
    )  # fmt: skip


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a tensor of shape {list(value.shape)}"
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


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
    return _NUMBERS.sub("...", _IDS.sub("...", _LISTS.sub("...", problem)))


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
        """The failure of the smallest output that shows the most patterns of the cause."""

        def rank(each: CaseOutcome) -> tuple[int, int]:
            shown = [words for words in _patterns(each) if words in self.words]
            return -len(shown), each.wrong.size if each.wrong else 0

        return min(self.outcomes, key=rank)


def causes(failures: Iterable[CaseOutcome]) -> list[Cause]:
    """The causes of failures, those of most cases first. One of many operators is told once."""
    by_title: dict[str, list[CaseOutcome]] = {}
    for outcome in failures:
        by_title.setdefault(outcome.title, []).append(outcome)
    found: dict[str, list[Cause]] = {}
    for outcomes in by_title.values():
        for words, group in _groups(outcomes):
            found.setdefault(words, []).append(Cause(words, tuple(group)))
    told: list[Cause] = []
    for words, several in found.items():
        together = len({cause.outcomes[0].title for cause in several}) > _TOGETHER
        all_of_them = Cause(words, tuple(o for cause in several for o in cause.outcomes))
        told += [all_of_them] if together else several
    return sorted(told, key=lambda cause: -len(cause.outcomes))


def _groups(left: list[CaseOutcome]) -> Iterator[tuple[str, list[CaseOutcome]]]:
    """The failures of one operator, in groups with words.

    Repeatedly, the pattern that most of the rest share, those failures, and a pattern of the other
    kind that all of them share; if no pattern is of enough of them, by what was found.
    """
    while left:
        counts = Counter(words for outcome in left for words in _patterns(outcome))
        words = max(counts, key=lambda each: counts[each], default="")
        if not words or counts[words] < _SHARE * len([each for each in left if each.wrong]):
            break
        group = [outcome for outcome in left if words in _patterns(outcome)]
        left = [outcome for outcome in left if words not in _patterns(outcome)]
        others = [
            other
            for other in _patterns(group[0])
            if other.startswith("only ") != words.startswith("only ")
            and all(other in _patterns(each) for each in group)
        ]
        yield ", ".join(sorted([words, *others[:1]], key=lambda each: each[:5] == "only ")), group
    groups: dict[str, list[CaseOutcome]] = {}
    for each in left:
        found = "; ".join(dict.fromkeys(each.findings or each.problems[:1]))
        groups.setdefault(found, []).append(each)
    yield from groups.items()


def _patterns(outcome: CaseOutcome) -> tuple[str, ...]:
    return outcome.wrong.patterns if outcome.wrong is not None else ()

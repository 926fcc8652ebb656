"""Describes failed cases, and groups them by what they have in common: 300 cases in a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.judging.check import CheckResult, Expectation, arrays_of
from npucall_conformance.reporting.elements import elements
from npucall_conformance.reporting.patterns import Difference, Pattern, patterns
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
_SHARE, _MOST, _NEARLY = 0.2, 0.75, 0.9
"""A smaller share of the cases may share a pattern by chance; the least share of a second pattern
of a cause; and of words that are the same in nearly every case."""


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
    fraction = (truth.dtype if truth.dtype.kind == "float" else FLOAT).fraction
    seen, at = Difference(value, found, there, tensors, fraction), verdict.worst
    return Wrong(
        name, elements(there), at, float(value[at]), float(found[at]),
        {n: float(array[at]) for n, array in seen.beside.items()},
        {n: _told(v) for n, v in given.items() if n not in seen.beside},
        patterns(seen),
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
    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    blocks: tuple[str, ...]
    cases: tuple[str, ...]
    """Ids, in the order in which they ran."""
    example: CaseOutcome
    """The failure of the smallest output that shows the cause."""


def causes(failures: Iterable[CaseOutcome]) -> list[Cause]:
    """The causes of failures, those of most cases first. One of many operators is told once."""
    by_operator: dict[str, list[CaseOutcome]] = {}
    for outcome in failures:
        by_operator.setdefault(outcome.title, []).append(outcome)
    alike: dict[str, list[list[CaseOutcome]]] = {}
    for outcomes in by_operator.values():
        for words, group in _groups(outcomes):
            alike.setdefault(words, []).append(group)
    found = []
    for words, groups in alike.items():
        together = len({group[0].title for group in groups}) > _TOGETHER
        several = [[each for group in groups for each in group]] if together else groups
        found += [_cause(words, group) for group in several]
    return sorted(found, key=lambda cause: -len(cause.cases))


def _cause(words: str, outcomes: list[CaseOutcome]) -> Cause:
    titles, dtypes, blocks = (
        tuple(dict.fromkeys(getattr(outcome, name) for outcome in outcomes))
        for name in ("title", "dtype", "block")
    )
    cases = tuple(outcome.case for outcome in outcomes)
    example = min(outcomes, key=lambda each: (_is_unsure(each), sum(each.histogram)))
    return Cause(words, titles, dtypes, blocks, cases, example)


def _is_unsure(outcome: CaseOutcome) -> bool:
    """Whether an outcome is no good example: its wrong elements are too few to show a pattern."""
    return outcome.wrong is not None and not any(p.sure for p in outcome.wrong.patterns)


_Group = tuple[str, list["CaseOutcome"]]
"""Words, and the failures that share them."""


def _groups(outcomes: Sequence[CaseOutcome]) -> Iterator[_Group]:
    """The failures of one operator: by what was found, and wrong numbers by their patterns.

    Repeatedly, the pattern that explains most of the remaining cases, and those cases.
    """
    yield from _by_finding(each for each in outcomes if each.wrong is None)
    left = [each for each in outcomes if each.wrong is not None]
    while left and (chosen := _commonest(left, ("what", "where"), _SHARE)):
        group = [each for each in left if chosen.key in _keys(each)]
        left = [each for each in left if chosen.key not in _keys(each)]
        kind = "where" if chosen.kind == "what" else "what"
        told = [each for each in (chosen, _commonest(group, (kind,), _MOST)) if each]
        told.sort(key=lambda each: each.kind)
        yield ", ".join(_worded(group, each.key) for each in told), group
    yield from _by_finding(left)


def _by_finding(outcomes: Iterable[CaseOutcome]) -> Iterator[_Group]:
    groups: dict[str, list[CaseOutcome]] = {}
    for each in outcomes:
        words = "; ".join(dict.fromkeys(each.findings or each.problems[:1]))
        groups.setdefault(words, []).append(each)
    yield from groups.items()


def _commonest(
    outcomes: Sequence[CaseOutcome], kinds: Iterable[str], least: float
) -> Pattern | None:
    """The pattern that most outcomes show or do not contradict, if that is this share of them.

    If there are several, it is the one that says most: patterns come in that order. Enough of those
    outcomes must surely show it.
    """
    found: dict[str, list[Pattern]] = {}
    for outcome in outcomes:
        for key, pattern in {p.key: p for p in _patterns(outcome) if p.kind in kinds}.items():
            found.setdefault(key, []).append(pattern)
    ranked = [
        each
        for each in found.values()
        if len(each) >= least * len(outcomes)
        and sum(pattern.sure for pattern in each) >= _SHARE * len(each)
    ]
    return max(ranked, key=len)[-1] if ranked else None


def _worded(group: Sequence[CaseOutcome], key: str) -> str:
    """The words of a pattern if they are the same in nearly every case, else what they share.

    "Mostly", if some of the cases contradict it.
    """
    words = Counter(p.words for o in group for p in _patterns(o) if p.key == key)
    ((commonest, many),) = words.most_common(1)
    told = commonest if many >= _NEARLY * words.total() else key
    every = all(key in _keys(outcome) for outcome in group)
    return told if every else f"mostly {told.removeprefix('only ')}"


def _patterns(outcome: CaseOutcome) -> tuple[Pattern, ...]:
    return outcome.wrong.patterns if outcome.wrong is not None else ()


def _keys(outcome: CaseOutcome) -> set[str]:
    return {pattern.key for pattern in _patterns(outcome)}

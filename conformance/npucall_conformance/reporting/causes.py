"""Failures grouped by what they have in common, so that 300 cases read as a few lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from npucall_conformance.reporting.patterns import Kind, Pattern
    from npucall_conformance.reporting.report import CaseOutcome

_TOGETHER = 3
"""If more operators than this have a cause, it is told once, for all of them."""
_SHARE = 0.2
"""A smaller share of the cases may share a pattern by chance."""
_NEARLY = 0.9
_MOST = 0.75
"""A second pattern is told if at least this share of the cases of a cause fits it."""


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
    """The causes of failures; those of most cases first."""
    by_operator: dict[str, list[CaseOutcome]] = {}
    for outcome in failures:
        by_operator.setdefault(outcome.title, []).append(outcome)
    groups = [group for outcomes in by_operator.values() for group in _groups(outcomes)]
    found = [_cause(*group) for group in _joined(groups)]
    return sorted(found, key=lambda cause: -len(cause.cases))


_Group = tuple[str, list["CaseOutcome"]]
"""A key, and the failures that share it."""


def _groups(outcomes: Sequence[CaseOutcome]) -> Iterator[_Group]:
    """The failures of one operator: by what was found, and wrong numbers by their patterns."""
    yield from _by_finding(outcome for outcome in outcomes if outcome.wrong is None)
    yield from _by_pattern([outcome for outcome in outcomes if outcome.wrong is not None])


def _findings(outcome: CaseOutcome) -> tuple[str, ...]:
    return tuple(dict.fromkeys(outcome.findings or outcome.problems[:1]))


def _by_pattern(outcomes: list[CaseOutcome]) -> Iterator[_Group]:
    """Repeatedly, the pattern that explains most of the remaining cases, and those cases."""
    left = outcomes
    while left:
        chosen = _commonest(left, ("what", "where"), _SHARE)
        if not chosen:
            yield from _by_finding(left)
            return
        group = [outcome for outcome in left if chosen.key in _keys(outcome)]
        left = [outcome for outcome in left if chosen.key not in _keys(outcome)]
        other = _commonest(group, ("where",) if chosen.kind == "what" else ("what",), _MOST)
        both = [chosen, other] if chosen.kind == "what" else [other, chosen]
        yield ", ".join(_worded(group, each.key) for each in both if each), group


def _by_finding(outcomes: Iterable[CaseOutcome]) -> Iterator[_Group]:
    groups: dict[str, list[CaseOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault("; ".join(_findings(outcome)), []).append(outcome)
    yield from groups.items()


def _commonest(
    outcomes: Sequence[CaseOutcome], kinds: Iterable[Kind], least: float
) -> Pattern | None:
    """The pattern that most outcomes show or do not contradict, if that is this share of them.

    If there are several, it is the one that says most: patterns come in that order. Enough of those
    outcomes must surely show it.
    """
    support: Counter[str] = Counter()
    sure: Counter[str] = Counter()
    patterns: dict[str, Pattern] = {}
    for outcome in outcomes:
        fitting = {p.key: p for p in _patterns(outcome) if p.kind in kinds}
        support.update(fitting.keys())
        sure.update(key for key, pattern in fitting.items() if pattern.sure)
        patterns |= fitting
    ranked = [
        key
        for key, many in support.items()
        if sure[key] >= _SHARE * many and many >= least * len(outcomes)
    ]
    return patterns[max(ranked, key=lambda key: support[key])] if ranked else None


def _worded(group: Sequence[CaseOutcome], key: str) -> str:
    """The words of a pattern if they are the same in nearly every case, else what they share.

    "Mostly", if some of the cases contradict it.
    """
    words = Counter(p.words for o in group for p in _patterns(o) if p.key == key)
    ((commonest, many),) = words.most_common(1)
    told = commonest if many >= _NEARLY * words.total() else key
    if all(key in _keys(outcome) for outcome in group):
        return told
    return f"mostly {told.removeprefix('only ')}"


def _joined(groups: Iterable[_Group]) -> Iterator[_Group]:
    """One group in place of those of many operators with the same key."""
    alike: dict[str, list[list[CaseOutcome]]] = {}
    for key, outcomes in groups:
        alike.setdefault(key, []).append(outcomes)
    for key, several in alike.items():
        if len({group[0].title for group in several}) > _TOGETHER:
            yield key, [outcome for group in several for outcome in group]
        else:
            yield from ((key, group) for group in several)


def _cause(words: str, outcomes: list[CaseOutcome]) -> Cause:
    return Cause(
        words,
        tuple(dict.fromkeys(outcome.title for outcome in outcomes)),
        tuple(dict.fromkeys(outcome.dtype for outcome in outcomes)),
        tuple(dict.fromkeys(outcome.block for outcome in outcomes)),
        tuple(outcome.case for outcome in outcomes),
        min(outcomes, key=lambda outcome: (_unsure(outcome), sum(outcome.histogram))),
    )


def _unsure(outcome: CaseOutcome) -> bool:
    """Whether an outcome is no good example: its wrong elements are too few to show a pattern."""
    return outcome.wrong is not None and not any(p.sure for p in outcome.wrong.patterns)


def _patterns(outcome: CaseOutcome) -> tuple[Pattern, ...]:
    return outcome.wrong.patterns if outcome.wrong is not None else ()


def _keys(outcome: CaseOutcome) -> set[str]:
    return {pattern.key for pattern in _patterns(outcome)}

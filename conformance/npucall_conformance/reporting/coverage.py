"""Coverage: which of the required cases were judged. Plain data.

A *cell* is an operator (with its variant), a dtype and a block. Cases that are for other products
do not count. A case lowers the verdict if it was skipped although it should have been judged here,
or if it was asked for and has no outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from npucall_conformance.reporting.report import CaseOutcome

Cell: TypeAlias = tuple[str, str, str]
"""Title of the operator, dtype, block."""
NOT_RUN = "no outcome: the run ended before it"
PATHS = "paths"
_KINDS: dict[str, Callable[[Cell], str]] = {
    "operators": lambda cell: cell[0],
    "operators and dtypes": lambda cell: f"{cell[0]} {cell[1]}",
    "blocks": lambda cell: cell[2],
}


@dataclass(frozen=True)
class Covered:
    """How much of one kind of thing was judged."""

    judged: tuple[str, ...] = ()
    """Judged, all of it or some."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Things that should have been judged and were not at all, and why."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Things that cannot be judged here, and why."""

    @property
    def required(self) -> int:
        """How many there are to judge."""
        return len(self.judged) + len(self.missing)


@dataclass(frozen=True)
class Coverage:
    """Which of the required things were judged."""

    kinds: Mapping[str, Covered]
    """Operators; an operator and a dtype each, such as ``aclnnGlu bf16``; blocks; paths."""
    judged: int
    """Cases that ran."""
    required: int
    """Cases that should have run."""
    lowering: Mapping[str, int]
    """How many cases should have run and did not, by reason."""
    elsewhere: Mapping[str, int]
    """How many cases are not for this server, by reason; they do not count."""

    @property
    def complete(self) -> bool:
        """Everything was judged that should have been."""
        return not (self.lowering or self.kinds[PATHS].missing)


def coverage(
    cells: Iterable[Cell], paths: Iterable[str], outcomes: Iterable[CaseOutcome]
) -> Coverage:
    """Compares the outcomes with the cells of the required cases, and the required paths."""
    every = [((o.title, o.dtype, o.block), o) for o in outcomes]
    lost = Counter(cells)
    lost.subtract(cell for cell, _ in every)
    lacking = [(cell, NOT_RUN) for cell, many in lost.items() for _ in range(many)]
    lacking += [(cell, o.reason) for cell, o in every if o.lowers]
    ran = [cell for cell, o in every if o.status != "skipped"]
    skipped = [o.reason for _, o in every if o.status == "skipped" and not o.lowers]
    kinds = {
        kind: _covered(map(name, ran), [(name(cell), why) for cell, why in lacking])
        for kind, name in _KINDS.items()
    }
    kinds[PATHS] = _paths(paths, [o for _, o in every])
    reasons = Counter(why for _, why in lacking)
    required = len(ran) + len(lacking)
    return Coverage(kinds, len(ran), required, dict(reasons), dict(Counter(skipped)))


def _covered(ran: Iterable[str], lacking: Iterable[tuple[str, str]]) -> Covered:
    judged = dict.fromkeys(ran)
    return Covered(tuple(judged), {name: why for name, why in lacking if name not in judged})


def _paths(wanted: Iterable[str], outcomes: Iterable[CaseOutcome]) -> Covered:
    judged: dict[str, None] = {}
    skipped: dict[str, str] = {}
    for outcome in outcomes:
        judged |= dict.fromkeys(outcome.paths)
        skipped |= outcome.paths_skipped
    missing = {path: "no case travelled by it" for path in wanted if path not in judged | skipped}
    elsewhere = {path: why for path, why in skipped.items() if path not in judged}
    return Covered(tuple(judged), missing, elsewhere)

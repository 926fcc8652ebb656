"""Coverage: which of the required cases were judged, and the verdict. Plain data.

A *cell* is an operator (with its variant), a dtype and a block. Cases that are for other products
do not count. A case lowers the verdict if it was skipped although it should have been judged here,
or if it was asked for and has no outcome. ``Matrix`` is a run on every product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from npucall_conformance.reporting.report import CaseOutcome, Report

Verdict: TypeAlias = Literal["conforms", "conforms in part", "fails"]
Cell: TypeAlias = tuple[str, str, str]
"""Title of the operator, dtype, block."""

NOT_RUN = "no outcome: the run ended before it"


@dataclass(frozen=True)
class Required:
    """What a run has to judge."""

    cells: Mapping[Cell, int] = field(default_factory=dict)
    """How many cases of each cell were asked for."""
    paths: tuple[str, ...] = ()
    """The paths by which calls must have travelled."""


@dataclass(frozen=True)
class Covered:
    """How much of one kind of thing was judged."""

    judged: tuple[str, ...] = ()
    """Judged, all of it or some."""
    partly: Mapping[str, int] = field(default_factory=dict)
    """For each of those, how many cases should have been judged and were not."""
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

    operators: Covered
    dtypes: Covered
    """An operator and a dtype each, such as ``aclnnGlu bf16``."""
    blocks: Covered
    paths: Covered
    product: str
    """The product whose rules were judged; others need a server of their own."""
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
        return not (self.lowering or self.paths.missing)

    @property
    def kinds(self) -> dict[str, Covered]:
        """The kinds of things, by their names."""
        return {
            "operators": self.operators, "operators and dtypes": self.dtypes,
            "blocks": self.blocks, "paths": self.paths,
        }  # fmt: skip


def required(cells: Iterable[Cell], paths: Iterable[str] = ()) -> Required:
    """What a run of cases with these cells has to judge."""
    return Required(dict(Counter(cells)), tuple(paths))


def coverage(wanted: Required, outcomes: Iterable[CaseOutcome], product: str) -> Coverage:
    """Compares the outcomes with the required cases."""
    every = [((o.title, o.dtype, o.block), o) for o in outcomes]
    lost = Counter(wanted.cells)
    lost.subtract(cell for cell, _ in every)
    lacking = [(cell, NOT_RUN) for cell, many in lost.items() for _ in range(many)]
    lacking += [(cell, o.reason) for cell, o in every if o.lowers]
    ran = [cell for cell, o in every if o.status != "skipped"]
    names = (lambda c: c[0], lambda c: f"{c[0]} {c[1]}", lambda c: c[2])
    operators, dtypes, blocks = (
        _covered(map(name, ran), [(name(cell), why) for cell, why in lacking]) for name in names
    )
    return Coverage(
        operators,
        dtypes,
        blocks,
        paths=_paths(wanted.paths, [o for _, o in every]),
        product=product,
        judged=len(ran),
        required=len(ran) + len(lacking),
        lowering=dict(Counter(why for _, why in lacking)),
        elsewhere=dict(
            Counter(o.reason for _, o in every if o.status == "skipped" and not o.lowers)
        ),
    )


def _covered(ran: Iterable[str], lacking: Iterable[tuple[str, str]]) -> Covered:
    judged = dict.fromkeys(ran)
    missing: dict[str, str] = {}
    for name, why in lacking:
        if name not in judged:
            missing.setdefault(name, why)
    return Covered(tuple(judged), dict(Counter(n for n, _ in lacking if n in judged)), missing)


def _paths(wanted: tuple[str, ...], outcomes: Iterable[CaseOutcome]) -> Covered:
    judged: dict[str, None] = {}
    skipped: dict[str, str] = {}
    for outcome in outcomes:
        judged |= dict.fromkeys(outcome.paths)
        skipped |= outcome.paths_skipped
    missing = {path: "no case travelled by it" for path in wanted if path not in judged | skipped}
    elsewhere = {path: why for path, why in skipped.items() if path not in judged}
    return Covered(tuple(judged), {}, missing, elsewhere)


SOCS = (
    "Ascend910B1", "Ascend910_9391", "Ascend950PR_9589", "Ascend910A", "Ascend310P3",
    "Ascend310B1", "Ascend310",
)  # fmt: skip
"""A SoC of each product."""
_WORST_FIRST: tuple[Verdict, ...] = ("fails", "conforms in part", "conforms")


@dataclass(frozen=True)
class Matrix:
    """The reports of several products; there is at least one."""

    reports: tuple[Report, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the products on which there was something to judge."""
        found = {report.verdict for report in self.judged}
        return next((verdict for verdict in _WORST_FIRST if verdict in found), "fails")

    @property
    def judged(self) -> tuple[Report, ...]:
        """The products on which something ran or should have: none has every operator."""
        return tuple(r for r in self.reports if r.total().cases or not r.coverage().complete)

    @property
    def passed(self) -> bool:
        """The verdict is ``conforms``."""
        return self.verdict == "conforms"

    @property
    def titles(self) -> tuple[str, ...]:
        """The operators, with their variants, that any of the runs has."""
        return tuple(dict.fromkeys(o.title for report in self.reports for o in report.outcomes))

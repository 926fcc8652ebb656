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


def required(cells: Iterable[Cell], paths: Iterable[str] = ()) -> Required:
    """What a run of cases with these cells has to judge."""
    return Required(dict(Counter(cells)), tuple(paths))


def coverage(wanted: Required, outcomes: Iterable[CaseOutcome], product: str) -> Coverage:
    """Compares the outcomes with the required cases."""
    cells: dict[Cell, list[CaseOutcome]] = {}
    for outcome in outcomes:
        cells.setdefault((outcome.title, outcome.dtype, outcome.block), []).append(outcome)
    every = [outcome for group in cells.values() for outcome in group]
    lost = {cell: many - len(cells.get(cell, ())) for cell, many in wanted.cells.items()}
    lacking = [(cell, NOT_RUN) for cell, many in lost.items() for _ in range(many)]
    lacking += [((o.title, o.dtype, o.block), reason(o)) for o in every if o.lowers]
    ran = [cell for cell, group in cells.items() for o in group if o.status != "skipped"]
    beside = [reason(o) for o in every if o.status == "skipped" and not o.lowers]
    return Coverage(
        operators=_covered([c[0] for c in ran], [(c[0], why) for c, why in lacking]),
        dtypes=_covered(
            [f"{c[0]} {c[1]}" for c in ran], [(f"{c[0]} {c[1]}", why) for c, why in lacking]
        ),
        blocks=_covered([c[2] for c in ran], [(c[2], why) for c, why in lacking]),
        paths=_paths(wanted.paths, every),
        product=product,
        judged=len(ran),
        required=len(ran) + len(lacking),
        lowering=dict(Counter(why for _, why in lacking)),
        elsewhere=dict(Counter(beside)),
    )


def reason(outcome: CaseOutcome) -> str:
    """Why an outcome was skipped."""
    return outcome.problems[0] if outcome.problems else "no reason given"


def _covered(ran: Iterable[str], lacking: Iterable[tuple[str, str]]) -> Covered:
    judged = tuple(dict.fromkeys(ran))
    there = set(judged)
    partly: Counter[str] = Counter()
    missing: dict[str, str] = {}
    for name, why in lacking:
        if name in there:
            partly[name] += 1
        else:
            missing.setdefault(name, why)
    return Covered(judged, dict(partly), missing)


def _paths(wanted: tuple[str, ...], outcomes: Iterable[CaseOutcome]) -> Covered:
    judged: dict[str, None] = {}
    skipped: dict[str, str] = {}
    for outcome in outcomes:
        judged |= dict.fromkeys(outcome.paths)
        skipped |= outcome.paths_skipped
    elsewhere = {path: why for path, why in skipped.items() if path not in judged}
    known = judged.keys() | elsewhere.keys()
    missing = {path: "no case travelled by it" for path in wanted if path not in known}
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
        """The reports of the products that have some of the chosen cases."""
        return tuple(each for each in self.reports if _has_some(each))

    @property
    def passed(self) -> bool:
        """The verdict is ``conforms``."""
        return self.verdict == "conforms"

    @property
    def titles(self) -> tuple[str, ...]:
        """The operators, with their variants, that any of the runs has."""
        return tuple(dict.fromkeys(o.title for report in self.reports for o in report.outcomes))


def _has_some(report: Report) -> bool:
    """Whether something ran or should have: no product has every operator."""
    return bool(report.total().cases) or not report.coverage().complete

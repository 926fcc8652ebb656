"""Selects the cases of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

from npucall.dtypes import DType
from npucall.texts import plain
from npucall_conformance.cases.blocks import BLOCKS, cases_of
from npucall_conformance.cases.case import FUZZ, Case
from npucall_conformance.cases.drawn_calls import drawn_again
from npucall_conformance.stating.statement import Statement

QUICK = {
    "products": 10, "defaults": 8, "invalid": 29, "documents": 99, "reduction": 5, "edge": 4,
    "broadcast": 4, "layout": 5, "mixed": 20, "rank": 3, "written": 20,
}  # fmt: skip
"""Cases of an operator, dtype and block in a quick run; other blocks have ``_QUICK``."""
_QUICK = 2
_BESIDES = 2
"""So many more cases, from setups that are telling, and from edges with values of their own."""
_QUICK_ELEMENTS = 1_000
ONCE = {"large": 2, "crowd": 1, "paths": 2, "determinism": 1}
"""In blocks whose cases take long, a quick run has so many cases of an operator for all dtypes
together, and one that is refused."""
_ELEMENTS = {"large": 250_000, "crowd": 250_000, "paths": 300_000}
"""In a quick run, inputs and tensors of a wrong shape have at most so many elements in a case of a
block; other blocks have ``_QUICK_ELEMENTS``."""
_LONG = 3
"""Of so many operators that work element by element, one sends a long call by every path in a quick
run; it travels alike, whoever computes it."""
_REFUSED = "refused"


@dataclass(frozen=True)
class Selection:
    """Filters; empty ones let everything pass."""

    cases: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    """Names, with or without variant and ``aclnn``, whatever their case."""
    dtypes: tuple[DType, ...] = ()
    blocks: tuple[str, ...] = ()
    quick: bool = False
    """A sample of every operator, dtype and block."""
    fuzz: float = 0.0
    """Seconds of random calls in place of cases."""

    @property
    def whole(self) -> bool:
        """Nothing is left out."""
        return self == Selection()

    def __str__(self) -> str:
        """The filters as options of the command; empty for a whole run."""
        dtypes = tuple(dtype.short for dtype in self.dtypes)
        named = ("case", self.cases), ("operator", self.operators), ("dtype", dtypes)
        words = [f"--{n} {v}" for n, values in (*named, ("block", self.blocks)) for v in values]
        fuzz = [f"--fuzz {self.fuzz:g}"] if self.fuzz else []
        return " ".join(["--quick"] * self.quick + fuzz + words)


def select(statements: Iterable[Statement], selection: Selection) -> Iterator[Case]:
    """The cases of a run, statement by statement, block by block. Their ids never depend on it."""
    for statement in statements:
        for block in BLOCKS if wanted(statement, selection) else ():
            start = f"{statement.title}/{block}/"
            named = [case for case in selection.cases if case.startswith(start)]
            if (selection.cases and not named) or block not in (selection.blocks or BLOCKS):
                continue
            if block == FUZZ and named:
                yield from (drawn_again(statement, case.removeprefix(start)) for case in named)
            elif not (block == FUZZ and selection.quick):
                yield from _filtered(cases_of(statement, block), block, selection)


def variants_of(cases: Iterable[Case]) -> str:
    """A sentence on the operators of which there are cases of several variants; else empty."""
    variants: dict[str, list[str]] = {}
    for title, operator in {
        case.statement.title: case.statement.operator for case in cases
    }.items():
        variants.setdefault(operator, []).append(title)
    return "; ".join(
        f"{operator} stands for {len(titles)} variants, {', '.join(titles)}: these names choose one"
        for operator, titles in variants.items()
        if len(titles) > 1
    )


def wanted(statement: Statement, selection: Selection) -> bool:
    """Whether a run has cases of the statement."""
    names = {plain(statement.operator), plain(statement.title)}
    if selection.operators and not names & set(map(plain, selection.operators)):
        return False
    return not selection.cases or any(
        case.partition("/")[0] == statement.title for case in selection.cases
    )


def _filtered(cases: Iterable[Case], block: str, selection: Selection) -> Iterator[Case]:
    kept = [
        case
        for case in cases
        if (not selection.cases or case.id in selection.cases)
        and (not selection.dtypes or case.dtype in selection.dtypes)
    ]
    if not selection.quick or selection.cases:
        yield from kept
        return
    shared, most = block in ONCE, _ELEMENTS.get(block, _QUICK_ELEMENTS)
    if block == "paths" and not any(map(_sends_long_calls, kept[:1])):
        most = _QUICK_ELEMENTS
    strata: dict[str, list[Case]] = {}
    for case in kept:
        if _elements(case) <= most:
            kind = _REFUSED if case.defects else ""
            strata.setdefault(kind if shared else case.dtype.name, []).append(case)
    for kind, stratum in strata.items():
        wanted = ONCE[block] if shared else QUICK.get(block, _QUICK)
        yield from _sample(stratum, 1 if kind == _REFUSED else wanted)


def _sends_long_calls(case: Case) -> bool:
    statement = case.statement
    return statement.shapes is None and crc32(statement.title.encode()) % _LONG == 0


def _elements(case: Case) -> int:
    """The element count of its largest input, or tensor of a wrong shape."""
    changes = [each for defect in case.defects for each in defect.changes.values()]
    wrong = [each["shape"] for each in changes if isinstance(each, dict) and "shape" in each]
    return max(map(math.prod, [*case.shapes.values(), *wrong]), default=0)


def _sample(cases: list[Case], wanted: int) -> list[Case]:
    """That many of them: telling ones first, then others from the whole list; and a few more."""
    telling = [case for case in cases if case.telling]
    others = [case for case in cases if not case.telling]
    besides = [case for case in telling if case.setup.telling][:_BESIDES]
    chosen = _spread([case for case in telling if not case.setup.telling], wanted)
    chosen += _spread(others, wanted - len(chosen))
    new = [case for case in others if _has_new_values(case) and case not in chosen]
    return [*besides, *chosen, *_spread(new, _BESIDES)]


def _has_new_values(case: Case) -> bool:
    """Whether an edge gives an attribute a value that no usual case has: another way to compute."""
    usual = case.statement.attributes
    return case.block == "edge" and any(
        name in usual and value not in usual[name] for name, value in case.setup.attributes.items()
    )


def _spread(cases: list[Case], wanted: int) -> list[Case]:
    """That many of them, evenly over the list, with its first and last; if only one, any."""
    if len(cases) <= wanted:
        return cases
    if wanted <= 1:
        return [_any(cases)][:wanted]
    step = (len(cases) - 1) / (wanted - 1)
    return [cases[round(i * step)] for i in range(wanted)]


def _any(cases: list[Case]) -> Case:
    """One of them, which differs from statement to statement, but never changes."""
    return cases[crc32(cases[0].id.encode()) % len(cases)]

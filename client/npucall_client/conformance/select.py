"""Which cases of all that there are a run has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npucall_client.conformance.blocks import cases_of
from npucall_client.conformance.cases import BLOCKS, Case

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npucall.dtypes import DType
    from npucall_client.conformance.statement import Statement

QUICK = {"invalid": 30, "documents": 99, "reduction": 3, "edge": 3, "broadcast": 4, "layout": 8}
"""Cases of an operator, dtype and block in a quick run; ``_QUICK`` of other blocks."""
_QUICK = 2
_QUICK_ELEMENTS = 1_000


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


def select(statements: Iterable[Statement], selection: Selection) -> Iterator[Case]:
    """The cases of a run, statement by statement, block by block. Their ids never depend on it."""
    for statement in statements:
        if not _wanted(statement, selection):
            continue
        for block in BLOCKS:
            if _has_block(statement, block, selection):
                yield from _filtered(cases_of(statement, block), block, selection)


def _wanted(statement: Statement, selection: Selection) -> bool:
    names = {statement.operator.lower(), statement.title.lower()}
    names |= {name.removeprefix("aclnn") for name in names}
    if selection.operators and not names & {each.lower() for each in selection.operators}:
        return False
    return not selection.cases or any(
        case.partition("/")[0] == statement.title for case in selection.cases
    )


def _has_block(statement: Statement, block: str, selection: Selection) -> bool:
    if selection.blocks and block not in selection.blocks:
        return False
    start = f"{statement.title}/{block}/"
    return not selection.cases or any(case.startswith(start) for case in selection.cases)


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
    strata: dict[str, list[Case]] = {}
    for case in kept:
        if _small(case):
            strata.setdefault(case.dtype.name, []).append(case)
    for stratum in strata.values():
        yield from _spread(stratum, QUICK.get(block, _QUICK))


def _small(case: Case) -> bool:
    return all(math.prod(shape) <= _QUICK_ELEMENTS for shape in case.shapes.values())


def _spread(cases: list[Case], wanted: int) -> list[Case]:
    """That many of them, evenly over the list, its first and last among them."""
    if len(cases) <= wanted:
        return cases
    step = (len(cases) - 1) / (wanted - 1)
    return [cases[round(i * step)] for i in range(wanted)]

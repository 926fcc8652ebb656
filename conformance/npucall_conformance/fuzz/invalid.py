"""Calls with one defect or several, of which the first must be found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npucall.errors import PARAM_NULLPTR
from npucall_conformance.cases.maker import Maker
from npucall_conformance.fuzz.valid import finished
from npucall_conformance.stating.parts import Setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall_conformance.cases.case import Case
    from npucall_conformance.fuzz.draws import Draws
    from npucall_conformance.stating.parts import Invalid
    from npucall_conformance.stating.statement import Statement


def invalid(draw: Draws, statement: Statement, rows: Sequence[Invalid]) -> Case:
    """A call that the operator must refuse, for the first of its defects.

    ``rows`` are those that are for the product, in the statement's order.
    """
    first = draw.pick(rows)
    found = [first]
    for _ in range(draw.number(0, 3)):
        place = rows.index(found[-1])
        later = [row for row in rows[place + 1 :] if all(apart(each, row) for each in found)]
        if later:
            found.append(draw.pick(later))
    case = spoilt(statement, tuple(found))
    changed = {name for row in found for name in row.changes}
    return finished(draw, case, spared=changed)


def apart(first: Invalid, second: Invalid) -> bool:
    """Whether both fit into one call, and the second neither repairs nor hides the first.

    They must be of different kinds: two wrong shapes may fit together, and so may two dtypes, even
    if one is that of a number. With more dimensions, a dimension that was wrong may be valid.
    """
    if second.block == "rank" and first.status != PARAM_NULLPTR:
        return False
    if first.alone or second.alone or first.changes.keys() & second.changes.keys():
        return False
    if first.base != second.base:
        return second.base == Setup() and first.status == PARAM_NULLPTR
    alike = first.error is second.error and first.status != PARAM_NULLPTR
    return not (alike or kinds(first) & kinds(second))


def kinds(row: Invalid) -> set[str]:
    """Which properties of its parameters a row changes."""
    found: set[str] = set()
    for name, change in row.changes.items():
        if change is None:
            found.add(f"null {name}")
        else:
            found |= change.keys() if isinstance(change, dict) else {name}
    return found


def spoilt(statement: Statement, rows: tuple[Invalid, ...]) -> Case:
    """The valid call of the first row with these defects."""
    setup = rows[0].base
    setup = replace(setup, absent=setup.absent or ("",))  # optional inputs are given
    maker = Maker(statement, "fuzz")
    first = {**maker.combinations[0], **setup.attributes}
    case = maker.case(statement.dtypes[0], setup, first, outputs=True)
    return replace(case, defects=rows)

"""Drawn calls: those that must be answered, and those with defects. Ids say what was drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from npucall.dtypes import FLOATS, DType
from npucall.errors import PARAM_NULLPTR
from npucall_conformance.cases.arrangements import Arrangement
from npucall_conformance.cases.case import FUZZ, Case, Maker
from npucall_conformance.cases.draws import (
    Draws,
    attributes,
    base_shape,
    layout,
    numbers_of,
    sprinkled,
    stretched,
    text_of,
)
from npucall_conformance.stating.arguments import parameter_of
from npucall_conformance.stating.parts import In, Invalid, Setup, mixed_floats
from npucall_conformance.stating.statement import Statement

DRAWN = 200
"""Calls of an operator in the block ``fuzz``."""
_WRONG = 4
"""Of so many calls one has defects."""
_KEPT = 5
"""Of so many calls, one is a setup of the statement in other layouts."""


def drawn(statement: Statement, seed: str) -> Case:
    """A call that a text decides; it may be for other products."""
    return _made(statement, Draws(random=Random(f"{seed}/{statement.title}")))  # noqa: S311


def drawn_again(statement: Statement, text: str) -> Case:
    """The call of which an id ends with this text. Raises ValueError where none does."""
    return _made(statement, Draws(numbers_of(text)))


def fuzz(make: Maker) -> Iterator[Case]:
    """Drawn calls: any shapes, layouts, attributes and special numbers, or several defects."""
    cases = (drawn(make.statement, f"{FUZZ}/{number}") for number in range(DRAWN))
    yield from {case.id: case for case in cases}.values()


def _made(statement: Statement, draw: Draws) -> Case:
    is_wrong = bool(statement.invalid) and draw.seldom(_WRONG)
    case = _invalid(draw, statement) if is_wrong else _valid(draw, statement)
    return replace(case, id=f"{statement.title}/{FUZZ}/{text_of(draw.made)}")


def _valid(draw: Draws, statement: Statement) -> Case:
    """A call that the operator must answer."""
    dtype = draw.pick(statement.dtypes)
    setups = _setups(statement, dtype)
    free = _free(draw, statement)  # always drawn, so that later draws stay the same
    setup = draw.pick(setups) if setups and draw.seldom(_KEPT) else free
    base = statement.layout_shape if setup.base is None else setup.base
    chosen = attributes(draw, statement, base)
    setup = replace(setup, absent=_absent(draw, statement, setup))
    case = Maker(statement, FUZZ).case(dtype, setup, chosen, marks=sprinkled(draw, statement))
    return _placed(draw, case)


def _placed(draw: Draws, case: Case, spared: Iterable[str] = ()) -> Case:
    """The case with layouts, outputs that are given, and data; ``spared`` tensors stay dense."""
    outputs = dict(case.outputs)
    for each in case.statement.outputs:
        if each.name not in outputs and draw.flag():
            outputs[each.name] = None
    placed: dict[str, Arrangement] = {}
    for name in [*case.shapes, *outputs]:
        if name not in spared:
            placed[name] = layout(draw, output=name in outputs)
    return replace(case, layouts=placed, outputs=outputs, data=f"{FUZZ}-{draw.number(0, 61)}")


def _setups(statement: Statement, dtype: DType) -> list[Setup]:
    """The statement's setups that the dtype may have."""
    every = (
        *statement.broadcast, *statement.mixed, *statement.empty, *statement.edges,
        *statement.reductions,
    )  # fmt: skip
    return [setup for setup in every if not setup.only or dtype in setup.only]


def _free(draw: Draws, statement: Statement) -> Setup:
    """A setup with shapes and dtypes of its own."""
    base = base_shape(draw, statement)
    shapes = stretched(draw, statement, base)
    dtypes: dict[str, DType] = {
        each.name: draw.pick(each.dtypes)
        for each in statement.inputs
        if each.dtypes and not each.refused
    }
    names = _of_any_float(statement)
    if names and draw.flag():
        dtypes |= {name: draw.pick(FLOATS) for name in names}
    stretches = [setup.products for setup in statement.broadcast] if shapes else []
    products = () if () in stretches else tuple({p: None for each in stretches for p in each})
    if 0 in base:
        products = statement.empty_on or products
    return Setup(base=base, shapes=shapes, dtypes=dtypes, products=products)


def _of_any_float(statement: Statement) -> list[str]:
    """Tensors that may each have any float dtype, since the statement mixes all of them."""
    names = [each.name for each in statement.inputs if not each.dtypes]
    outputs = [each.name for each in statement.outputs]
    for output in outputs:
        if all(setup in statement.mixed for setup in mixed_floats(*names, output=output)):
            return [*names, output]
    alone = mixed_floats(*names)
    return names if alone and all(setup in statement.mixed for setup in alone) else []


def _absent(draw: Draws, statement: Statement, setup: Setup) -> tuple[str, ...]:
    """Optional inputs that are left out; ("",) means none."""
    if setup.absent:
        return setup.absent
    said: dict[str, Any] = {**setup.shapes, **setup.values, **setup.dtypes}
    inputs = [each for each in statement.inputs if each.optional and each.name not in said]
    free = [each for each in inputs if not each.beside and not each.instead]
    left = {each.name for each in free if draw.flag()}
    return tuple(each.name for each in inputs if _leaves(each, left)) or ("",)


def _leaves(each: In, left: set[str]) -> bool:
    """Whether an optional input goes with those that are left out."""
    return each.instead not in left if each.instead else (each.beside or each.name) in left


def _invalid(draw: Draws, statement: Statement) -> Case:
    """A call that the operator must refuse, for the first of its defects."""
    rows = statement.invalid
    found = [draw.pick(rows)]
    for _ in range(draw.number(0, 3)):
        place = rows.index(found[-1])
        later = [row for row in rows[place + 1 :] if all(apart(each, row) for each in found)]
        if later:
            found.append(draw.pick(later))
    case = Maker(statement, FUZZ).wrong("", *found)
    return _placed(draw, case, spared={name for row in found for name in row.changes})


def apart(first: Invalid, second: Invalid) -> bool:
    """Whether both fit into one call, and the second neither repairs nor hides the first.

    They must be of different kinds: two wrong shapes may fit together, and so may two dtypes, even
    if one is that of a number. With more dimensions, a dimension that was wrong may be valid.
    """
    if second.block == "rank" and first.status != PARAM_NULLPTR:
        return False
    changed = [{*map(parameter_of, row.changes)} for row in (first, second)]
    one_of_two = first.blames == second.blames and len(first.blames) > 1  # without both it is right
    if first.alone or second.alone or one_of_two or changed[0] & changed[1]:
        return False
    if first.products and second.products:
        return False
    if first.base != second.base:
        return second.base == Setup() and first.status == PARAM_NULLPTR
    alike = first.error is second.error and first.status != PARAM_NULLPTR
    return not (alike or _kinds(first) & _kinds(second))


def _kinds(row: Invalid) -> set[str]:
    """Which properties of its parameters a row changes."""
    found: set[str] = set()
    for name, change in row.changes.items():
        if change is None:
            found.add(f"null {name}")
        else:
            found |= change.keys() if isinstance(change, dict) else {name}
    return found

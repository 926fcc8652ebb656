"""Whole random calls: those that must be answered, those with defects, and their words and ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from npucall.dtypes import BF16, FLOATS, DType
from npucall.errors import PARAM_NULLPTR
from npucall_conformance.cases.arrangements import StorageLayout
from npucall_conformance.cases.case import Case
from npucall_conformance.cases.maker import Maker
from npucall_conformance.fuzz.draws import (
    Draws,
    Strided,
    attributes,
    base_shape,
    layout,
    sprinkled,
    stretched,
)
from npucall_conformance.stating.domains import Sprinkled
from npucall_conformance.stating.parts import Invalid, Setup, mixed_floats
from npucall_conformance.stating.statement import Statement

_DIGITS = 10
"""So many digits in an id, so that two cases of a run hardly ever have the same id."""


def words(case: Case) -> str:
    """The whole case in words: tensors with dtype, shape, layout, marks; attributes; defects."""
    return "; ".join(_words(case))


def named(case: Case) -> str:
    """The id of a case: the same words have the same id."""
    digest = sha256(f"{case.data}; {words(case)}".encode()).hexdigest()[:_DIGITS]
    kinds = "+".join(dict.fromkeys(each.short for each in case.dtypes.values())) or case.dtype.short
    return f"{case.statement.title}/fuzz/{kinds}-{digest}"


def _words(case: Case) -> Iterator[str]:
    domains = {each.name: each.domain for each in case.statement.inputs}
    for name, shape in case.shapes.items():
        yield f"{name} {case.dtypes[name].short} {list(shape)}{_placed(case, name)}" + _marked(
            domains[name]
        )
        if name in case.setup.values:
            yield f"{name} of a setup {case.setup.note}"
    for name, dtype in case.outputs.items():
        extents = case.setup.shapes.get(name)
        said = [dtype.short if dtype else "", "" if extents is None else str(list(extents))]
        yield f"{name} given {' '.join(filter(None, said))}".rstrip() + _placed(case, name)
    yield from (f"{name}={value!r}" for name, value in case.attributes.items())
    if case.defects:
        yield f"defects {', '.join(row.row for row in case.defects)}"


def _placed(case: Case, name: str) -> str:
    layout: Any = case.layouts.get(name)
    if not isinstance(layout, Strided):
        return ""
    said = [f"{key} {value}" for key, value in vars(layout).items() if value and _any(value)]
    return f" ({', '.join(said)})"


def _any(value: Any) -> bool:
    return any(value) if isinstance(value, tuple) else bool(value)


def _marked(domain: Any) -> str:
    if not isinstance(domain, Sprinkled):
        return ""
    scaled = [f"numbers times 2^{domain.power}"] if domain.power else []
    marks = [f"{number!r} at {place}" for place, number in domain.marks]
    return f" with {', '.join([*scaled, *marks])}" if marks or scaled else ""


_KEPT = 5
"""Of so many calls, one is a setup of the statement in other layouts."""


@dataclass(frozen=True)
class Within:
    """The limits within which calls are drawn."""

    product: str
    """Short SoC name."""
    taken: tuple[DType, ...]
    """The dtypes that the operator takes there."""
    dtypes: tuple[DType, ...] = ()
    """Calls are counted only under these dtypes; empty: all."""

    def has(self, dtype: DType) -> bool:
        """Whether tensors may have the dtype."""
        return dtype is not BF16 or BF16 in self.taken

    def wants(self, dtype: DType) -> bool:
        """Whether calls may be counted under the dtype."""
        return dtype in self.taken and (not self.dtypes or dtype in self.dtypes)


def valid(draw: Draws, statement: Statement, within: Within) -> Case:
    """A call that the operator must answer."""
    dtypes = [dtype for dtype in statement.dtypes if within.wants(dtype)]
    dtype = draw.pick(dtypes)
    setups = _setups(statement, dtype, within)
    free = _free(draw, statement, within)  # always drawn, so that later draws stay the same
    setup = draw.pick(setups) if setups and draw.seldom(_KEPT) else free
    base = statement.layout_shape if setup.base is None else setup.base
    chosen = attributes(draw, statement, base, within.product)
    setup = replace(setup, absent=_absent(draw, statement, setup))
    case = Maker(sprinkled(draw, statement), "fuzz").case(dtype, setup, chosen)
    return finished(draw, case)


def finished(draw: Draws, case: Case, spared: Iterable[str] = ()) -> Case:
    """The case with layouts, with outputs that are given, data, and its id.

    ``spared`` tensors stay dense.
    """
    outputs = dict(case.outputs)
    for each in case.statement.outputs:
        if each.name not in outputs and draw.flag():
            outputs[each.name] = None
    placed: dict[str, StorageLayout] = {}
    for name in [*case.shapes, *outputs]:
        if name not in spared:
            placed[name] = layout(draw, output=name in outputs)
    data = f"fuzz-{draw.number(0, 99)}"
    whole = replace(case, layouts=placed, outputs=outputs, data=data)
    return replace(whole, id=named(whole))


def _setups(statement: Statement, dtype: DType, within: Within) -> list[Setup]:
    """The statement's setups that the dtype and the product may have."""
    every = (
        *statement.broadcast, *statement.mixed, *statement.empty, *statement.edges,
        *statement.reductions,
    )  # fmt: skip
    return [
        setup
        for setup in every
        if (not setup.only or dtype in setup.only)
        and (not setup.products or within.product in setup.products)
        and all(map(within.has, setup.dtypes.values()))
    ]


def _free(draw: Draws, statement: Statement, within: Within) -> Setup:
    """A setup with shapes and dtypes of its own."""
    base = base_shape(draw, statement)
    shapes = stretched(draw, statement, base, within.product)
    dtypes: dict[str, DType] = {
        each.name: draw.pick(each.dtypes) for each in statement.inputs if each.dtypes
    }
    names = _of_any_float(statement)
    if names and draw.flag():
        floats = [dtype for dtype in FLOATS if within.has(dtype)]
        dtypes |= {name: draw.pick(floats) for name in names}
    return Setup(base=base, shapes=shapes, dtypes=dtypes)


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
    free = [each.name for each in statement.inputs if each.optional and each.name not in said]
    return tuple(name for name in free if draw.flag()) or ("",)


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
    case = Maker(statement, "fuzz").wrong("", *found)
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

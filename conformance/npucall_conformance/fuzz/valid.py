"""Whole calls that must be answered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from npucall.dtypes import BF16, FLOATS, DType
from npucall_conformance.cases.maker import Maker
from npucall_conformance.fuzz.attribute_values import attributes
from npucall_conformance.fuzz.layouts import layout
from npucall_conformance.fuzz.numbers import sprinkled
from npucall_conformance.fuzz.shapes import base_shape, stretched
from npucall_conformance.fuzz.words import named
from npucall_conformance.stating.parts import Setup
from npucall_conformance.stating.setups import mixed_floats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall_conformance.cases.arrangements import StorageLayout
    from npucall_conformance.cases.case import Case
    from npucall_conformance.fuzz.draws import Draws
    from npucall_conformance.stating.statement import Statement

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

"""The cases of a statement, block by block. Their ids depend on the statement alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from npucall.dtypes import FLOAT
from npucall.errors import PARAM_NULLPTR
from npucall_client.conformance.layouts import Layout
from npucall_client.conformance.maker import Maker
from npucall_client.conformance.statement import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.dtypes import DType
    from npucall_client.conformance.cases import Case
    from npucall_client.conformance.statement import Invalid, Statement

SIZES = (255, 256, 257, 4095, 4096, 4097, 65535, 65536, 65537)
"""Around the lengths at which implementations cut work into blocks."""
LARGE = 1_000_003
_FEW = 3
"""Shapes of the determinism block."""


def cases_of(statement: Statement, block: str) -> Iterator[Case]:
    """Every case of a block of a statement, always the same ones in the same order."""
    return _BLOCKS[block](Maker(statement, block))


def _grid(make: Maker) -> Iterator[Case]:
    for dtype in make.statement.dtypes:
        for base, attributes in product(make.statement.base_shapes, make.combinations()):
            yield make.case(dtype, Plan(base=base), attributes)


def _broadcast(make: Maker) -> Iterator[Case]:
    first, *rest = make.statement.dtypes
    for plan, attributes in product(make.statement.broadcast, make.combinations()):
        if not plan.only or first in plan.only:
            yield make.case(first, plan, attributes)
    yield from _sampled(make, make.statement.broadcast, tuple(rest))


def _mixed(make: Maker) -> Iterator[Case]:
    for plan in make.statement.mixed:
        for dtype in plan.only or make.statement.dtypes[:1]:
            yield make.case(dtype, plan)
            yield make.case(dtype, plan)


def _layout(make: Maker) -> Iterator[Case]:
    statement = make.statement
    base = Plan(base=statement.layout_shape)
    for dtype, layout in product(statement.dtypes, list(Layout)[1:]):
        inputs = [each.name for each in statement.inputs]
        outputs = [each.name for each in statement.outputs]
        for name in (*inputs, *outputs):
            case = make.case(dtype, base, note=f"{name}-{layout.value}")
            given = {name: None} if name in outputs else case.outputs
            yield replace(case, layouts={name: layout}, outputs=given)
        every = dict.fromkeys((*inputs, *outputs), layout)
        case = make.case(dtype, base, note=f"all-{layout.value}", outputs=True)
        yield replace(case, layouts=every)


def _empty(make: Maker) -> Iterator[Case]:
    for base in make.statement.empty_shapes:
        for attributes in make.combinations():
            yield make.case(make.statement.dtypes[0], Plan(base=base), attributes)
    yield from _sampled(
        make, tuple(Plan(base=b) for b in make.statement.empty_shapes), make.statement.dtypes[1:]
    )
    yield from _sampled(make, make.statement.empty, make.statement.dtypes)


def _rank(make: Maker) -> Iterator[Case]:
    plans = tuple(Plan(base=base) for base in make.statement.rank_shapes)
    yield from _sampled(make, plans, make.statement.dtypes)
    yield from _refused(make)


def _edge(make: Maker) -> Iterator[Case]:
    for dtype, plan in product(make.statement.dtypes, make.statement.edges):
        if not plan.only or dtype in plan.only:
            for attributes in make.combinations():
                yield make.case(dtype, plan, attributes)


def _reduction(make: Maker) -> Iterator[Case]:
    for dtype, plan in product(make.statement.dtypes, make.statement.reductions):
        yield make.case(dtype, plan)
        yield make.case(dtype, plan)
    yield from _refused(make)


def _invalid(make: Maker) -> Iterator[Case]:
    yield _wrong(make, "nothing-wrong")
    yield from _refused(make)
    rows = make.statement.invalid
    nulls = [row for row in rows if row.status == PARAM_NULLPTR]
    for row in rows:
        fitting = [null for null in nulls if _combine(null, row)]
        if row not in nulls and fitting:
            yield _wrong(make, f"{fitting[-1].row}-before-{row.row}", fitting[-1], row)
    for first, second in pairwise(row for row in rows if not (row.alone or row.products)):
        if _combine(first, second) and _apart(first, second):
            yield _wrong(make, f"{first.row}-before-{second.row}", first, second)


def _determinism(make: Maker) -> Iterator[Case]:
    for dtype in make.statement.dtypes:
        for base in make.statement.base_shapes[-_FEW:]:
            yield make.case(dtype, Plan(base=base), repeated=True)
    for plan in make.statement.broadcast[-_FEW:]:
        yield make.case(make.statement.dtypes[0], plan, repeated=True)
    large = Plan(base=make.statement.sized(3 * SIZES[-1]))
    yield make.case(make.statement.dtypes[0], large, repeated=True)


def _size(make: Maker) -> Iterator[Case]:
    for count, dtype in product(SIZES, make.statement.dtypes):
        yield make.case(dtype, Plan(base=make.statement.sized(count)))
    yield make.case(make.statement.dtypes[0], Plan(base=make.statement.sized(LARGE)))


def _documents(make: Maker) -> Iterator[Case]:
    for each in make.statement.contradictions:
        note = f"contradiction-{each.number}"
        case = make.case(FLOAT, each.plan, _first(make, each.plan), note=note, outputs=False)
        yield replace(case, contradiction=each)


def _sampled(make: Maker, plans: tuple[Plan, ...], dtypes: tuple[DType, ...]) -> Iterator[Case]:
    """Every plan with every dtype, attributes in turn."""
    for plan, dtype in product(plans, dtypes):
        if not plan.only or dtype in plan.only:
            yield make.case(dtype, plan)


def _refused(make: Maker) -> Iterator[Case]:
    for row in make.statement.invalid:
        if row.block == make.block:
            yield _wrong(make, row.row, row)


def _wrong(make: Maker, note: str, *defects: Invalid) -> Case:
    """The valid call with these defects; all of its outputs are given."""
    plan = defects[0].base if defects else Plan()
    if defects and defects[-1].base != Plan():
        plan = defects[-1].base
    plan = replace(plan, absent=plan.absent or ("",))  # optional inputs are given
    products = tuple({p: None for d in defects for p in d.products})
    dtype = make.statement.dtypes[0]
    attributes = _first(make, plan)
    case = make.case(dtype, plan, attributes, note=note, outputs=True, products=products)
    return replace(case, defects=defects)


def _first(make: Maker, plan: Plan) -> dict[str, Any]:
    return {**make.combinations()[0], **plan.attributes}


def _combine(first: Invalid, second: Invalid) -> bool:
    """Whether both fit into one call."""
    if first.alone or second.alone or (first.products and second.products):
        return False
    if first.base != second.base and Plan() not in (first.base, second.base):
        return False
    for name in first.changes.keys() & second.changes.keys():
        one, other = first.changes[name], second.changes[name]
        if not (isinstance(one, dict) and isinstance(other, dict)) or one.keys() & other.keys():
            return False
    return True


def _apart(first: Invalid, second: Invalid) -> bool:
    """Whether an answer shows which of them was found."""
    return (first.error, first.blames) != (second.error, second.blames)


_BLOCKS: dict[str, Callable[[Maker], Iterator[Case]]] = {
    "grid": _grid,
    "broadcast": _broadcast,
    "mixed": _mixed,
    "layout": _layout,
    "empty": _empty,
    "rank": _rank,
    "edge": _edge,
    "reduction": _reduction,
    "invalid": _invalid,
    "determinism": _determinism,
    "size": _size,
    "documents": _documents,
}

"""The cases of a statement, block by block. Their ids depend on the statement alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from npucall.dtypes import FLOAT
from npucall.errors import PARAM_NULLPTR
from npucall_client.conformance.arrangements import Arrangement
from npucall_client.conformance.maker import Maker
from npucall_client.conformance.statement import Setup

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
            yield make.case(dtype, Setup(base=base), attributes)


def _broadcast(make: Maker) -> Iterator[Case]:
    first, *rest = make.statement.dtypes
    for setup, attributes in product(make.statement.broadcast, make.combinations()):
        if not setup.only or first in setup.only:
            yield make.case(first, setup, attributes)
    yield from _sampled(make, make.statement.broadcast, tuple(rest))


def _mixed(make: Maker) -> Iterator[Case]:
    for setup in make.statement.mixed:
        for dtype in setup.only or make.statement.dtypes[:1]:
            yield make.case(dtype, setup)
            yield make.case(dtype, setup)


def _layout(make: Maker) -> Iterator[Case]:
    statement = make.statement
    base = Setup(base=statement.layout_shape)
    for dtype, layout in product(statement.dtypes, list(Arrangement)[1:]):
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
            yield make.case(make.statement.dtypes[0], Setup(base=base), attributes)
    yield from _sampled(
        make,
        tuple(Setup(base=b) for b in make.statement.empty_shapes),
        make.statement.dtypes[1:],
    )
    yield from _sampled(make, make.statement.empty, make.statement.dtypes)


def _rank(make: Maker) -> Iterator[Case]:
    setups = tuple(Setup(base=base) for base in make.statement.rank_shapes)
    yield from _sampled(make, setups, make.statement.dtypes)
    yield from _refused(make)


def _edge(make: Maker) -> Iterator[Case]:
    for dtype, setup in product(make.statement.dtypes, make.statement.edges):
        if not setup.only or dtype in setup.only:
            for attributes in make.combinations():
                yield make.case(dtype, setup, attributes)


def _reduction(make: Maker) -> Iterator[Case]:
    for dtype, setup in product(make.statement.dtypes, make.statement.reductions):
        yield make.case(dtype, setup)
        yield make.case(dtype, setup)
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
            yield make.case(dtype, Setup(base=base), repeated=True)
    for setup in make.statement.broadcast[-_FEW:]:
        yield make.case(make.statement.dtypes[0], setup, repeated=True)
    large = Setup(base=make.statement.sized(3 * SIZES[-1]))
    yield make.case(make.statement.dtypes[0], large, repeated=True)


def _size(make: Maker) -> Iterator[Case]:
    for count, dtype in product(SIZES, make.statement.dtypes):
        yield make.case(dtype, Setup(base=make.statement.sized(count)))
    yield make.case(make.statement.dtypes[0], Setup(base=make.statement.sized(LARGE)))


def _documents(make: Maker) -> Iterator[Case]:
    for each in make.statement.contradictions:
        note = f"contradiction-{each.number}"
        case = make.case(FLOAT, each.setup, _first(make, each.setup), note=note, outputs=False)
        yield replace(case, contradiction=each)


def _sampled(make: Maker, setups: tuple[Setup, ...], dtypes: tuple[DType, ...]) -> Iterator[Case]:
    """Every setup with every dtype, attributes in turn."""
    for setup, dtype in product(setups, dtypes):
        if not setup.only or dtype in setup.only:
            yield make.case(dtype, setup)


def _refused(make: Maker) -> Iterator[Case]:
    for row in make.statement.invalid:
        if row.block == make.block:
            yield _wrong(make, row.row, row)


def _wrong(make: Maker, note: str, *defects: Invalid) -> Case:
    """The valid call with these defects; all of its outputs are given."""
    setup = defects[0].base if defects else Setup()
    if defects and defects[-1].base != Setup():
        setup = defects[-1].base
    setup = replace(setup, absent=setup.absent or ("",))  # optional inputs are given
    products = tuple({p: None for d in defects for p in d.products})
    dtype = make.statement.dtypes[0]
    attributes = _first(make, setup)
    case = make.case(dtype, setup, attributes, note=note, outputs=True, products=products)
    return replace(case, defects=defects)


def _first(make: Maker, setup: Setup) -> dict[str, Any]:
    return {**make.combinations()[0], **setup.attributes}


def _combine(first: Invalid, second: Invalid) -> bool:
    """Whether both fit into one call."""
    if first.alone or second.alone or (first.products and second.products):
        return False
    if first.base != second.base and Setup() not in (first.base, second.base):
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

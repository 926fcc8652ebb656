"""The cases of a statement, block by block. Their ids depend on the statement alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, product
from math import prod

from npucall.dtypes import FLOAT
from npucall.errors import PARAM_NULLPTR
from npucall_conformance.cases.arrangements import ARRANGEMENTS, GAPS, OFFSET, STEP
from npucall_conformance.cases.case import Case, Maker
from npucall_conformance.cases.drawn_calls import fuzz
from npucall_conformance.cases.large import IN_CHUNKS, SHORT, large, other_places, tiny
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.cases.product_cases import defaults, listing, products, unusual
from npucall_conformance.stating.defects import of_every_operator
from npucall_conformance.stating.parts import Invalid, Setup, collide
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.written import dtype_of

SIZES = (255, 256, 257, 4095, 4096, 4097, 65535, 65536, 65537)
"""Around the lengths at which implementations cut work into blocks."""
_ANSWERED_IN_CHUNKS = 270_001
"""So many numbers of FLOAT take more than 1 MiB: such outputs come in chunks."""
_REFUSED = 6
"""At least so many refused calls are sent by every path."""
_TOGETHER = 100_000
"""With so many elements, two calls are inside the computation at once."""
_FEW = 3
"""Shapes of the determinism block."""


def grid(make: Maker) -> Iterator[Case]:
    """All dtypes, attributes and usual shapes."""
    for dtype in make.statement.dtypes:
        for base, attributes in product(make.statement.base_shapes, make.combinations):
            yield make.case(dtype, Setup(base=base), attributes)


def broadcast(make: Maker) -> Iterator[Case]:
    """Rows, columns, single elements, and what is stretched on both sides."""
    first, *rest = make.statement.dtypes
    for setup, attributes in product(make.statement.broadcast, make.combinations):
        if not setup.only or first in setup.only:
            yield make.case(first, setup, attributes)
    yield from make.sampled(make.statement.broadcast, tuple(rest))


def mixed(make: Maker) -> Iterator[Case]:
    """Inputs of several dtypes, and outputs of another."""
    for setup in make.statement.mixed:
        for dtype in setup.only or make.statement.dtypes[:1]:
            yield make.case(dtype, setup, telling=True)
            yield make.case(dtype, setup)


def layout(make: Maker) -> Iterator[Case]:
    """Transposed, with steps, offsets, gaps and stride 0; bytes between elements stay."""
    statement = make.statement
    base, kinds, names = Setup(base=statement.layout_shape), list(ARRANGEMENTS), make.names
    for turn, dtype in enumerate(statement.dtypes):
        for layout in kinds:
            for name in names:
                case = make.case(dtype, base, note=f"{name}-{layout.name}")
                given = {name: None} if name in make.outputs else case.outputs
                yield replace(case, layouts={name: layout}, outputs=given)
            # With the same attributes, so that some of them differ only in strides.
            yield make.case(
                dtype, base, make.combinations[0], note=f"all-{layout.name}", outputs=True,
                layouts=dict.fromkeys(names, layout),
            )  # fmt: skip
        for number in range(len(kinds)):
            places = enumerate(names, turn + number)
            mixture = {name: kinds[place % len(kinds)] for place, name in places}
            yield make.case(
                dtype, base, note="mixture", outputs=True, layouts=mixture, telling=number > 0
            )
    yield from other_places(make)
    layouts = (GAPS, STEP, OFFSET)
    for dtype, (turn, name) in product(statement.dtypes, enumerate(make.outputs)):
        case = make.case(dtype, base, note=f"{name}-unsent", telling=True)
        layout = layouts[(make.made + turn) % len(layouts)]
        yield replace(case, layouts={name: layout}, outputs={name: None}, unsent=(name,))
    yield from other_places(make, SHORT)


def empty(make: Maker) -> Iterator[Case]:
    """No elements, in every position."""
    on = make.statement.empty_on
    setups = tuple(Setup(base=base, products=on) for base in make.statement.empty_shapes)
    for setup, attributes in product(setups, make.combinations):
        yield make.case(make.statement.dtypes[0], setup, attributes)
    yield from make.sampled(setups, make.statement.dtypes[1:])
    yield from make.sampled(make.statement.empty, make.statement.dtypes)
    yield from _empty_and_wrong(make)


def _empty_and_wrong(make: Maker) -> Iterator[Case]:
    """Empty calls with a defect that is found before the checks of an empty call end."""
    statement = make.statement
    rank = len(statement.layout_shape)
    empty = next((base for base in statement.empty_shapes if len(base) == rank), None)
    if empty is None:
        return
    pairs = zip(statement.layout_shape, empty, strict=True)
    base = tuple(0 if there == 0 else extent for extent, there in pairs)
    for row in statement.invalid:
        if row.row == statement.empty_before:
            return
        if row.base.base is None and not (
            row.base.shapes or row.base.values or row.row.startswith(statement.empty_spares)
        ):
            wrong = replace(row, base=replace(row.base, base=base))
            has = row.products or statement.takes
            there = tuple(soc for soc in statement.empty_on if soc in has)
            if there or not statement.empty_on:
                yield make.wrong(f"empty-{row.row}", wrong, products=there or row.products)


def rank(make: Maker) -> Iterator[Case]:
    """From no dimension to as many as there may be."""
    setups = tuple(Setup(base=base) for base in make.statement.rank_shapes)
    yield from make.sampled(setups, make.statement.dtypes)
    yield from make.refused()


def edge(make: Maker) -> Iterator[Case]:
    """Zeros, infinities, NaN, ends of the range, and what overflows or cancels."""
    statement = make.statement
    for dtype, setup in product(statement.dtypes, statement.edges):
        if not setup.only or dtype in setup.only:
            for attributes in make.others(setup.attributes):
                yield make.case(dtype, setup, attributes)
    for setup, dtype in product(statement.halfway, statement.dtypes):
        if not setup.only or dtype in setup.only:
            yield make.case(dtype, setup, make.first(setup))
    yield from tiny(make)


def written(make: Maker) -> Iterator[Case]:
    """Results that are written out: complex numbers, integers that wrap around."""
    statement = make.statement
    for number, each in enumerate(statement.written, 1):
        dtypes = {name: dtype_of(array) for name, array in each.inputs.items()}
        shapes = {name: array.shape for name, array in each.inputs.items()}
        first = next(iter(dtypes.values()))
        yield Case(
            f"{statement.title}/written/{first.short}-{each.note}-{number:04}", statement,
            "written", first, dtypes, shapes, each.attributes, setup=Setup(values=each.inputs),
            written=each,
        )  # fmt: skip


def reduction(make: Maker) -> Iterator[Case]:
    """Unusual values that attributes may have: beyond 32 bits, axes from the end."""
    for dtype, setup in product(make.statement.dtypes, make.statement.reductions):
        yield make.case(dtype, setup)
        yield make.case(dtype, setup)
    yield from make.refused()
    yield from unusual(make)


def invalid(make: Maker) -> Iterator[Case]:
    """Every row of the error table, alone and two at a time: the first must be found."""
    yield make.wrong("nothing-wrong")
    yield from make.refused()
    rows = make.statement.invalid
    nulls = [row for row in rows if row.status == PARAM_NULLPTR]
    for place, row in enumerate(rows):
        fitting = [null for null in nulls if null in rows[:place] and _combine(null, row)]
        if row not in nulls and fitting:
            yield make.wrong(f"{fitting[-1].row}-before-{row.row}", fitting[-1], row)
    usual = [row for row in rows if not (row.alone or row.products)]
    for first, second in (*pairwise(usual), *_far_apart(usual)):
        if _combine(first, second) and _apart(first, second):
            yield make.wrong(f"{first.row}-before-{second.row}", first, second)
    given = next(each.name for each in make.statement.inputs if each.read and not each.refused)
    shape = call_of(make.wrong("right"), 0).shapes[make.outputs[0]]
    for row in of_every_operator(given, make.outputs[0]):
        if prod(shape) > 1 or row.row == "unknown" or given in row.changes:
            yield make.wrong(row.row, row, telling=True)


def _far_apart(rows: list[Invalid]) -> Iterator[tuple[Invalid, Invalid]]:
    """Rows about different parameters of the usual call, with many rows between them."""
    for first, second in zip(rows, rows[len(rows) // 2 :], strict=False):
        alike = first.changes.keys() & second.changes.keys()
        if not alike and first.base == second.base == Setup():
            yield first, second


def determinism(make: Maker) -> Iterator[Case]:
    """The same call again, alone and at once: the same bits."""
    for dtype in make.statement.dtypes:
        for base in make.statement.base_shapes[-_FEW:]:
            yield make.case(dtype, Setup(base=base))
    for setup in make.statement.broadcast[-_FEW:]:
        yield make.case(make.statement.dtypes[0], setup)
    large = Setup(base=make.statement.sized(3 * SIZES[-1]))
    yield make.case(make.statement.dtypes[0], large)


def crowd(make: Maker) -> Iterator[Case]:
    """Several callers with other operators, shapes and values at once, many times."""
    for turn, dtype in enumerate(make.statement.dtypes):
        shapes = make.statement.base_shapes
        yield make.case(dtype, Setup(base=shapes[turn % len(shapes)]))
    yield make.case(make.statement.dtypes[0], Setup(base=make.statement.sized(_TOGETHER)))


def size(make: Maker) -> Iterator[Case]:
    """Numbers of elements around the sizes of blocks."""
    for count, dtype in product(SIZES, make.statement.dtypes):
        yield make.case(dtype, Setup(base=make.statement.sized(count)))


def paths(make: Maker) -> Iterator[Case]:
    """The same call by every way that a call can travel: the same bits; Plan says the same."""
    statement = make.statement
    first, *rest = statement.dtypes
    base = Setup(base=statement.layout_shape)
    yield make.case(first, base, telling=True)
    layouts = dict.fromkeys(make.names, GAPS)
    yield make.case(first, base, note="gaps", outputs=True, layouts=layouts)
    for setup in statement.broadcast[:: max(1, len(statement.broadcast) - 1)][:2]:
        yield make.case(setup.only[0] if setup.only else first, setup)
    for dtype in rest:
        yield make.case(dtype, base)
    warned = statement.reductions[:1] if statement.unwarned else ()
    for setup in (*statement.mixed[:1], *warned):
        yield make.case(setup.only[0] if setup.only else first, setup)
    for shape in statement.empty_shapes[:1]:
        yield make.case(first, Setup(base=shape, products=statement.empty_on))
    yield make.case(first, Setup(base=statement.sized(_ANSWERED_IN_CHUNKS)), telling=True)
    yield make.case(first, Setup(base=statement.sized(IN_CHUNKS // len(statement.inputs))))
    rows = [row for row in statement.invalid if row.block == "invalid" and not row.products]
    for row in rows[:: max(1, len(rows) // _REFUSED)]:
        yield make.wrong(row.row, row)


def documents(make: Maker) -> Iterator[Case]:
    """Where published sources contradict each other: with whom the server agrees."""
    for each in make.statement.contradictions:
        yield make.case(
            FLOAT, each.setup, make.first(each.setup), note=f"contradiction-{each.number}",
            contradiction=each,
        )  # fmt: skip


def _combine(first: Invalid, second: Invalid) -> bool:
    """Whether one call can have both."""
    if first.alone or second.alone or (first.products and second.products):
        return False
    if first.base != second.base and Setup() not in (first.base, second.base):
        return False
    return not collide(first.changes, second.changes)


def _apart(first: Invalid, second: Invalid) -> bool:
    """Whether an answer shows which of them was found."""
    return (first.error, first.blames) != (second.error, second.blames)


BLOCKS: dict[str, Callable[[Maker], Iterator[Case]]] = {
    block.__name__: block
    for block in (
        listing, products, defaults, grid, broadcast, mixed, layout, empty, rank, edge, written,
        reduction, invalid, determinism, crowd, size, large, paths, fuzz, documents,
    )
}  # fmt: skip
"""The blocks in the order in which they run; the first line of each says its purpose."""


def cases_of(statement: Statement, block: str) -> Iterator[Case]:
    """Every case of a block of a statement, always the same ones in the same order."""
    return BLOCKS[block](Maker(statement, block))

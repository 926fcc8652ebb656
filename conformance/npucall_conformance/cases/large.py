"""The block ``large``: it finds errors that small tensors do not show.

Implementations work in pieces. Each case has a tensor of more than ``BEYOND`` elements: more than a
block of the CPU reference, and more than a core of an NPU takes at a time. Two cases have more
bytes than a message of gRPC, so that they travel in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import DType
from npucall.tensors import Shape
from npucall_conformance.cases.arrangements import (
    EXPANDED,
    GAPS,
    OFFSET,
    STEP,
    TRANSPOSED,
    Arrangement,
)
from npucall_conformance.cases.case import Case, Maker, Marks
from npucall_conformance.stating.domains import EXTREMES, NO_NUMBERS
from npucall_conformance.stating.parts import Setup
from npucall_conformance.stating.statement import RANK_SHAPES, Statement

BEYOND = 98_304
"""The largest tensor of every case has more elements than this."""
IN_CHUNKS = 1_100_003
"""So many elements of FLOAT take more than 4 MiB."""

_STRIDED = (TRANSPOSED, STEP, OFFSET)
_MIXTURE = (TRANSPOSED, EXPANDED, STEP)
_GAPPED = (GAPS, TRANSPOSED, STEP)


def large(make: Maker) -> Iterator[Case]:
    """Beyond one block and one message: strided, stretched, with gaps, many rows alike."""
    statement = make.statement
    for turn, dtype in enumerate(statement.dtypes):
        yield from _laid_out(make, dtype, turn)
        for setup in statement.large if turn == 0 else _one_of_a_kind(statement.large, turn):
            if not setup.only or dtype in setup.only:
                yield make.case(dtype, setup)
    chunks = Setup("chunks", base=statement.chunked or statement.sized(IN_CHUNKS))
    yield make.case(statement.dtypes[0], chunks)
    yield _mixture(make, statement.dtypes[0], 1, replace(chunks, note="chunks-mixture"))
    for dtype in statement.dtypes:
        case = make.case(dtype, Setup("special", base=statement.large_shape))
        yield replace(case, marks=_marked(statement), telling=dtype is statement.dtypes[0])
    if statement.shapes is not None and len(statement.outputs) > 1:
        first = statement.large[0]
        alike = {each.name: Marks(alike=True) for each in statement.inputs if not each.dtypes}
        setup = replace(first, note=f"alike-{first.note}", telling=True)
        yield make.case(statement.dtypes[0], setup, make.combinations[0], marks=alike)


_BORDERS = (0, 1, 255, 256, 1_023, 1_024, 4_095, 4_096, 16_384, 65_535, 65_536, 98_303, 98_304, -1)
"""Elements at the ends of blocks, cores and vectors."""
_EDGE = 40
"""Of an edge's numbers."""
_LEAST, _LARGEST = 1e-2, 8.0
"""Sizes of numbers that are not extreme."""


@cache
def special_values(statement: Statement, name: str, *, extreme: bool) -> tuple[float, ...]:
    """Values that are special everywhere, and an input's values in the statement's edges."""
    found = dict.fromkeys(EXTREMES if extreme else NO_NUMBERS)
    for setup in statement.edges:
        values = np.asarray(setup.values.get(name, ()), np.float64).reshape(-1)
        found |= dict.fromkeys(
            number
            for number in values[:_EDGE].tolist()
            if _LEAST < abs(number) < _LARGEST or (not extreme and not abs(number) < np.inf)
        )
    return tuple(found)


def _marked(statement: Statement) -> dict[str, Marks]:
    """Special values at such places of inputs without dtypes of their own.

    None if drawn calls have none either.
    """
    found = {}
    for turn, each in enumerate(statement.inputs if statement.sprinkled else ()):
        special = special_values(statement, each.name, extreme=False)
        places = enumerate(_BORDERS, turn)
        if not each.dtypes:
            found[each.name] = Marks(tuple((p, special[i % len(special)]) for i, p in places))
    return found


def tiny(make: Maker) -> Iterator[Case]:
    """Subnormal numbers in one input after the other, beside usual ones in all others."""
    statement = make.statement
    for dtype, each in product(statement.dtypes, statement.inputs):
        if dtype.kind != "float" or each.dtypes or not each.tiny:
            continue
        least = 2.0 ** (dtype.least_exponent - dtype.fraction)
        marks = tuple((place, least * (-3) ** place) for place in range(6))
        yield make.case(
            dtype, Setup(f"{each.name}-tiny"), make.combinations[0],
            marks={each.name: Marks(marks)},
        )  # fmt: skip


def _laid_out(make: Maker, dtype: DType, turn: int) -> Iterator[Case]:
    """Layouts of inputs and outputs; each dtype gives them to other tensors."""
    base, inputs = Setup(base=make.statement.large_shape), make.inputs
    yield _mixture(make, dtype, turn, replace(base, note="mixture"), telling=turn == 0)
    yield make.case(dtype, base, note="inputs-strided", layouts=_in_turn(inputs, _STRIDED, turn))
    for name in inputs if turn == 0 else [inputs[turn % len(inputs)]]:
        layouts = {name: EXPANDED}
        yield make.case(dtype, base, note=f"{name}-expanded", layouts=layouts)
    gapped = _in_turn(make.outputs, _GAPPED, turn)
    yield make.case(dtype, base, note="outputs-gapped", outputs=True, layouts=gapped)


def _mixture(make: Maker, dtype: DType, turn: int, setup: Setup, **more: Any) -> Case:
    """Every tensor in another layout."""
    inputs, outputs = (
        _in_turn(make.inputs, _MIXTURE, turn), _in_turn(make.outputs, _GAPPED, turn)
    )  # fmt: skip
    return make.case(dtype, setup, outputs=True, layouts={**inputs, **outputs}, **more)


def _in_turn(
    names: list[str], layouts: tuple[Arrangement, ...], turn: int
) -> dict[str, Arrangement]:
    return {name: layouts[(turn + i) % len(layouts)] for i, name in enumerate(names)}


def _one_of_a_kind(setups: tuple[Setup, ...], turn: int) -> list[Setup]:
    """One setup of each kind, which is the last word of its note; ``turn`` says which."""
    kinds: dict[str, list[Setup]] = {}
    for setup in setups:
        kinds.setdefault(setup.note.rpartition("-")[2], []).append(setup)
    return [of_kind[turn % len(of_kind)] for of_kind in kinds.values()]


_OTHERS = (
    ((2, 3, 2, 2, 3), STEP),
    ((3, 3, 3), TRANSPOSED),
    ((3, 4_200), GAPS),
)
"""Shapes with more axes than a copy has; with equal extents; with rows that are far apart."""
SHORT = (
    ((2, 1, 2), TRANSPOSED),
    ((1, 2, 1, 2), STEP),
    ((2, 2), EXPANDED),
    ((1, 2), OFFSET),
    ((2, 1), GAPS),
)
"""Extents of 1 and 2, whose strides say more than the elements need."""


def other_places(
    make: Maker, others: tuple[tuple[Shape, Arrangement], ...] = _OTHERS
) -> Iterator[Case]:
    """Layouts of other shapes than the usual one, for operators that take any shape."""
    statement = make.statement
    if statement.rank_shapes[: len(RANK_SHAPES)] != RANK_SHAPES:
        return
    for turn, (base, layout) in enumerate(others):
        yield make.case(
            statement.dtypes[turn % len(statement.dtypes)], Setup(base=base), outputs=True,
            note=f"all-{layout.name}", layouts=dict.fromkeys(make.names, layout),
        )  # fmt: skip

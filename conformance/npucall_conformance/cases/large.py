"""The block ``large``: it finds errors that small tensors do not show.

Implementations work in pieces. Each case has a tensor of more than ``BEYOND`` elements: more than a
block of the CPU reference, and more than a core of an NPU takes at a time. Two cases have more
bytes than a message of gRPC, so that they travel in chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npucall_conformance.cases.arrangements import Arrangement
from npucall_conformance.stating.parts import Setup
from npucall_conformance.stating.statement import RANK_SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.dtypes import DType
    from npucall_conformance.cases.case import Case
    from npucall_conformance.cases.maker import Maker

BEYOND = 98_304
"""The largest tensor of every case has more elements than this."""
IN_CHUNKS = 1_100_003
"""So many elements of FLOAT take more than 4 MiB."""

_STRIDED = (Arrangement.TRANSPOSED, Arrangement.STEP, Arrangement.OFFSET)
_MIXTURE = (Arrangement.TRANSPOSED, Arrangement.EXPANDED, Arrangement.STEP)
_GAPPED = (Arrangement.GAPS, Arrangement.TRANSPOSED, Arrangement.STEP)


def large(make: Maker) -> Iterator[Case]:
    """Each layout and kind of shape with every dtype; only the first dtype has all of a kind."""
    statement = make.statement
    for turn, dtype in enumerate(statement.dtypes):
        yield from _laid_out(make, dtype, turn)
        for setup in statement.large if turn == 0 else _one_of_a_kind(statement.large, turn):
            if not setup.only or dtype in setup.only:
                yield make.case(dtype, setup)
    chunks = Setup("chunks", base=statement.chunked or statement.sized(IN_CHUNKS))
    yield make.case(statement.dtypes[0], chunks)
    yield _mixture(make, statement.dtypes[0], 1, replace(chunks, note="chunks-mixture"))


def _laid_out(make: Maker, dtype: DType, turn: int) -> Iterator[Case]:
    """Layouts of inputs and outputs; each dtype gives them to other tensors."""
    statement = make.statement
    base = Setup(base=statement.large_shape)
    inputs = [each.name for each in statement.inputs]
    outputs = [each.name for each in statement.outputs]
    case = _mixture(make, dtype, turn, replace(base, note="mixture"))
    yield replace(case, telling=turn == 0)
    strided = {name: _STRIDED[(turn + i) % 3] for i, name in enumerate(inputs)}
    yield replace(make.case(dtype, base, note="inputs-strided"), layouts=strided)
    for name in inputs if turn == 0 else [inputs[turn % len(inputs)]]:
        case = make.case(dtype, base, note=f"{name}-expanded")
        yield replace(case, layouts={name: Arrangement.EXPANDED})
    case = make.case(dtype, base, note="outputs-gapped", outputs=True)
    yield replace(case, layouts=_of_outputs(outputs, turn))


def _mixture(make: Maker, dtype: DType, turn: int, setup: Setup) -> Case:
    """Every tensor in another layout."""
    inputs = {each.name: _MIXTURE[(turn + i) % 3] for i, each in enumerate(make.statement.inputs)}
    outputs = _of_outputs([each.name for each in make.statement.outputs], turn)
    return replace(make.case(dtype, setup, outputs=True), layouts={**inputs, **outputs})


def _of_outputs(names: list[str], turn: int) -> dict[str, Arrangement]:
    return {name: _GAPPED[(turn + i) % 3] for i, name in enumerate(names)}


def _one_of_a_kind(setups: tuple[Setup, ...], turn: int) -> list[Setup]:
    """One setup of each kind, which is the last word of its note; ``turn`` says which."""
    kinds: dict[str, list[Setup]] = {}
    for setup in setups:
        kinds.setdefault(setup.note.rpartition("-")[2], []).append(setup)
    return [of_kind[turn % len(of_kind)] for of_kind in kinds.values()]


_OTHERS = (
    ((2, 3, 2, 2, 3), Arrangement.STEP),
    ((3, 3, 3), Arrangement.TRANSPOSED),
    ((3, 4_200), Arrangement.GAPS),
)
"""Shapes with more axes than a copy has; with equal extents; with rows that are far apart."""


def other_places(make: Maker) -> Iterator[Case]:
    """Layouts of other shapes than the usual one, for operators that take any shape."""
    statement = make.statement
    if statement.rank_shapes[: len(RANK_SHAPES)] != RANK_SHAPES:
        return
    inputs = [each.name for each in statement.inputs]
    names = [*inputs, *(each.name for each in statement.outputs)]
    for turn, (base, layout) in enumerate(_OTHERS):
        dtype = statement.dtypes[turn % len(statement.dtypes)]
        case = make.case(dtype, Setup(base=base), note=f"all-{layout.value}", outputs=True)
        yield replace(case, layouts=dict.fromkeys(names, layout))

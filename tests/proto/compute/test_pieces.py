"""npucall.compute.pieces: calls whose inputs come piece by piece."""

import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proto.computing import Counted, call_of, storages_of
from tests.rows import each

from npucall.compute import evaluate, pieces
from npucall.compute.pieces import Piece
from npucall.compute.work import Work
from npucall.declare.prepare import Prepared
from npucall.dtypes import BF16, FLOAT, FLOAT16, DType
from npucall.errors import InternalError
from npucall.operators import CATALOGUE
from npucall.tensors import TensorSpec

LOSS = "aclnnL1LossBackward"
L1, KL = CATALOGUE.find(LOSS), CATALOGUE.find("aclnnKlDivBackward")
SOFTMAX = CATALOGUE.find("aclnnSoftmaxBackward")
LOSS_INPUTS = ("grad_output", "self", "target")
SHAPE, ELEMENTS = (20, 50), 1000
OPERATORS: dict[str, dict[str, Any]] = {
    "aclnnSmoothL1LossBackward": {"beta": 0.5},
    LOSS: {"reduction": 1},
    "aclnnMseLossBackward": {"reduction": 1},
    **{f"aclnn{name}Backward": {} for name in ("Sigmoid", "Silu", "Tanh", "Gelu")},
}
EDGES = st.lists(st.integers(1, ELEMENTS - 1), max_size=6)


def elementwise(name: str, dtype: DType, *, number: bool = False) -> Prepared:
    """A call of 1000 elements; its first input is a single number if asked."""
    operator = CATALOGUE.find(name)
    shapes: list[tuple[int, ...]] = [SHAPE for _ in operator.inputs]
    if number:
        shapes[0] = ()
    return call_of(operator, *shapes, dtype=dtype, **OPERATORS[name])


def cut_at(call: Prepared, storages: dict[str, bytes], edges: Sequence[int]) -> Iterator[Piece]:
    """The pieces between edges; parts stand at odd addresses."""
    for start, stop in pairwise((0, *sorted(set(edges)), ELEMENTS)):
        parts = {}
        for name, spec in call.inputs.items():
            size = spec.dtype.itemsize
            single = spec.elements == 1
            part = storages[name] if single else storages[name][start * size : stop * size]
            parts[name] = memoryview(b"?" + part)[1:]
        yield Piece(start, stop, parts)


def assert_as_the_whole(call: Prepared, edges: Sequence[int]) -> None:
    """The bits are those of a call in one piece."""
    storages = storages_of(call)
    assert pieces.takes_pieces(call)
    (expected,) = evaluate.run(call, storages)
    (found,) = pieces.run(call, cut_at(call, storages, edges))
    assert bytes(found) == bytes(expected)


@each("name", OPERATORS)
@each("dtype", (FLOAT, FLOAT16, BF16))
@given(edges=EDGES)
@settings(max_examples=8)
def test_any_pieces_give_the_bits_of_the_whole(name: str, dtype: DType, edges: list[int]) -> None:
    assert_as_the_whole(elementwise(name, dtype), edges)


@given(edges=EDGES)
def test_a_number_goes_with_every_piece(edges: list[int]) -> None:
    assert_as_the_whole(elementwise(LOSS, FLOAT, number=True), edges)


def test_inputs_of_several_dtypes_are_taken() -> None:
    specs = [TensorSpec(dtype, SHAPE) for dtype in (FLOAT, FLOAT16, FLOAT)]
    assert_as_the_whole(call_of(L1, *specs), (7, 400))


def test_a_piece_is_computed_three_blocks_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "block", 100)
    call, turns = elementwise(LOSS, FLOAT), Counted()
    pieces.run(call, cut_at(call, storages_of(call), (250,)), turns)
    assert turns.taken == 1 + 3


def test_a_piece_is_forgotten_before_the_next_one_is_asked_for() -> None:
    call = elementwise(LOSS, FLOAT)
    gone = []

    def watched() -> Iterator[Piece]:
        for piece in cut_at(call, storages_of(call), (300, 600)):
            arrays = {n: np.frombuffer(part, np.uint8).copy() for n, part in piece.inputs.items()}
            marks = [weakref.ref(array) for array in arrays.values()]
            handed = Piece(piece.start, piece.stop, {n: a.data for n, a in arrays.items()})
            del arrays
            yield handed
            del handed
            gone.append([mark() is None for mark in marks])

    pieces.run(call, watched())
    assert gone == [[True] * 3] * 3


STRIDED, OFFSET = TensorSpec(FLOAT, (4, 3), (1, 4)), TensorSpec(FLOAT, (4, 3), (3, 1), 5)
DENSE = TensorSpec(FLOAT, (4, 3))
WHOLE = {
    "a sum": call_of(KL, (4, 3), (1, 3), (4, 3)),
    "rows": call_of(SOFTMAX, (4, 3), (4, 3), dim=1),
    "strides": call_of(L1, DENSE, STRIDED, DENSE),
    "an offset": call_of(L1, DENSE, OFFSET, DENSE),
    "shapes that broadcast": call_of(L1, (4, 3), (3,), (4, 3)),
    "an output's storage": call_of(L1, DENSE, DENSE, DENSE, grad_input=DENSE),
    "one element": call_of(L1, (1,), (1,), (1,)),
    "no element": call_of(L1, (0, 3), (0, 3), (0, 3)),
    # Its pieces would end behind the first element, and leave the rest to what was there.
    "an output that only an unread input reaches": call_of(KL, (1, 1), SHAPE, (1, 1)),
}


@each("what", WHOLE)
def test_other_calls_need_all_of_their_inputs(what: str) -> None:
    assert not pieces.takes_pieces(WHOLE[what])


@each("spans", [[(0, 999)], [], [(0, 500), (501, 1000)], [(1, 1000)]])
def test_memory_that_no_piece_wrote_is_never_handed_out(spans: list[tuple[int, int]]) -> None:
    parts = (
        Piece(start, stop, dict.fromkeys(LOSS_INPUTS, bytes(4 * (stop - start))))
        for start, stop in spans
    )
    with pytest.raises(InternalError, match="pieces: expected one that starts at element"):
        pieces.run(elementwise(LOSS, FLOAT), parts)

"""npucall.compute.pieces: calls whose inputs come piece by piece."""

from __future__ import annotations

import weakref
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.more import every_third
from tests.rows import each

from npucall.compute import evaluate, pieces
from npucall.compute.pieces import Piece
from npucall.compute.work import Work
from npucall.declare.call import Call
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BF16, FLOAT, FLOAT16
from npucall.errors import InternalError
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from npucall.dtypes import DType

L1, KL = CATALOGUE.find("aclnnL1LossBackward"), CATALOGUE.find("aclnnKlDivBackward")
LOSS_INPUTS = ("grad_output", "self", "target")
ELEMENTS = 1000
OPERATORS = (
    "aclnnL1LossBackward",
    "aclnnMseLossBackward",
    "aclnnSmoothL1LossBackward",
    "aclnnSigmoidBackward",
    "aclnnSiluBackward",
    "aclnnTanhBackward",
    "aclnnGeluBackward",
)
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "aclnnSmoothL1LossBackward": {"beta": 0.5},
    "aclnnL1LossBackward": {"reduction": 1},
    "aclnnMseLossBackward": {"reduction": 1},
}


def call_of(operator: Any, *specs: TensorSpec, **more: Any) -> Prepared:
    names = [p.name for p in operator.inputs][: len(specs)]
    stored = (*names, *(name for name, value in more.items() if isinstance(value, TensorSpec)))
    return prepare(
        Call(operator, {**dict(zip(names, specs, strict=True)), **more}, stored), A2, CATALOGUE
    )


def elementwise(name: str, dtype: DType, *, number: bool = False) -> Prepared:
    """A call of 1000 elements; its first input is a single number if asked."""
    operator = CATALOGUE.find(name)
    specs = [TensorSpec(dtype, (20, 50)) for _ in operator.inputs]
    if number:
        specs[0] = TensorSpec(dtype, ())
    return call_of(operator, *specs, **DEFAULTS.get(name, {}))


def storages_of(call: Prepared) -> dict[str, bytes]:
    random = np.random.default_rng(5)
    return {
        name: random.uniform(-4, 4, spec.elements).astype(spec.dtype.numpy).tobytes()
        for name, spec in call.inputs.items()
    }


def cut_at(call: Prepared, storages: Mapping[str, bytes], edges: Sequence[int]) -> Iterator[Piece]:
    """The pieces between edges; parts stand at odd addresses."""
    for start, stop in pairwise((0, *sorted(set(edges)), ELEMENTS)):
        parts = {}
        for name, spec in call.inputs.items():
            size = spec.dtype.itemsize
            single = spec.elements == 1
            part = storages[name] if single else storages[name][start * size : stop * size]
            parts[name] = memoryview(b"?" + part)[1:]
        yield Piece(start, stop, parts)


EDGES = st.lists(st.integers(1, ELEMENTS - 1), max_size=6)


@each(
    ("name", "dtype"),
    every_third((name, dtype) for dtype in (FLOAT, FLOAT16, BF16) for name in OPERATORS),
)
@given(edges=EDGES)
def test_any_pieces_give_the_bits_of_the_whole(name: str, dtype: DType, edges: list[int]) -> None:
    call = elementwise(name, dtype)
    storages = storages_of(call)
    assert pieces.takes_pieces(call)
    (expected,) = evaluate.run(call, storages)
    (found,) = pieces.run(call, cut_at(call, storages, edges))
    assert bytes(found) == bytes(expected)


@given(edges=EDGES)
def test_a_number_goes_with_every_piece(edges: list[int]) -> None:
    call = elementwise("aclnnL1LossBackward", FLOAT, number=True)
    storages = storages_of(call)
    assert pieces.takes_pieces(call)
    (found,) = pieces.run(call, cut_at(call, storages, edges))
    assert [bytes(found)] == [bytes(one) for one in evaluate.run(call, storages)]


@each("name", OPERATORS)
def test_pieces_of_one_element_give_the_bits_of_the_whole(name: str) -> None:
    call = elementwise(name, FLOAT)
    storages = storages_of(call)
    (found,) = pieces.run(call, cut_at(call, storages, range(1, ELEMENTS)))
    assert [bytes(found)] == [bytes(one) for one in evaluate.run(call, storages)]


def test_inputs_of_several_dtypes_are_taken() -> None:
    call = call_of(L1, *(TensorSpec(dtype, (20, 50)) for dtype in (FLOAT, FLOAT16, FLOAT)))
    storages = storages_of(call)
    assert pieces.takes_pieces(call)
    (found,) = pieces.run(call, cut_at(call, storages, (7, 400)))
    assert [bytes(found)] == [bytes(one) for one in evaluate.run(call, storages)]


def test_a_piece_is_computed_three_blocks_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "block", 100)
    call = elementwise("aclnnL1LossBackward", FLOAT)
    turns = Counting()
    pieces.run(call, cut_at(call, storages_of(call), (250,)), turns)
    assert turns.taken == 1 + 3


def test_a_piece_is_forgotten_before_the_next_one_is_asked_for() -> None:
    call = elementwise("aclnnL1LossBackward", FLOAT)
    storages = storages_of(call)
    gone = []

    def watched() -> Iterator[Piece]:
        for piece in cut_at(call, storages, (300, 600)):
            arrays = {
                name: np.frombuffer(part, np.uint8).copy() for name, part in piece.inputs.items()
            }
            marks = [weakref.ref(array) for array in arrays.values()]
            handed = Piece(piece.start, piece.stop, {n: a.data for n, a in arrays.items()})
            del arrays
            yield handed
            del handed
            gone.append([mark() is None for mark in marks])

    pieces.run(call, watched())
    assert gone == [[True] * 3] * 3


def whole(*shapes: tuple[int, ...], operator: Any = L1, **more: Any) -> Prepared:
    return call_of(operator, *(TensorSpec(FLOAT, shape) for shape in shapes), **more)


STRIDED, OFFSET = TensorSpec(FLOAT, (4, 3), (1, 4)), TensorSpec(FLOAT, (4, 3), (3, 1), 5)
DENSE = TensorSpec(FLOAT, (4, 3))
WHOLE = {
    "a sum": whole((4, 3), (1, 3), (4, 3), operator=KL),
    "rows": whole((4, 3), (4, 3), operator=CATALOGUE.find("aclnnSoftmaxBackward"), dim=1),
    "strides": call_of(L1, DENSE, STRIDED, DENSE),
    "an offset": call_of(L1, DENSE, OFFSET, DENSE),
    "shapes that broadcast": whole((4, 3), (3,), (4, 3)),
    "an output's storage": whole((4, 3), (4, 3), (4, 3), grad_input=DENSE),
    "one element": whole((1,), (1,), (1,)),
    "no element": whole((0, 3), (0, 3), (0, 3)),
}


@each("call", WHOLE.values())
def test_other_calls_need_all_of_their_inputs(call: Prepared) -> None:
    assert not pieces.takes_pieces(call)


class Counting:
    """Turns without end, counted."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self) -> Counting:
        return self

    spare = __call__

    def pause(self) -> None:
        pass

    def __enter__(self) -> None:
        self.taken += 1

    def __exit__(self, *raised: object) -> None:
        pass


def test_a_call_whose_output_only_an_unread_input_reaches_is_not_taken() -> None:
    """Its pieces would end behind the first element, and leave the rest to what was there."""
    one = TensorSpec(FLOAT, (1, 1))
    assert not pieces.takes_pieces(call_of(KL, one, TensorSpec(FLOAT, (20, 50)), one))


@each("spans", [[(0, 999)], [], [(0, 500), (501, 1000)], [(1, 1000)]])
def test_memory_that_no_piece_wrote_is_never_handed_out(spans: list[tuple[int, int]]) -> None:
    call = elementwise("aclnnL1LossBackward", FLOAT)
    parts = (
        Piece(start, stop, dict.fromkeys(LOSS_INPUTS, bytes(4 * (stop - start))))
        for start, stop in spans
    )
    with pytest.raises(InternalError, match="pieces: expected one that starts at element"):
        pieces.run(call, parts)

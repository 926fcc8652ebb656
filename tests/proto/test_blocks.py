"""npucall.declare.cuts: how a shape is cut into blocks."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.compute.evaluate import run
from npucall.declare.cuts import cut
from npucall.dtypes import FLOAT
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode

Shape = tuple[int, ...]


@given(st.lists(st.integers(1, 6), max_size=5).map(tuple), st.integers(1, 50))
def test_blocks_cover_every_element_once_in_order_and_none_exceeds_the_limit(
    shape: Shape, limit: int
) -> None:
    numbers = np.arange(prod(shape)).reshape(shape)
    blocks = list(cut(shape, limit))
    pieces = [numbers[block].reshape(-1) for block in blocks]
    assert np.concatenate(pieces).tolist() == list(range(prod(shape)))
    assert max(piece.size for piece in pieces) <= limit
    assert {len(block) for block in blocks} == {len(shape)}
    assert len(list(cut(shape, prod(shape)))) == 1


def test_a_row_longer_than_the_limit_is_cut_and_the_rest_of_it_follows() -> None:
    assert list(cut((2, 5), 3)) == [
        (slice(0, 1), slice(0, 3)),
        (slice(0, 1), slice(3, 5)),
        (slice(1, 2), slice(0, 3)),
        (slice(1, 2), slice(3, 5)),
    ]


@each("shape", [(0, 2**60), (2**60, 0), (0,), (3, 0, 2**40)])
def test_a_shape_without_elements_has_no_blocks_however_large_it_is(shape: Shape) -> None:
    assert list(cut(shape, 65_536)) == []


def test_a_call_without_elements_is_answered_however_large_its_other_extents_are() -> None:
    # Of 4 bytes of data; elements of the space: 0 * 2^60.
    one = TensorSpec(FLOAT, (1, 1))
    tensors = {"grad_output": one, "self": one, "target": TensorSpec(FLOAT, (0, 2**60))}
    call = encode("aclnnKlDivBackward", "", tensors, ("grad_output", "target"))
    prepared = PreparedCalls(CATALOGUE, A2, "").of(call)
    assert run(prepared, prepared.storages([bytes(4), b""])) == [bytes(4)]

"""npucall.compute.blocks: how a shape is cut."""

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
from npucall.products import product_of
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode

Shape = tuple[int, ...]

shapes = st.lists(st.integers(1, 6), max_size=5).map(tuple)
limits = st.integers(1, 50)


@given(shapes, limits)
def test_blocks_cover_every_element_once_in_row_major_order(shape: Shape, limit: int) -> None:
    numbers = np.arange(prod(shape)).reshape(shape)
    pieces = [numbers[block].reshape(-1) for block in cut(shape, limit)]
    assert np.concatenate(pieces).tolist() == list(range(prod(shape)))


@given(shapes, limits)
def test_no_block_has_more_elements_than_the_limit(shape: Shape, limit: int) -> None:
    numbers = np.zeros(shape)
    assert max(numbers[block].size for block in cut(shape, limit)) <= limit


@given(shapes, limits)
def test_a_block_has_a_slice_for_every_axis(shape: Shape, limit: int) -> None:
    assert {len(block) for block in cut(shape, limit)} == {len(shape)}


@given(shapes)
def test_a_shape_within_the_limit_is_one_block(shape: Shape) -> None:
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
    tensors = {
        "grad_output": TensorSpec(FLOAT, (1, 1)),
        "self": TensorSpec(FLOAT, (1, 1)),
        "target": TensorSpec(FLOAT, (0, 2**60)),
    }
    call = encode("aclnnKlDivBackward", "", tensors, ("grad_output", "target"))
    prepared = PreparedCalls(CATALOGUE, product_of("Ascend910B1"), "").of(call)
    assert run(prepared, prepared.storages([bytes(4), b""])) == [bytes(4)]

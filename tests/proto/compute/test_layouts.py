"""npucall.compute.layouts and declare.cuts: what is found without memory, as NumPy finds it."""

from math import prod
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.compute.evaluate import run
from npucall.compute.layouts import Layout
from npucall.declare.cuts import cut
from npucall.dtypes import BF16, FLOAT, FLOAT16
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec, view
from npucall.wire.calls import PreparedCalls, encode

SHAPES = [(), (1,), (5,), (3, 4), (1, 4, 1), (2, 3, 4), (0, 3), (3, 0)]


def layouts(shape: Any) -> list[Any]:
    """Arrays of a shape that lie in memory in several ways."""
    dense = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    spread = np.zeros((*shape, 3), np.float32)[..., 1]
    spread[...] = dense
    return [dense, np.asfortranarray(dense), spread, dense[::-1] if shape else dense]


@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_a_layout_over_a_storage_is_the_tensors_view_of_it(shape: list[int], data: Any) -> None:
    strides = data.draw(st.tuples(*(st.integers(0, 9) for _ in shape)))
    offset = data.draw(st.integers(0, 5))
    spec = TensorSpec(FLOAT16, tuple(shape), strides, offset)
    storage = np.arange(spec.storage_elements, dtype=np.float16).tobytes()
    found = Layout.of_spec(spec).over(storage)
    np.testing.assert_array_equal(found, view(spec, storage))
    assert found.dtype == np.float16


def test_a_layout_is_no_copy_and_received_bytes_cannot_be_written() -> None:
    storage = bytearray(12)
    Layout.of_spec(TensorSpec(FLOAT, (2,), (1,), 1)).over(storage)[...] = 1
    assert np.frombuffer(storage, np.float32).tolist() == [0, 1, 1]
    assert not Layout.of_spec(TensorSpec(BF16, (2,))).over(bytes(4)).flags.writeable
    array = np.zeros((2, 3), np.float32)
    Layout.of_array(array).rows(0).seen(array)[2] = 5
    assert array.tolist() == [[0, 0, 5], [0, 0, 5]]


@each("shape", [(0, 2**60), (2**60, 0)])
def test_what_has_no_elements_needs_no_memory_however_large_its_other_extents_are(
    shape: Any,
) -> None:
    layout = Layout.of_spec(TensorSpec(FLOAT, shape))
    assert layout.over(b"").shape == shape
    assert layout.flat().over(b"").shape == (0,)
    assert Layout.of_spec(TensorSpec(FLOAT, shape, (2**62, 1))).over(b"").shape == shape


def test_strides_along_an_extent_of_1_do_not_matter() -> None:
    assert Layout(np.dtype(np.float32), (3, 1, 2), (8, 999, 4)).dense
    assert not Layout(np.dtype(np.float32), (3, 2, 1), (16, 4, 4)).dense


@each("array", [array for shape in SHAPES for array in layouts(shape)])
def test_what_is_seen_through_a_layout_is_what_numpy_makes_of_the_array(array: Any) -> None:
    layout = Layout.of_array(array)
    assert layout.dense == array.flags.c_contiguous
    if layout.dense:
        seen = layout.flat().seen(array)
        np.testing.assert_array_equal(seen, array.reshape(-1))
        assert seen.shape == (array.size,)
    in_front = array[(np.newaxis,) * (5 - array.ndim)]
    np.testing.assert_array_equal(layout.of_rank(5).seen(array), in_front)
    for dim in range(-array.ndim, array.ndim):
        np.testing.assert_array_equal(layout.rows(dim).seen(array), np.moveaxis(array, dim, -1))


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

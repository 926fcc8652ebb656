"""npucall.compute.layouts: what is found without memory is what NumPy does with it."""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.compute.layouts import Layout
from npucall.dtypes import BF16, FLOAT, FLOAT16
from npucall.tensors import TensorSpec, view

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


@each("dim", [0, -1])
def test_rank_0_is_one_row_of_one_element(dim: int) -> None:
    number = np.array(3, ml_dtypes.bfloat16)
    assert Layout.of_array(number).rows(dim).seen(number).tolist() == [3]

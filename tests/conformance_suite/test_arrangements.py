"""Layouts: a view holds what was put into it, and knows what lies between."""

from __future__ import annotations

import numpy as np
import pytest

from npucall.dtypes import BF16, FLOAT, DType
from npucall_client.conformance.cases.arrangements import SENTINEL, Arrangement, gaps, put

SHAPES = [(), (5,), (3, 4), (2, 3, 4)]
STRIDED = [Arrangement.TRANSPOSED, Arrangement.STEP, Arrangement.OFFSET, Arrangement.GAPS]
FITTING = [(each, shape) for each in STRIDED for shape in SHAPES if each.fits(shape, output=True)]


@pytest.mark.parametrize(("layout", "shape"), FITTING)
@pytest.mark.parametrize("dtype", [FLOAT, BF16], ids=str)
def test_what_is_put_is_what_is_seen(
    layout: Arrangement, shape: tuple[int, ...], dtype: DType
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype.numpy)
    _, seen = put(array, layout.spec(dtype, shape))
    np.testing.assert_array_equal(seen, array)


@pytest.mark.parametrize(("layout", "shape"), FITTING)
def test_the_gaps_are_all_that_is_no_element(layout: Arrangement, shape: tuple[int, ...]) -> None:
    spec = layout.spec(FLOAT, shape)
    storage, _ = put(np.ones(shape, np.float32), spec)
    free = gaps(spec, storage)
    assert len(free) == spec.storage_elements - spec.elements
    assert len(free) >= 5  # behind the view, of whatever layout
    assert (free == SENTINEL[0]).all()


def test_a_byte_written_into_a_gap_is_seen() -> None:
    spec = Arrangement.GAPS.spec(FLOAT, (3, 4))
    storage, _ = put(np.ones((3, 4), np.float32), spec)
    storage[4 * 4] = 0  # the first byte behind the first row
    assert (gaps(spec, storage) != SENTINEL[0]).sum() == 1


@pytest.mark.parametrize(("layout", "shape"), FITTING)
def test_no_layout_is_dense(layout: Arrangement, shape: tuple[int, ...]) -> None:
    assert not layout.spec(FLOAT, shape).row_major


def test_an_expanded_tensor_has_equal_rows() -> None:
    _, seen = put(np.arange(12.0).reshape(3, 4), Arrangement.EXPANDED.spec(FLOAT, (3, 4)))
    np.testing.assert_array_equal(seen, [[8, 9, 10, 11]] * 3)


def test_an_output_is_never_expanded() -> None:
    assert Arrangement.EXPANDED.fits((3, 4), output=False)
    assert not Arrangement.EXPANDED.fits((3, 4), output=True)

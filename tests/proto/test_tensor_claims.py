"""npucall.tensors: what a spec may claim, and that claims cost nothing."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from tests.rows import each

from npucall.dtypes import COMPLEX128, DOUBLE, FLOAT, INT8
from npucall.errors import TensorLayoutError
from npucall.tensors import TensorSpec, broadcast, view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.dtypes import DType


@pytest.fixture
def nothing_allocated() -> Iterator[None]:
    """Fails if the test holds 1 MiB at any moment; the claims below are 2^60 bytes and more.

    Other threads of the test runner hold something too.
    """
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("nothing_allocated")
def test_a_tensor_of_2_to_the_60_elements_is_only_a_claim() -> None:
    spec = TensorSpec(FLOAT, (2**30, 2**30))
    assert (spec.elements, spec.bytes, spec.storage_bytes) == (2**60, 2**62, 2**62)
    assert spec.row_major
    assert not spec.overlaps_itself()


@pytest.mark.usefixtures("nothing_allocated")
@each(("dtype", "shape"), [(DOUBLE, (2**60,)), (COMPLEX128, (2**59,)), (INT8, (2**32, 2**31))])
def test_a_tensor_of_2_to_the_63_bytes_is_refused(dtype: DType, shape: tuple[int, ...]) -> None:
    with pytest.raises(TensorLayoutError, match="less than 2\\^63 bytes"):
        TensorSpec(dtype, shape)


@pytest.mark.usefixtures("nothing_allocated")
def test_a_huge_shape_with_an_extent_of_0_has_a_view() -> None:
    spec = TensorSpec(FLOAT, (2**30, 0, 2**30))
    assert spec.storage_bytes == 0
    assert view(spec, b"").shape == (2**30, 0, 2**30)


@pytest.mark.usefixtures("nothing_allocated")
def test_an_extent_of_0_does_not_hide_extents_that_numpy_cannot_hold() -> None:
    with pytest.raises(TensorLayoutError, match="less than 2\\^63 bytes"):
        TensorSpec(FLOAT, (2**40, 0, 2**40))


@pytest.mark.usefixtures("nothing_allocated")
def test_an_element_repeated_2_to_the_60_times_needs_a_storage_of_one() -> None:
    spec = TensorSpec(FLOAT, (2**60,), (0,))
    assert spec.storage_bytes == 4
    assert view(spec, bytes(4)).shape == (2**60,)


@pytest.mark.usefixtures("nothing_allocated")
def test_huge_shapes_broadcast_without_an_array() -> None:
    assert broadcast((2**60, 1), (1, 2**60)) == (2**60, 2**60)


def test_32_dimensions_travel_and_the_33rd_does_not() -> None:
    assert view(TensorSpec(FLOAT, (1,) * 32), bytes(4)).ndim == 32
    with pytest.raises(TensorLayoutError, match="at most 32 dimensions, found 33"):
        TensorSpec(FLOAT, (1,) * 33)


def test_a_storage_has_32_dimensions_at_most() -> None:
    with pytest.raises(TensorLayoutError, match="storage shape of at most 32 dimensions"):
        TensorSpec(FLOAT, (1,), storage_shape=(1,) * 33)


@each(
    ("spec", "message"),
    [
        ({"shape": (2, -1)}, "x: expected a shape of extents of 0 or more"),
        ({"shape": (2,), "storage_shape": (-2,)}, "x: expected a storage shape of extents"),
        ({"shape": (2,), "strides": (-1,)}, "x: expected strides and offset of 0 or more"),
        ({"shape": (2,), "offset": -1}, "x: expected strides and offset of 0 or more"),
        ({"shape": (2, 2), "strides": (1,)}, "x: expected 2 strides for shape"),
        ({"shape": (2,), "strides": (2**62,)}, "x: expected a storage of less than 2\\^63 bytes"),
        ({"shape": (), "offset": 2**62}, "x: expected a storage of less than 2\\^63 bytes"),
        ({"shape": (2,), "storage_shape": (1,)}, "x: expected a view inside its storage of 1"),
        ({"shape": (0,), "offset": 2, "storage_shape": (1,)}, "x: expected a view inside"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_by_the_name_of_the_tensor(
    spec: dict[str, object], message: str
) -> None:
    with pytest.raises(TensorLayoutError, match=message) as caught:
        TensorSpec(FLOAT, **spec, name="x")  # type: ignore[arg-type]
    assert caught.value.parameter == "x"
    assert caught.value.aclnn_status is None

"""npucall.tensors: specs, what they may claim, views of bytes, the rule of overlap."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.rows import each

from npucall.dtypes import COMPLEX128, DOUBLE, DTYPES, FLOAT, INT8
from npucall.errors import TensorLayoutError
from npucall.tensors import Format, TensorSpec, broadcast, row_major, view
from npucall.v1 import tensor_pb2

Shape = tuple[int, ...]

# aclFormat as the header lists it [src:formats].
ACL_FORMATS = {
    "NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "NC1HWC0_C04": 12, "HWCN": 16,
    "NDHWC": 27, "FRACTAL_NZ": 29, "NCDHW": 30, "NDC1HWC0": 32, "FRACTAL_Z_3D": 33, "NC": 35,
    "NCL": 47, "FRACTAL_NZ_C0_16": 50, "FRACTAL_NZ_C0_32": 51, "FRACTAL_NZ_C0_2": 52,
    "FRACTAL_NZ_C0_4": 53, "FRACTAL_NZ_C0_8": 54,
}  # fmt: skip


def places(shape: Shape, strides: Shape, offset: int = 0) -> list[int]:
    """Where each element of a view lies, in row-major order, one by one."""
    indices = itertools.product(*map(range, shape))
    return [offset + sum(i * s for i, s in zip(index, strides, strict=True)) for index in indices]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Shape, Shape, int]:
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    strides = tuple(draw(st.integers(0, 9)) for _ in shape)
    return shape, strides, draw(st.integers(0, 5))


@given(layouts(), st.sampled_from(DTYPES), st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_view_has_every_element_from_its_place_in_the_storage(
    layout: tuple[Shape, Shape, int], dtype: object, slack: int, random: np.random.Generator
) -> None:
    shape, strides, offset = layout
    where = places(shape, strides, offset)
    extent = max(where, default=offset - 1) + 1 + slack
    spec = TensorSpec(dtype, shape, strides, offset, (extent,))  # type: ignore[arg-type]
    size = spec.dtype.itemsize
    storage = bytes(random.randrange(2) for _ in range(spec.storage_bytes))  # type: ignore[attr-defined]
    array = view(spec, storage)
    assert (array.shape, array.dtype) == (shape, spec.dtype.numpy)
    assert array.tobytes() == b"".join(storage[i * size : (i + 1) * size] for i in where)


@given(layouts())
def test_a_storage_is_as_long_as_the_view_reaches_and_may_not_be_shorter(
    layout: tuple[Shape, Shape, int],
) -> None:
    shape, strides, offset = layout
    reach = max(places(shape, strides, offset), default=offset - 1) + 1
    assert TensorSpec(FLOAT, shape, strides, offset).storage_elements == reach
    if reach:
        with pytest.raises(TensorLayoutError, match="inside its storage"):
            TensorSpec(FLOAT, shape, strides, offset, (reach - 1,))


@given(layouts())
def test_an_output_that_the_rule_lets_pass_has_no_two_elements_in_one_place(
    layout: tuple[Shape, Shape, int],
) -> None:
    shape, strides, _ = layout
    where = places(shape, strides)
    assert TensorSpec(FLOAT, shape, strides).overlaps_itself() or len(set(where)) == len(where)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=4), st.randoms())
def test_slices_and_transposes_of_a_dense_tensor_never_overlap(
    axes: list[tuple[int, int]], random: np.random.Generator
) -> None:
    dense = np.zeros(tuple(extent * step for extent, step in axes), np.float32)
    order = list(range(len(axes)))
    random.shuffle(order)
    array = dense[tuple(slice(None, None, step) for _, step in axes)].transpose(order)
    strides = tuple(stride // 4 for stride in array.strides)
    assert not TensorSpec(FLOAT, array.shape, strides).overlaps_itself()


def test_the_rule_refuses_interleaved_strides_though_no_element_is_shared() -> None:
    # 0 2 4 and 3 5 7: the stride of 3 does not step over the 4 that the other one reaches.
    assert TensorSpec(FLOAT, (2, 3), (3, 2)).overlaps_itself()


@each("shape", [(0, 3), (3, 0)])
def test_a_tensor_without_elements_does_not_overlap(shape: Shape) -> None:
    assert not TensorSpec(FLOAT, shape, (0, 0)).overlaps_itself()


@given(st.lists(st.integers(0, 5), max_size=4).map(tuple))
def test_row_major_strides_are_those_of_numpy(shape: Shape) -> None:
    assume(prod(shape))
    assert row_major(shape) == tuple(s // 4 for s in np.empty(shape, np.float32).strides)


@given(st.lists(st.lists(st.integers(0, 3), max_size=4).map(tuple), max_size=3))
def test_shapes_broadcast_as_numpy_does_it(shapes: list[Shape]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        expected = None  # type: ignore[assignment]
    assert broadcast(*shapes) == expected


@each(("storage", "writable"), [(bytes(4), False), (bytearray(4), True)])
def test_a_view_is_writable_if_its_storage_is(storage: bytes, writable: bool) -> None:
    assert view(TensorSpec(FLOAT, ()), storage).flags.writeable is writable


def test_the_stride_of_an_extent_of_one_may_be_any_number() -> None:
    spec = TensorSpec(FLOAT, (1, 2), (2**62, 1))  # 2^62 elements are 2^64 bytes
    assert view(spec, bytes(8)).shape == (1, 2)


def test_formats_have_the_codes_of_acl_and_the_proto_codes_that_are_one_more() -> None:
    assert {entry.name: entry.value for entry in Format} == ACL_FORMATS
    listed = {name: value for name, value in tensor_pb2.Format.items() if value}
    assert listed == {f"FORMAT_{name}": code + 1 for name, code in ACL_FORMATS.items()}


def test_the_formats_in_blocks_are_private() -> None:
    # [src:formats]
    public = {"NCHW", "NHWC", "ND", "HWCN", "NDHWC", "NCDHW", "NC", "NCL"}
    assert {entry.name for entry in Format if not entry.private} == public


def test_what_a_spec_claims_takes_no_memory() -> None:
    """The claims are 2^60 bytes and more, which no process has."""
    spec = TensorSpec(FLOAT, (2**30, 2**30))
    assert (spec.elements, spec.bytes, spec.storage_bytes) == (2**60, 2**62, 2**62)
    assert spec.row_major
    assert not spec.overlaps_itself()
    nothing = TensorSpec(FLOAT, (2**30, 0, 2**30))
    assert nothing.storage_bytes == 0
    assert view(nothing, b"").shape == (2**30, 0, 2**30)
    repeated = TensorSpec(FLOAT, (2**60,), (0,))
    assert repeated.storage_bytes == 4
    assert view(repeated, bytes(4)).shape == (2**60,)
    assert broadcast((2**60, 1), (1, 2**60)) == (2**60, 2**60)


def test_32_dimensions_travel() -> None:
    assert view(TensorSpec(FLOAT, (1,) * 32), bytes(4)).ndim == 32


@each(
    ("dtype", "spec", "message"),
    [
        (DOUBLE, {"shape": (2**60,)}, "x: .*less than 2\\^63 bytes"),
        (COMPLEX128, {"shape": (2**59,)}, "x: .*less than 2\\^63 bytes"),
        (INT8, {"shape": (2**32, 2**31)}, "x: .*less than 2\\^63 bytes"),
        (FLOAT, {"shape": (2**40, 0, 2**40)}, "x: .*less than 2\\^63 bytes"),
        (FLOAT, {"shape": (1,) * 33}, "x: .*at most 32 dimensions, found 33"),
        (
            FLOAT,
            {"shape": (1,), "storage_shape": (1,) * 33},
            "x: .*storage shape of at most 32 dimensions",
        ),
        (FLOAT, {"shape": (2, -1)}, "x: expected a shape of extents of 0 or more"),
        (FLOAT, {"shape": (2,), "storage_shape": (-2,)}, "x: expected a storage shape of extents"),
        (FLOAT, {"shape": (2,), "strides": (-1,)}, "x: expected strides and offset of 0 or more"),
        (FLOAT, {"shape": (2,), "offset": -1}, "x: expected strides and offset of 0 or more"),
        (FLOAT, {"shape": (2, 2), "strides": (1,)}, "x: expected 2 strides for shape"),
        (
            FLOAT,
            {"shape": (2,), "strides": (2**62,)},
            "x: expected a storage of less than 2\\^63 bytes",
        ),
        (FLOAT, {"shape": (), "offset": 2**62}, "x: expected a storage of less than 2\\^63 bytes"),
        (FLOAT, {"shape": (2,), "storage_shape": (1,)}, "x: expected a view inside its storage"),
        (FLOAT, {"shape": (0,), "offset": 2, "storage_shape": (1,)}, "x: expected a view inside"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_by_the_name_of_the_tensor(
    dtype: object, spec: dict[str, object], message: str
) -> None:
    with pytest.raises(TensorLayoutError, match=message) as caught:
        TensorSpec(dtype, **spec, name="x")  # type: ignore[arg-type]
    assert caught.value.parameter == "x"
    assert caught.value.aclnn_status is None

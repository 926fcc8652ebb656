"""What callers hold for a tensor: how it travels, and results written to arrays of their own."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.conftest import EVERY_DEVICE
from tests.rows import each

from npucall.dtypes import BY_NUMPY, DTYPES, AnyArray, DType
from npucall.errors import ArgumentMissingError, DTypeError, ShapeError, TensorLayoutError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.tensors import TensorSpec, view
from npucall_client import Client
from npucall_client.calls import arrays

BASE = np.arange(1, 25, dtype=np.float32).reshape(4, 6)

LAYOUTS = {
    "row-major": BASE,
    "column-major": np.asfortranarray(BASE),
    "transposed": BASE.T,
    "rows backwards": BASE[::-1],
    "stretched": np.broadcast_to(BASE[0], (3, 6)),
    "stretched number": np.broadcast_to(np.float32(7), (2, 3)),
    "rank 0": np.array(5, np.float32),
    "a field of records": np.array([(1, 2.5), (3, 4.5)], "i1,f4")["f1"],
    "read-only": np.frombuffer(BASE.tobytes(), np.float32),
}


def received(sent: arrays.Sent) -> AnyArray:
    """What the other end sees."""
    spec = TensorSpec(
        BY_NUMPY[sent.dtype], sent.shape, sent.strides, 0, sent.storage_shape  # type: ignore[arg-type]
    )  # fmt: skip
    assert len(sent.storage) == spec.storage_bytes
    return view(spec, bytes(sent.storage))


@each("layout", LAYOUTS)
def test_an_array_of_any_memory_order_arrives_with_its_values(layout: str) -> None:
    array = LAYOUTS[layout]
    np.testing.assert_array_equal(
        received(arrays.send("x", array, keep_layout=False)), array, strict=True
    )


@each("dtype", DTYPES)
def test_an_array_of_any_type_arrives_bit_by_bit(dtype: DType) -> None:
    array = np.arange(6).astype(dtype.numpy).reshape(2, 3)[:, ::2]
    arrived = received(arrays.send("x", arrays.as_array("x", array), keep_layout=False))
    assert arrived.dtype == dtype.numpy
    assert arrived.tobytes() == array.tobytes()


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1, 2, -1, -3])), max_size=4),
    st.randoms(),
    st.booleans(),
)
def test_slices_in_any_order_of_axes_arrive_with_their_values(
    axes: list[tuple[int, int]], random: Any, keep_layout: bool
) -> None:
    steps = [abs(step) if keep_layout else step for _, step in axes]
    shape = tuple(extent * abs(step) for (extent, _), step in zip(axes, steps, strict=True))
    dense = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    order = random.sample(range(len(axes)), len(axes))
    array = dense[tuple(slice(None, None, step) for step in steps)].transpose(order)
    arrived = received(arrays.send("x", array, keep_layout=keep_layout))
    np.testing.assert_array_equal(arrived, array, strict=True)


@each("layout", ["row-major", "column-major", "transposed", "rank 0"])
def test_dense_memory_travels_without_a_copy(layout: str) -> None:
    sent = arrays.send("x", LAYOUTS[layout], keep_layout=False)
    assert np.shares_memory(np.frombuffer(sent.storage, np.uint8), LAYOUTS[layout])


def test_neither_repeated_elements_nor_gaps_travel_unless_the_layout_is_kept() -> None:
    assert len(arrays.send("x", LAYOUTS["stretched number"], keep_layout=False).storage) == 4
    sliced = BASE[:, ::2]
    assert len(arrays.send("x", sliced, keep_layout=False).storage) == 12 * 4
    assert len(arrays.send("x", sliced, keep_layout=True).storage) == 23 * 4  # to the last one


@each("layout", ["rows backwards", "a field of records"])
def test_a_layout_that_a_spec_cannot_say_is_not_kept(layout: str) -> None:
    with pytest.raises(TensorLayoutError, match=r"x: .* keep_layout=False the client sends"):
        arrays.send("x", LAYOUTS[layout], keep_layout=True)


def test_a_matrix_travels_like_an_array() -> None:
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1, 2], [3, 4]], np.float32)
    arrived = received(arrays.send("x", arrays.as_array("x", matrix), keep_layout=False))
    np.testing.assert_array_equal(arrived, np.asarray(matrix))


@each("dtype", ["f2", "f4", "i8", "c8"])
def test_the_other_byte_order_is_turned(dtype: str) -> None:
    array = np.arange(3).astype(np.dtype(dtype).newbyteorder(">"))
    turned = arrays.as_array("x", array)
    assert turned.dtype in BY_NUMPY
    np.testing.assert_array_equal(turned, array)


class Foreign:
    """What offers itself as an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> AnyArray:
        return BASE


def test_types_of_the_same_bits_numbers_of_numpy_and_what_offers_an_array_are_taken() -> None:
    assert arrays.as_array("x", np.zeros(2, np.longlong)).dtype in BY_NUMPY
    for number in np.float32(2), np.int8(2), np.bool_(True):
        assert arrays.as_array("x", number).shape == ()
    assert arrays.as_array("x", Foreign()) is BASE


@each("value", [1.5, 1, True, [1.0, 2.0], (1.0,), "text", b"bytes", object(), {}])
def test_what_is_no_array_is_a_type_error_that_says_how_to_make_one(value: object) -> None:
    kind = type(value).__name__
    with pytest.raises(TypeError, match=rf"x: expected an array, found {kind}; numpy\.asarray"):
        arrays.as_array("x", value)


@each("dtype", ["O", "U3", "S3", "V8", "M8[s]", "m8[s]", "i4,f4", np.longdouble, np.clongdouble])
def test_elements_that_cannot_travel_are_refused_with_the_types_that_can(dtype: Any) -> None:
    with pytest.raises(DTypeError, match="x: expected a dtype among float32, float16") as caught:
        arrays.as_array("x", np.zeros(2, dtype))
    assert caught.value.parameter == "x"


ONES = np.ones((2, 3), np.float32)
TARGET = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
EXPECTED = -TARGET  # reduction 0 scales nothing: - grad_output * target
GAP = np.float32(99)

VIEWS: dict[str, Any] = {
    "row-major": lambda base: base[0, :6].reshape(2, 3),
    "column-major": lambda base: base[:3, :2].T,
    "every other column": lambda base: base[2:4, :6:2],
    "rows with gaps": lambda base: base[1:3, 2:5],
    "rows backwards": lambda base: base[3:1:-1, :3],
    "all backwards": lambda base: base[3:1:-1, 4::-2],
}


def run(client: Client, out: Any, *, keep_layout: bool = False) -> Any:
    options = client.options(outputs={"out": out}, keep_layout=keep_layout)
    return options.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)


@EVERY_DEVICE
@each("name", VIEWS)
@each("keep_layout", [False, True])
def test_an_output_is_written_in_place_through_its_strides_and_its_gaps_stay(
    client: Client, name: str, keep_layout: bool
) -> None:
    if keep_layout and "backwards" in name:
        return  # a layout that does not travel
    base, expected = np.full((4, 6), GAP), np.full((4, 6), GAP)
    target = VIEWS[name](base)
    assert run(client, target, keep_layout=keep_layout) is target
    VIEWS[name](expected)[...] = EXPECTED
    np.testing.assert_array_equal(base, expected)


@EVERY_DEVICE
@each("keep_layout", [False, True])
def test_an_output_of_rank_0_or_no_elements_is_written(client: Client, keep_layout: bool) -> None:
    for array in np.ones((), np.float32), np.zeros((0, 3), np.float32):
        out = np.zeros_like(array)
        options = client.options(outputs={"out": out}, keep_layout=keep_layout)
        assert options.run(kl_div_backward, array, self=array, target=array) is out
        assert (out == -1).all()


@EVERY_DEVICE
def test_the_output_chooses_its_type_and_may_be_an_input_too(client: Client) -> None:
    short = np.zeros((2, 3), np.float16)
    np.testing.assert_array_equal(run(client, short), EXPECTED.astype(np.float16), strict=True)
    out = TARGET.copy()
    client.options(outputs={"out": out}).run(kl_div_backward, ONES, ONES, out, reduction=0)
    np.testing.assert_array_equal(out, EXPECTED)


READ_ONLY = np.zeros((2, 3), np.float32)
READ_ONLY.flags.writeable = False
OVERLAPPING = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 3), (4, 4))
NO_ARRAY = "out: expected a NumPy array of native byte order"


@each("keep_layout", [False, True])
@each(
    ("out", "kind", "said"),
    [
        (np.zeros((3, 2), np.float32), ShapeError, r"out: expected shape \(2, 3\)"),
        (READ_ONLY, TypeError, NO_ARRAY),
        *((out, TypeError, NO_ARRAY) for out in (np.zeros((2, 3), ">f4"), [[0.0] * 3] * 2, 0.0)),
        (np.float32(0), TypeError, NO_ARRAY),
        (OVERLAPPING, TensorLayoutError, "out: expected an output whose elements do not"),
        (None, ArgumentMissingError, "out"),
    ],
)
def test_an_output_is_never_resized_and_what_cannot_be_written_is_refused(
    client: Client, keep_layout: bool, out: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        run(client, out, keep_layout=keep_layout)
    if isinstance(caught.value, ArgumentMissingError):  # None is a null pointer
        assert (caught.value.parameter, caught.value.aclnn_status) == ("out", 161001)


@EVERY_DEVICE
def test_results_own_writable_memory(client: Client) -> None:
    first = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)
    second = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)
    first[...] = 0
    np.testing.assert_array_equal(second, EXPECTED)

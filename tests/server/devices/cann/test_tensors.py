"""Tensors of any layout: what lies between their elements is neither read nor changed."""

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npucall.declare.parameters import Scalar
from npucall.dtypes import DOUBLE, FLOAT, AnyArray
from npucall.tensors import TensorSpec, view

from .calls import Case, Given, Strided, cat, declared, exp2, installed, l1_of, like, numbers
from .opened import Opened

SENTINEL = np.float32(-12345.0)
ONE = Scalar(DOUBLE, 1.0)
COLUMNS = ((2, 10), 7, 40)
"""Strides, offset and storage of a tensor of (2, 3) that lies by columns, with gaps."""


def strided(values: AnyArray, strides: tuple[int, ...], offset: int, elements: int) -> Strided:
    """Values in a storage whose other elements are sentinels."""
    spec = TensorSpec(FLOAT, values.shape, strides, offset, (elements,))
    storage = np.full(elements, SENTINEL)
    view(spec, memoryview(storage).cast("B"))[...] = values
    return Strided(spec, storage.tobytes())


def written(target: Strided, values: AnyArray) -> AnyArray:
    """The target's storage once values are written into it."""
    storage = np.frombuffer(target.storage, np.float32).copy()
    view(target.spec, memoryview(storage).cast("B"))[...] = values
    return storage


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int]:
    """Strides, offset and storage of a tensor of (2, 3): any order of axes, any gaps."""
    rows_first = draw(st.booleans())
    inner = draw(st.integers(1, 3))
    outer = draw(st.integers(0, 4)) + inner * (3 if rows_first else 2)
    offset = draw(st.integers(0, 40))
    strides = (outer, inner) if rows_first else (inner, outer)
    reach = offset + strides[0] + 2 * strides[1] + 1
    return strides, offset, reach + draw(st.integers(0, 20))


def rsub(device: Opened, answer: AnyArray, self: Any, other: Any, out: Any) -> Case:
    given = {"self": self, "other": other, "alpha": ONE, "out": out}
    return installed(device, "aclnnRsub", answer, **given)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left=layouts(), right=layouts(), out=layouts())
def test_any_layout_of_inputs_and_outputs(device: Opened, left: Any, right: Any, out: Any) -> None:
    first, second = numbers(2, 3), numbers(2, 3, start=100)
    target = strided(np.zeros((2, 3), np.float32), *out)
    answer = written(target, second - first)
    assert device.serves(
        rsub(device, answer, strided(first, *left), strided(second, *right), target)
    )


def empty_target() -> Strided:
    return strided(np.zeros((2, 3), np.float32), *COLUMNS)


def not_sent(device: Opened) -> Iterator[Case]:
    """A strided output whose storage is not sent comes back dense."""
    yield exp2(device, numbers(2, 3), Given(TensorSpec(FLOAT, (2, 3), *COLUMNS[:2], COLUMNS[2:])))  # type: ignore[arg-type]


def dense_and_between_sentinels(device: Opened) -> Iterator[Case]:
    x, zero, target = [numbers(5), numbers(2, 3)], Scalar(DOUBLE, 0.0), empty_target()
    given = {"x": x, "scalars": (zero, zero), "out": [like(x[0]), target]}
    name = "aclnnForeachAddScalarList"
    yield installed(device, name, x[0], written(target, x[1]), **given)


def in_place_between_sentinels(device: Opened) -> Iterator[Case]:
    values = numbers(2, 3, start=-3)
    target = strided(values, *COLUMNS)
    answer = written(target, np.maximum(values, 0))
    yield installed(device, "aclnnInplaceVendorRelu", answer, selfRef=target)


def stretched_by_strides_of_0(device: Opened) -> Iterator[Case]:
    row = Strided(TensorSpec(FLOAT, (4, 3), (0, 1), 1, (4,)), numbers(4).tobytes())
    answer = np.tile(numbers(4)[1:], (4, 1))
    yield rsub(device, -answer, row, np.zeros((4, 3), np.float32), like(answer))


def ranks_0_and_8(device: Opened) -> Iterator[Case]:
    number, nothing = np.array(3, np.float32), np.array(0, np.float32)
    yield rsub(device, nothing, number, number, like(nothing))
    case = l1_of(device, number)
    assert case.call.outputs["grad_input"].shape == ()
    yield case
    yield exp2(device, numbers(1, 2, 1, 2, 1, 2, 1, 2))


def nothing(device: Opened) -> Iterator[Case]:
    """Alone, beside something, and the sum over it."""
    for shape in (0,), (0, 3), (3, 0), (2, 0, 4):
        yield exp2(device, np.zeros(shape, np.float32))
    yield cat(device, numbers(2, 3), np.zeros((0, 3), np.float32), numbers(1, 3, start=50))
    total, none = np.zeros(3, np.float32), np.zeros((0, 3), np.float32)
    given = {"self": none, "dim": (0,), "keepDim": False, "dtype": FLOAT, "out": like(total)}
    yield installed(device, "aclnnReduceNansum", total, **given)


def elements_of_any_size(device: Opened) -> Iterator[Case]:
    for dtype in np.float16, ml_dtypes.bfloat16, np.float64, np.int64, np.bool_:
        values = (np.arange(7) % 2).astype(dtype)
        sums = np.cumsum(values.astype(np.float32))
        given = {"self": values, "dim": 0, "dtype": FLOAT, "out": like(sums)}
        yield installed(device, "aclnnCumsum", sums, **given)


def lengths_that_are_no_multiple_of_anything(device: Opened) -> Iterator[Case]:
    yield cat(device, *(numbers(count) for count in (1, 129, 7, 128)))


def bytes_of_a_larger_buffer(device: Opened) -> Iterator[Case]:
    """They are taken where they lie: what grpc gives is a view of the whole request."""
    case = exp2(device, numbers(5))
    request = memoryview(b"\xff" * 3 + case.storages["self"] + b"\xff" * 5)
    yield case._replace(storages={"self": request[3:-5]})


@pytest.mark.parametrize(
    "cases",
    [not_sent, dense_and_between_sentinels, in_place_between_sentinels, stretched_by_strides_of_0,
     ranks_0_and_8, nothing, elements_of_any_size, lengths_that_are_no_multiple_of_anything,
     bytes_of_a_larger_buffer],
)  # fmt: skip
def test_tensors_are_read_and_written_where_their_elements_are(
    any_way: Opened, cases: Callable[[Opened], Iterator[Case]]
) -> None:
    wrong = [case.call for case in cases(any_way) if not any_way.serves(case)]
    assert wrong == []


def test_a_number_that_overflows_is_infinite(device: Opened) -> None:
    """INFNAN, as IEEE has it, was asked for in time."""
    tensors = {
        "grad_output": np.array([2, 2, 2], np.float16),
        "self": np.zeros(3, np.float16),
        "target": np.array([60000, -60000, 1], np.float16),
    }
    (answer,) = device.answers(declared(device, "aclnnKlDivBackward", reduction=0, **tensors))
    assert np.frombuffer(answer, np.float16).tolist() == [-np.inf, np.inf, -2]

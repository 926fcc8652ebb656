"""Tensors of any layout: what lies between their elements is neither read nor changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npucall.declare.parameters import Scalar
from npucall.dtypes import DOUBLE, FLOAT
from npucall.tensors import TensorSpec, view

from .asked import Given, Strided, declared, installed, like
from .situations import FOUR_PIECES, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.dtypes import AnyArray

    from .opened import Opened

    Open = Callable[..., Opened]

SENTINEL = np.float32(-12345.0)
ONE = Scalar(DOUBLE, 1.0)


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left=layouts(), right=layouts(), out=layouts())
def test_any_layout_of_inputs_and_outputs(device: Opened, left: Any, right: Any, out: Any) -> None:
    first, second = numbers(2, 3), numbers(2, 3, start=100)
    target = strided(np.zeros((2, 3), np.float32), *out)
    asked = installed(
        device.device, "aclnnRsub", written(target, second - first),
        self=strided(first, *left), other=strided(second, *right), alpha=ONE, out=target,
    )  # fmt: skip
    assert device.serves(asked)


@pytest.fixture(params=[0, FOUR_PIECES, 2**20], ids=["waiting", "in pieces", "whole"])
def staging(request: pytest.FixtureRequest, open_device: Open) -> Opened:
    """However tensors are copied."""
    return open_device(staging_limit=request.param)


COLUMNS = ((2, 10), 7, 40)
"""Strides, offset and storage of a tensor of (2, 3) that lies by columns, with gaps."""


def test_a_declared_operator_writes_between_sentinels(staging: Opened) -> None:
    target = strided(np.zeros((2, 3), np.float32), *COLUMNS)
    tensors = {"grad_output": numbers(2, 3), "self": strided(numbers(2, 3), *COLUMNS)}
    asked = declared(
        staging.device, "aclnnL1LossBackward", reduction=2, target=numbers(3), **tensors,
        grad_input=target,
    )  # fmt: skip
    (answer,) = staging.answers(asked)
    assert [answer] == asked.answers
    assert np.count_nonzero(np.frombuffer(answer, np.float32) == SENTINEL) == 40 - 6


def test_a_strided_output_whose_storage_is_not_sent_comes_back_dense(staging: Opened) -> None:
    spec = TensorSpec(FLOAT, (2, 3), *COLUMNS[:2], COLUMNS[2:])
    values = numbers(2, 3)
    asked = installed(staging.device, "aclnnExp2", np.exp2(values), self=values, out=Given(spec))
    assert staging.serves(asked)


def test_a_dense_output_before_one_between_sentinels(staging: Opened) -> None:
    x, zero = [numbers(5), numbers(2, 3)], Scalar(DOUBLE, 0.0)
    target = strided(np.zeros((2, 3), np.float32), *COLUMNS)
    asked = installed(
        staging.device, "aclnnForeachAddScalarList", x[0], written(target, x[1]), x=x,
        scalars=(zero, zero), out=[like(x[0]), target],
    )  # fmt: skip
    assert staging.serves(asked)


def test_a_tensor_is_read_and_written_in_place_between_sentinels(staging: Opened) -> None:
    values = numbers(2, 3, start=-3)
    target = strided(values, *COLUMNS)
    answer = written(target, np.maximum(values, 0))
    assert staging.serves(installed(staging.device, "aclnnInplaceRelu", answer, selfRef=target))


def test_an_input_that_is_stretched_by_strides_of_0(staging: Opened) -> None:
    row = Strided(TensorSpec(FLOAT, (4, 3), (0, 1), 1, (4,)), numbers(4).tobytes())
    answer = np.tile(numbers(4)[1:], (4, 1))
    asked = installed(
        staging.device, "aclnnRsub", -answer, self=row, other=np.zeros((4, 3), np.float32),
        alpha=ONE, out=like(answer),
    )  # fmt: skip
    assert staging.serves(asked)


def test_rank_0(staging: Opened) -> None:
    number, answer = np.array(3, np.float32), np.array(0, np.float32)
    tensors = {"self": number, "other": number, "alpha": ONE, "out": like(answer)}
    assert staging.serves(installed(staging.device, "aclnnRsub", answer, **tensors))
    names = ("grad_output", "self", "target")
    asked = declared(staging.device, "aclnnL1LossBackward", **dict.fromkeys(names, number))
    assert asked.call.outputs["grad_input"].shape == ()
    assert staging.serves(asked)


def test_rank_8(staging: Opened) -> None:
    values = numbers(1, 2, 1, 2, 1, 2, 1, 2)
    asked = installed(staging.device, "aclnnExp2", np.exp2(values), self=values, out=like(values))
    assert staging.serves(asked)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_a_call_of_nothing_answers_nothing(staging: Opened, shape: tuple[int, ...]) -> None:
    nothing = np.zeros(shape, np.float32)
    asked = installed(staging.device, "aclnnExp2", nothing, self=nothing, out=like(nothing))
    assert staging.answers(asked) == [b""]


def test_nothing_beside_something(staging: Opened) -> None:
    parts = [numbers(2, 3), np.zeros((0, 3), np.float32), numbers(1, 3, start=50)]
    whole = np.concatenate(parts)
    asked = installed(staging.device, "aclnnCat", whole, tensors=parts, dim=0, out=like(whole))
    assert staging.serves(asked)


def test_a_sum_over_nothing_is_0(staging: Opened) -> None:
    total = np.zeros(3, np.float32)
    asked = installed(
        staging.device, "aclnnReduceNansum", total, self=np.zeros((0, 3), np.float32), dim=(0,),
        keepDim=False, dtype=FLOAT, out=like(total),
    )  # fmt: skip
    assert staging.serves(asked)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int64, np.bool_])
def test_elements_of_any_size(staging: Opened, dtype: Any) -> None:
    values = (np.arange(7) % 2).astype(dtype)
    sums = np.cumsum(values.astype(np.float32))
    asked = installed(
        staging.device, "aclnnCumsum", sums, self=values, dim=0, dtype=FLOAT, out=like(sums)
    )
    assert staging.serves(asked)


def test_lengths_that_are_no_multiple_of_anything(staging: Opened) -> None:
    parts = [numbers(count) for count in (1, 129, 7, 128)]
    whole = np.concatenate(parts)
    asked = installed(staging.device, "aclnnCat", whole, tensors=parts, dim=0, out=like(whole))
    assert staging.serves(asked)


def test_bytes_of_a_larger_buffer_are_taken_where_they_lie(staging: Opened) -> None:
    """What grpc gives is a view of the whole request."""
    values = numbers(5)
    request = memoryview(b"\xff" * 3 + values.tobytes() + b"\xff" * 5)
    asked = installed(staging.device, "aclnnExp2", np.exp2(values), self=values, out=like(values))
    asked.storages["self"] = request[3:-5]
    assert staging.serves(asked)

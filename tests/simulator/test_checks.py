"""The shapes and types that phase one of some operators checks, by raw ctypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray

    from .caller import Caller

ACCEPTED = (0, "")
PARAM_INVALID = 161002
ONE = np.float32(1)


def tensors(*shapes: tuple[int, ...]) -> list[AnyArray]:
    return [np.zeros(shape, np.float32) for shape in shapes]


def rsub(caller: Caller, *shapes: tuple[int, ...]) -> tuple[int, str]:
    self, other, out = tensors(*shapes)
    return caller.phase_one("aclnnRsub", self, other, ONE, out)


def inplace_add(caller: Caller, *shapes: tuple[int, ...]) -> tuple[int, str]:
    return caller.phase_one("aclnnInplaceAdd", *tensors(*shapes), ONE)


def refused(answer: tuple[int, str], text: str) -> bool:
    return answer[0] == PARAM_INVALID and text in answer[1]


def test_rsub_broadcasts(caller: Caller) -> None:
    assert rsub(caller, (2, 1), (3,), (2, 3)) == ACCEPTED


def test_rsub_refuses_shapes_that_do_not_broadcast(caller: Caller) -> None:
    answer = rsub(caller, (2,), (3,), (3,))
    assert refused(answer, "self and other: shapes [2] and [3] do not broadcast")


def test_rsub_refuses_an_output_of_another_shape(caller: Caller) -> None:
    answer = rsub(caller, (2, 1), (3,), (3, 2))
    assert refused(answer, "out: expected shape [2,3], found [3,2]")


def test_an_extent_of_zero_broadcasts_with_one_only(caller: Caller) -> None:
    assert rsub(caller, (0,), (1,), (0,)) == ACCEPTED
    assert refused(rsub(caller, (0,), (2,), (2,)), "do not broadcast")


def test_inplace_add_does_not_enlarge_its_first_tensor(caller: Caller) -> None:
    assert inplace_add(caller, (2, 3), (3,)) == ACCEPTED
    assert refused(inplace_add(caller, (3,), (2, 3)), "do not broadcast to the first")


def test_maximum_refuses_an_output_of_another_shape(caller: Caller) -> None:
    answer = caller.phase_one("aclnnMaximum", *tensors((2,), (2,), (3,)))
    assert refused(answer, "out: expected shape [2], found [3]")


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((2, 3), (3, 4), (2, 4)), None),
        (((2, 3), (4, 3), (2, 3)), "self and mat2: shapes [2,3] and [4,3] cannot be multiplied"),
        (((2, 3), (3, 4), (4, 2)), "out: expected shape [2,4], found [4,2]"),
        (((3,), (3, 4), (4,)), "self and mat2: shapes [3] and [3,4] are not those of matrices"),
    ],
)
def test_mm_checks_rows_and_columns(
    caller: Caller, shapes: tuple[tuple[int, ...], ...], text: str | None
) -> None:
    answer = caller.phase_one("aclnnMm", *tensors(*shapes), 0)
    assert answer == ACCEPTED if text is None else refused(answer, text)


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        (np.float16, (2,), None),
        (np.float32, (2,), "out: expected dtype 0, found 1"),
        (np.float16, (3,), "out: expected shape [2], found [3]"),
    ],
)
def test_cumsum_checks_type_and_shape_of_its_output(
    caller: Caller, dtype: type[np.generic], shape: tuple[int, ...], text: str | None
) -> None:
    out = np.zeros(shape, np.float16)
    answer = caller.phase_one("aclnnCumsum", *tensors((2,)), 0, np.dtype(dtype), out)
    assert answer == ACCEPTED if text is None else refused(answer, text)


def test_the_custom_operator_refuses_an_output_of_another_type(caller: Caller) -> None:
    out = np.zeros(2, np.float16)
    answer = caller.phase_one("aclnnVendorScale", *tensors((2,)), 2.0, out)
    assert refused(answer, "out: expected dtype 0, found 1")

"""aclnnReduceSum: prototype, values against torch, integers, dimensions, its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BOOL, COMPLEX64, FLOAT, FLOAT16, INT32, UINT16
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.reduce_sum import reduce_sum
from npucall.products import ASCEND_310P, ASCEND_910

from .arithmetic import NEWER, OLDER
from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import BF16, INF, LOCAL, NAN, title
from .subject import WITH_BF16, Subject, every

EMPTY = {"self": {"shape": (0, 3)}}
SHAPES = [{"self": (4, 6)}, {"self": (2, 3, 4, 5)}, {"self": (600, 3)}, {"self": (3, 700)}]


def wrong_dims(*values: tuple[int, ...], attribute: str = "dims") -> list[Fault]:
    """Dimensions that self does not have, or has once."""
    return [Fault({attribute: value}, AttributeValueError, (attribute,)) for value in values]


# The checks, in order [src:reduce-sum-mean]
TABLE = Table(
    reduce_sum,
    {"dims": (0,), "keep_dims": False, "dtype": FLOAT, "out": {"dtype": FLOAT, "shape": (3,)}},
    [
        *null("self", "dims", "out"),
        *dtype(UINT16, "self", "out"),
        Fault({"dtype": UINT16}, DTypeError, ("dtype",)),
        *dtype(FLOAT16, "out"),
        *shape(NINE, "self"),
        *wrong_dims((2,), (-3,), (0, 0), (1, -1), (0, 1, -2)),
        Fault({**EMPTY, "dtype": COMPLEX64, "out": {"dtype": COMPLEX64}}, DTypeError, ("out",)),
        *shape((2,), "out"),
        *shape((3, 1), "out"),
        Fault({"keep_dims": True}, ShapeError, ("out",)),
    ],
)


def torch_says(tensors: dict[str, Any], *, dims: Any, keep_dims: bool = False, **_: Any) -> Any:
    import torch

    return torch.tensor(tensors["self"]).sum(dims, keepdim=keep_dims).numpy()


def sizes(tensors: dict[str, Any], _: Any, **attributes: Any) -> Any:
    return torch_says({"self": np.abs(tensors["self"])}, **attributes)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclIntArray* dims, bool keepDims, aclDataType dtype, "
        "aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=NEWER,
    older=OLDER,
    typed=("self",),
    attributes={"dims": (1,), "keep_dims": False, "dtype": FLOAT},
    follows="dtype",
    torch=torch_says,
    calls=(
        *every(*SHAPES, dims=((), (0,), (-1,), (1, 0)), keep_dims=(False, True)),
        *every({"self": (2, 3, 4, 5)}, dims=((0, 2), (1, 3), (-2, 1), (3, 0, 1))),
        *every({"self": ()}, dims=((), (0,), (-1,)), keep_dims=(False, True)),
        *every({"self": (2, 1, 3)}, dims=((1,),), keep_dims=(False, True)),
    ),
    noise=sizes,
)


def total(array: Any, dims: Any = (), kind: Any = None, *, keep_dims: bool = False) -> Any:
    return LOCAL.run(reduce_sum, array, dims, keep_dims, array.dtype if kind is None else kind)


def test_all_elements_are_summed_in_float_unless_it_is_told() -> None:
    found = LOCAL.run(reduce_sum, np.arange(6).reshape(2, 3))
    assert (found.dtype, found.shape, found.item()) == (np.float32, (), 15)


def test_integers_wrap_around_and_lose_nothing() -> None:
    assert total(np.array([100, 100, 56], np.int8)) == 0
    assert total(np.array([2**62, 2**62 - 1, 2**62])) == 2**62 + 2**63 - 1 - 2**64
    assert total(np.array([250, 10], np.uint8), kind=np.int64) == 260


def test_of_truth_values_the_sum_is_whether_any_is_true() -> None:
    table = np.array([[0, 0, 0], [0, 2, -2], [0, 300, 256]], np.int32)
    assert total(table, (1,), np.bool_).tolist() == [False, True, True]
    assert total(table, (0,), np.bool_).tolist() == [False, True, True]
    assert total(np.array([True, True, False]), kind=np.int32) == 2


def test_the_input_is_converted_first() -> None:
    assert total(np.array([0.75, 1.5], np.float32), kind=np.int32) == 1
    assert total(np.array([2049, -2048]), kind=np.float16) == 0  # 2049 is 2048 there


@pytest.mark.parametrize("kind", [np.float16, BF16], ids=title)
def test_nothing_is_rounded_before_the_sum(kind: Any) -> None:
    few, many = np.array([1, 2.0**-9, 2.0**-9], kind), np.full(4097, 0.5, kind)
    assert total(few) == kind(1 + 2.0**-8)
    assert total(many) == kind(2048.5)


def test_sums_beyond_the_dtype_are_infinite_and_partial_ones_are_not() -> None:
    assert total(np.array([60000, 60000, -60000], np.float16)) == 60000
    assert total(np.array([60000, 60000], np.float16)) == INF
    assert total(np.array([3e38, 3e38], np.float32)) == INF


@pytest.mark.parametrize("shape", [(100_003,), (7, 20_011), (20_011, 7), (300, 5, 70)], ids=str)
def test_long_sums_are_as_good_as_in_float64(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(3).random(shape, np.float32)
    for dims in [(), *((dim,) for dim in range(len(shape)))]:
        exact = array.sum(dims or None, np.float64)
        np.testing.assert_allclose(total(array, dims), exact, rtol=2**-22)


def test_special_numbers_stay_with_their_sums() -> None:
    table = np.array([[1, INF, NAN], [2, 3, 4], [INF, -INF, 1]], np.float32)
    np.testing.assert_array_equal(total(table, (1,)), [NAN, 9, NAN])


@pytest.mark.filterwarnings("error")
def test_complex_numbers_are_summed_as_such_or_their_real_parts() -> None:
    assert total(np.array([1 + 2j, 3 - 5j], np.complex64), kind=np.float16) == 4
    assert total(np.array([1 + 2j, 3 - 5j], np.complex64)) == 4 - 3j


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)], ids=str)
def test_of_nothing_the_sum_is_0_in_any_shape(shape: tuple[int, ...]) -> None:
    found = total(np.zeros(shape, np.float32), (0,))
    assert (found.shape, found.tolist()) == (shape[1:], np.zeros(shape[1:]).tolist())
    out = np.full((4, 2), 7, np.int32)
    LOCAL.options(outputs={"out": out}).run(
        reduce_sum, np.zeros(shape, np.float32), (0,), dtype=np.int32
    )
    assert not out.any()


def test_one_element_fits_any_shape_of_one() -> None:
    for given in ((), (1,), (1, 1, 1)):
        changes = {"dims": (), "out": {"shape": given}}
        assert TABLE.refusal(Fault(changes, ShapeError, ())) is None
    for kind in (BOOL, INT32):
        fault = Fault({"dtype": kind, "out": {"dtype": kind}}, DTypeError, ())
        assert TABLE.refusal(fault) is None

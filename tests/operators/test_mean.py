"""aclnnMean: prototype, values against torch, integers, dimensions, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
    UINT16,
)
from npucall.errors import DTypeError, ShapeError
from npucall.operators.mean import mean
from npucall.products import ASCEND_310P, ASCEND_910

from .arithmetic import INTEGERS, uncastable
from .faults import NINE, Fault, Table, dtypes, null, shape
from .gradients import BF16, INF, LOCAL, NAN, title
from .subject import THREE, TWO, WITH_BF16, Subject, every
from .test_reduce_sum import EMPTY, SHAPES, wrong_dims

# The checks, in order [src:reduce-sum-mean]
TABLE = Table(
    mean,
    {"dim": (0,), "keep_dim": False, "dtype": FLOAT, "out": {"dtype": FLOAT, "shape": (3,)}},
    [
        *null("self", "dim", "out"),
        *dtypes(UINT16, BOOL, of=("self",)),
        *(Fault({"dtype": each}, DTypeError, ("dtype",)) for each in (UINT16, BOOL)),
        *dtypes(UINT16, BOOL, of=("out",)),
        Fault({"dtype": INT32, "out": {"dtype": INT32}}, DTypeError, ("dtype",)),
        Fault({"self": {"dtype": COMPLEX64}}, DTypeError, ("dtype",)),
        *uncastable(INT32),
        *wrong_dims((9,), (-10,), (0, 0), (1, 0, 1), attribute="dim"),
        *shape(NINE, "self", "out"),
        Fault({**EMPTY, "out": {"dtype": COMPLEX64}}, DTypeError, ("out",)),
        *shape((2,), "out"),
        *shape((3, 1), "out"),
        Fault({"keep_dim": True}, ShapeError, ("out",)),
        Fault({"dim": (), "out": {"shape": (1,)}}, ShapeError, ("out",)),
    ],
)


def torch_says(tensors: dict[str, Any], *, dim: Any, keep_dim: bool = False, **_: Any) -> Any:
    import torch

    return torch.tensor(tensors["self"]).mean(dim, keepdim=keep_dim).numpy()


def sizes(tensors: dict[str, Any], _: Any, **attributes: Any) -> Any:
    return torch_says({"self": np.abs(tensors["self"])}, **attributes)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclIntArray* dim, bool keepDim, aclDataType dtype, "
        "aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE {INTEGERS}",
    older=f"{TWO} DOUBLE {INTEGERS}",
    typed=("self",),
    attributes={"dim": (1,), "keep_dim": False, "dtype": FLOAT},
    follows="dtype",
    torch=torch_says,
    calls=(
        *every(*SHAPES, dim=((), (0,), (-1,), (1, 0)), keep_dim=(False, True)),
        *every({"self": (2, 3, 4, 5)}, dim=((0, 2), (1, 3), (-2, 1), (3, 0, 1))),
        *every({"self": ()}, dim=((), (0,), (-1,)), keep_dim=(False, True)),
        *every({"self": (2, 1, 3)}, dim=((1,),), keep_dim=(False, True)),
    ),
    noise=sizes,
)


def average(array: Any, dim: Any = (), kind: Any = None, out: Any = None) -> Any:
    client = LOCAL if out is None else LOCAL.options(outputs={"out": out})
    return client.run(mean, array, dim, dtype=array.dtype if kind is None else kind)


def test_the_mean_of_all_is_taken_in_float_unless_it_is_told() -> None:
    found = LOCAL.run(mean, np.arange(6).reshape(2, 3))
    assert (found.dtype, found.shape, found.item()) == (np.float32, (), 2.5)


def test_of_integers_the_fraction_is_dropped_and_no_more() -> None:
    for count in (3, 49, 93, 1000, 99_991):
        for whole in (-7, -1, 0, 1, 5, 2**20):
            exact = np.full(count, whole)
            assert average(exact) == whole
            exact[0] += count - 1 if whole >= 0 else 1 - count
            assert average(exact) == whole


def test_the_input_is_converted_first_and_the_result_last() -> None:
    assert average(np.array([1, 2]), kind=np.float16).dtype == np.float16
    found = average(np.array([1, 2], np.float16), out=np.empty((), np.float64))
    assert found == 1.5
    third = average(np.array([1, 0, 0], np.float16), out=np.empty((), np.float32))
    assert third == np.float32(np.float16(1 / 3))


@pytest.mark.parametrize("kind", [np.float16, BF16], ids=title)
def test_a_sum_beyond_the_dtype_has_a_mean_within(kind: Any) -> None:
    largest = kind(60000) if kind is np.float16 else kind(1e35)
    assert average(np.full(1000, largest)) == largest


def test_means_of_doubles_and_complex_numbers_have_all_their_bits() -> None:
    random = np.random.default_rng(4).random(1000)
    np.testing.assert_allclose(average(random), random.mean(), rtol=1e-15)
    found = average(random + 2j * random)
    np.testing.assert_allclose(found, random.mean() * (1 + 2j), rtol=1e-15)
    assert average(np.array([1 + 2j, 3j], np.complex64)) == np.complex64(0.5 + 2.5j)


def test_special_numbers_stay_with_their_means() -> None:
    table = np.array([[1, INF, NAN], [2, 3, 4], [1, -INF, 1]], np.float32)
    np.testing.assert_array_equal(average(table, (1,)), [NAN, 3, -INF])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)], ids=str)
def test_of_nothing_the_mean_is_nan_and_of_integers_0(shape: tuple[int, ...]) -> None:
    found = average(np.zeros(shape, np.float32), (0,))
    np.testing.assert_array_equal(found, np.full(shape[1:], NAN))
    assert not average(np.zeros(shape, np.int32), (0,)).any()


@pytest.mark.parametrize(
    ("self", "asked", "out", "passes"),
    [
        (INT64, FLOAT16, DOUBLE, True),
        (FLOAT, FLOAT16, FLOAT, True),
        (FLOAT, COMPLEX64, COMPLEX128, True),
        (INT32, INT64, FLOAT16, True),
        (INT64, INT32, INT32, True),
        (COMPLEX64, COMPLEX64, FLOAT, False),
        (FLOAT, COMPLEX64, FLOAT, False),
    ],
    ids=str,
)
def test_self_is_cast_to_dtype_and_that_to_the_output(
    self: Any, asked: Any, out: Any, passes: bool
) -> None:
    changes = {"self": {"dtype": self}, "dtype": asked, "out": {"dtype": out}}
    fault = Fault(changes, DTypeError, ("out",))
    assert TABLE.refusal(fault) == (None if passes else fault.answer)

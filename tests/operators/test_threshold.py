"""aclnnThreshold: prototype, values, numbers in the dtype of self, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, INT32, INT64, UINT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.threshold import threshold
from npucall.products import ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every, exactly, steps

NUMBERS = ("threshold", "value")
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8)
# The checks, in order [src:threshold]; what is said of both numbers is the service's
TABLE = Table(
    threshold,
    {"threshold": Scalar(DOUBLE, 0.5), "value": Scalar(DOUBLE, 7.0)},
    [
        *null("self", "out", *NUMBERS),
        *dtype(DOUBLE, "self"),
        *dtype(UINT16, "self"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *shape(NINE, "self"),
        *shape((3, 2), "self"),
        Fault({"out": {"shape": (1, 3)}}, ShapeError, ("self",)),
        *(Fault({name: Scalar(COMPLEX64, 1)}, DTypeError, (name,)) for name in NUMBERS),
    ],
)
# self, threshold, value, result
CELLS = [
    (0.25, 0.25, 7.0, 7.0),  # the threshold itself is replaced
    (0.2578125, 0.25, 7.0, 0.2578125),
    (0.0, -0.0, 7.0, 7.0),
    (-3.0, -3.5, 7.0, -3.0),
    (NAN, 0.25, 7.0, NAN),
    (NAN, 0.0, 0.0, NAN),
    (INF, 0.25, 7.0, INF),
    (-INF, 0.25, 7.0, 7.0),
    (5.0, INF, -INF, -INF),
    (5.0, -INF, 7.0, 5.0),
    (-INF, -INF, 7.0, 7.0),
    (5.0, NAN, 7.0, 5.0),  # nothing is less
    (0.0, 0.25, NAN, NAN),
    (-1.0, 0.0, 0.0, 0.0),  # ReLU
    (1.5, 0.0, 0.0, 1.5),
    (INF, 0.0, 0.0, INF),
    (-INF, -2.0, -2.0, -2.0),
    (3.0, INF, INF, INF),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    ("const aclTensor* self, const aclScalar* threshold, const aclScalar* value, aclTensor* out"),
    documented=(*WITH_BF16, ASCEND_910),
    newer=f"{THREE} INT8 INT16 INT32 INT64 UINT8",
    older=f"{TWO} INT8 INT16 INT32 INT64 UINT8",
    attributes={"threshold": 0.25, "value": 7.0},
    values={"self": steps(255)},
    cells=Cells("self threshold value", CELLS),
    torch=aten_of(threshold, "threshold"),
    calls=every(threshold=(0.25, 0.0, -1.5), value=(0.0, -1.5, 7.0)),
    noise=exactly,
    casts=(*FLOATS, np.float64, np.complex64),
)


@pytest.mark.torch
@pytest.mark.parametrize("kind", INTEGERS, ids=title)
@pytest.mark.parametrize("numbers", [(2, 7), (2.5, 7.75), (2, 2), (np.float32(4.9), 1)], ids=str)
def test_integers_are_torchs(kind: Any, numbers: tuple[Any, Any]) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([0, 1, 2, 3, 4, 5, 100, 101], kind)
    found = LOCAL.run(threshold, x, *numbers)
    assert found.dtype == kind
    expected = torch.threshold(torch.tensor(x), *(int(number) for number in numbers))
    np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("beyond", [2**24, 2**53, 2**62])
def test_int64_is_exact_in_its_numbers_too(beyond: int) -> None:
    x = np.array([beyond - 1, beyond, beyond + 1, beyond + 2])
    found = LOCAL.run(threshold, x, beyond + 1, -beyond - 1)
    assert found.tolist() == [-beyond - 1, -beyond - 1, -beyond - 1, beyond + 2]
    assert LOCAL.run(threshold, x, beyond + 1, beyond + 1).tolist() == [
        *[beyond + 1] * 3,
        beyond + 2,
    ]


def test_int32_is_exact_beyond_2_to_the_24() -> None:
    x = np.array([2**24, 2**24 + 1, 2**31 - 1], np.int32)
    found = LOCAL.run(threshold, x, 2**24, -(2**24) - 1)
    assert found.tolist() == [-(2**24) - 1, 2**24 + 1, 2**31 - 1]


@pytest.mark.parametrize(("given", "of_negative"), [(-0.5, 9), (-1.0, 9), (-1.5, 9), (-2, -1)])
def test_the_threshold_of_integers_loses_its_fraction(given: float, of_negative: int) -> None:
    x = np.array([-1, 0, 1], np.int32)
    found = LOCAL.run(threshold, x, given, 9)  # -0.5 becomes 0, -1.5 becomes -1
    assert found.tolist() == [of_negative, 9 if given == -0.5 else 0, 1]


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_the_numbers_count_in_the_dtype_of_self(kind: Any) -> None:
    tenth = np.array([0.1], kind)
    found = LOCAL.run(threshold, tenth, 0.1, 0.7)  # as float64 one of them is less
    np.testing.assert_array_equal(found, np.array([0.7], kind))


def test_an_integer_that_does_not_fit_wraps_as_in_c() -> None:
    x = np.array([0, 100], np.int8)
    assert LOCAL.run(threshold, x, Scalar(INT64, 256 + 5), Scalar(INT64, 300)).tolist() == [44, 100]


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float32, np.float64, np.complex64])
def test_the_output_may_have_what_self_can_be_cast_to(kind: Any) -> None:
    x = np.array([1, 5], np.int8)
    found = LOCAL.options(outputs={"out": np.empty(2, kind)}).run(threshold, x, 2, -7)
    np.testing.assert_array_equal(found, np.array([-7, 5], kind))


@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend950PR_9589"])
def test_the_output_is_checked_on_ascend_950_too(soc: str) -> None:
    fault = Fault({"out": {"dtype": INT32}}, DTypeError, ("out",))
    assert TABLE.refusal(fault, soc=soc) == fault.answer


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none(soc: str) -> None:
    fault = Fault({"self": {"dtype": BF16}}, DTypeError, ("self",))
    assert TABLE.refusal(fault, soc=soc) == fault.answer

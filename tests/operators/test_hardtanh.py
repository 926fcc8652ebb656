"""aclnnHardtanh: prototype, values, ends in the dtype of self, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    UINT16,
)
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.operators.hardtanh import hardtanh
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every, exactly, steps

ENDS = ("clip_value_min", "clip_value_max")


def ends(low: Any, high: Any) -> dict[str, Any]:
    return dict(zip(ENDS, (low, high), strict=True))


# The checks, in order [src:hardtanh]
TABLE = Table(
    hardtanh,
    ends(Scalar(DOUBLE, -1.0), Scalar(DOUBLE, 1.0)),
    [
        *null("self", *ENDS, "out"),
        *dtype(UINT16, "self"),
        *dtype(BOOL, "self"),
        *(
            Fault({name: Scalar(kind, 1)}, DTypeError, (name,))
            for name in ENDS
            for kind in (BOOL, COMPLEX64)
        ),
        Fault({"out": {"dtype": FLOAT16}}, DTypeError, ("self", "out")),
        Fault({"self": {"dtype": DOUBLE}}, DTypeError, ("self", "out")),
        Fault({"out": {"dtype": BOOL}}, DTypeError, ("self", "out")),
        *shape(NINE, "self"),
        *shape((3, 2), "self"),
        Fault({"out": {"shape": (1, 3)}}, ShapeError, ("self",)),
        Fault({"clip_value_min": Scalar(DOUBLE, 1.5)}, AttributeValueError, ENDS),
        Fault({"clip_value_max": Scalar(FLOAT, -INF)}, AttributeValueError, ENDS),
    ],
)
MORE = "DOUBLE INT8 INT16 INT32 INT64 UINT8"
# self, clip_value_min, clip_value_max, result
CELLS = [
    (0.5, -1.0, 1.0, 0.5),
    (-2.0, -1.0, 1.0, -1.0),
    (2.0, -1.0, 1.0, 1.0),
    (1.0, -1.0, 1.0, 1.0),
    (-3.0, 0.0, 6.0, 0.0),
    (INF, -1.0, 1.0, 1.0),
    (-INF, -1.0, 1.0, -1.0),
    (INF, -INF, INF, INF),
    (5.0, -INF, 1.0, 1.0),
    (5.0, 2.0, 2.0, 2.0),
    (NAN, -1.0, 1.0, NAN),
    (0.5, NAN, 1.0, NAN),
    (0.5, -1.0, NAN, NAN),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclScalar* clipValueMin, const aclScalar* clipValueMax, "
        "aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} {MORE}",
    older=f"{TWO} {MORE}",
    attributes=ends(-1.0, 1.0),
    values={"self": steps(255)},
    cells=Cells(" ".join(["self", *ENDS]), CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(hardtanh, "hardtanh"),
    calls=(
        *every(clip_value_min=(-1.0, 0.0), clip_value_max=(1.0, 6.0)),
        *every(clip_value_min=(-2.5,), clip_value_max=(-2.5,)),
    ),
    noise=exactly,
)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_the_ends_of_integers_lose_their_fraction(kind: Any) -> None:
    x = np.array([-9, -3, -2, -1, 0, 4, 5, 9], kind)
    found = LOCAL.run(hardtanh, x, -2.75, 4.75)
    assert found.dtype == kind
    assert found.tolist() == [-2, -2, -2, -1, 0, 4, 4, 4]


def test_uint8_is_clamped_as_what_it_is() -> None:
    assert LOCAL.run(hardtanh, np.array([0, 5, 255], np.uint8), 2, 250).tolist() == [2, 5, 250]


@pytest.mark.parametrize("beyond", [2**24, 2**53, 2**62])
def test_int64_is_exact_in_its_ends_too(beyond: int) -> None:
    x = np.array([-(2**63), beyond, beyond + 1, beyond + 2, beyond + 3, 2**63 - 1])
    found = LOCAL.run(hardtanh, x, beyond + 1, beyond + 2)
    assert found.tolist() == [beyond + n for n in (1, 1, 1, 2, 2, 2)]


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_the_ends_count_in_the_dtype_of_self(kind: Any) -> None:
    found = LOCAL.run(hardtanh, np.array([-1, 1], kind), -0.1, 0.1)
    np.testing.assert_array_equal(found, np.array([-0.1, 0.1], kind))


def test_double_is_clamped_in_double() -> None:
    assert LOCAL.run(hardtanh, np.array([1.0]), 0.0, 0.1) == [0.1]


@pytest.mark.parametrize(
    ("low", "high", "refused"),
    [
        (Scalar(DOUBLE, 0.5), Scalar(DOUBLE, 0.25), True),
        (Scalar(DOUBLE, 0.5), Scalar(INT32, 0), True),
        (Scalar(DOUBLE, -0.5), Scalar(INT32, 0), False),
        (Scalar(INT32, 0), Scalar(DOUBLE, -0.5), False),  # as integers both are 0
        (Scalar(INT32, 0), Scalar(DOUBLE, -1.0), True),
        (Scalar(INT8, 3), Scalar(FLOAT, 3.5), False),
        (Scalar(INT8, 4), Scalar(FLOAT, 3.5), True),
        (Scalar(INT64, 2**53 + 1), Scalar(INT64, 2**53), True),
        (Scalar(INT64, 2), Scalar(FLOAT, INF), False),
        (Scalar(INT64, 2), Scalar(FLOAT, -INF), True),
        (Scalar(INT64, 2), Scalar(FLOAT, NAN), False),
        (Scalar(DOUBLE, NAN), Scalar(INT32, 0), False),
        (Scalar(DOUBLE, 1.0), Scalar(DOUBLE, 1.0), False),
    ],
    ids=str,
)
def test_the_lower_end_may_not_be_above_the_upper_one(
    low: Scalar, high: Scalar, refused: bool
) -> None:
    fault = Fault(ends(low, high), AttributeValueError, ENDS)
    assert TABLE.refusal(fault) == (fault.answer if refused else None)


def test_ends_out_of_order_that_pass_as_integers_give_the_upper_one() -> None:
    x = np.array([-3, -0.25, 2], np.float32)
    found = LOCAL.run(hardtanh, x, 0, -0.5)
    np.testing.assert_array_equal(found, [-0.5] * 3)


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none(soc: str) -> None:
    for name, change in (("self", {"dtype": BF16}), *((end, Scalar(BF16, 1)) for end in ENDS)):
        fault = Fault({name: change}, DTypeError, (name,))
        assert TABLE.refusal(fault, soc=soc) == fault.answer

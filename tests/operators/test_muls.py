"""aclnnMuls: prototype, the product's dtype, the number's rounding, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    UINT16,
    DType,
)
from npucall.errors import DTypeError
from npucall.operators.muls import muls
from npucall.products import ASCEND_310P, ASCEND_910

from .arithmetic import NEWER, OLDER, uncastable
from .arrangements import ASCEND_910 as OLD
from .faults import Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import WITH_BF16, Cells, Subject, every, of_one_shape

# The checks, in order [src:mul]
TABLE = Table(
    muls,
    {"other": Scalar(BOOL, value=True)},
    [
        *null("self", "other", "out"),
        *dtype(UINT16, "self", "out"),
        *uncastable(INT32, BOOL),
        Fault({"other": Scalar(COMPLEX64, 2)}, DTypeError, ("out",)),
        Fault(
            {"other": Scalar(DOUBLE, 2.0), "self": {"dtype": INT32}, "out": {"dtype": INT32}},
            DTypeError,
            ("out",),
        ),
        *shape((3, 2), "out"),
    ],
)
WITHOUT_BF16 = Table(
    muls,
    TABLE.attributes,
    [Fault({"self": {"dtype": INT32}, "other": Scalar(BF16, 2.0)}, DTypeError, ("self", "other"))],
    OLD,
)
# self, other, product
CELLS = [
    (3.0, -2.0, -6.0),
    (INF, -2.0, -INF),
    (INF, 0.0, NAN),
    (NAN, 0.0, NAN),
    (1.0, NAN, NAN),
    (-2.0, INF, -INF),
]


def torch_says(tensors: dict[str, Any], *, other: float) -> Any:
    return tensors["self"] * np.float64(np.float32(other))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclScalar* other, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=NEWER,
    older=OLDER,
    typed=("self", "out"),
    tables=(WITHOUT_BF16,),
    attributes={"other": 0.75},
    cells=Cells("self other", CELLS),
    torch=torch_says,
    calls=every(*of_one_shape("self", (12, 17), (), (2, 1, 3)), other=(0.75, -2.5)),
    casts=(*FLOATS, np.float64, np.complex64),
)


def product(self: DType, other: Any, out: DType | None = None) -> DType:
    """The dtype that comes out, of an output that is given the one that it was rounded to."""
    client = LOCAL
    if out is not None:
        client = LOCAL.options(outputs={"out": np.empty(2, out.numpy)})
    plan = client.plan(muls, np.ones(2, self.numpy), other)
    kernel = plan.kernel_dtype
    assert kernel is not None
    return kernel


@pytest.mark.parametrize(
    ("self", "other", "expected"),
    [
        (FLOAT, Scalar(DOUBLE, 2.0), FLOAT),
        (FLOAT16, Scalar(DOUBLE, 2.0), FLOAT16),
        (BF16, Scalar(FLOAT, 2.0), BF16),
        (BF16, Scalar(FLOAT16, 2.0), BF16),
        (INT8, Scalar(INT64, 2), INT8),
        (INT8, Scalar(BOOL, value=True), INT8),
        (BOOL, Scalar(INT8, 2), INT8),
        (BOOL, Scalar(BOOL, value=True), BOOL),
        (INT32, Scalar(FLOAT16, 2.0), FLOAT16),
        (INT32, Scalar(FLOAT, 2.0), FLOAT),
        (INT32, Scalar(DOUBLE, 2.0), DOUBLE),
        (FLOAT, Scalar(COMPLEX64, 2), COMPLEX64),
        (COMPLEX64, Scalar(COMPLEX128, 2), COMPLEX64),
    ],
    ids=str,
)
def test_the_product_has_the_dtype_of_the_tensor_unless_the_number_is_of_another_kind(
    self: DType, other: Scalar, expected: DType
) -> None:
    assert product(self, other) is expected


def test_a_double_number_beside_an_output_of_float_is_a_float() -> None:
    assert product(INT32, Scalar(DOUBLE, 2.0), FLOAT) is FLOAT
    assert product(INT32, Scalar(DOUBLE, 2.0), FLOAT16) is DOUBLE


def test_integers_wrap_around_and_the_number_is_converted_to_theirs() -> None:
    found = LOCAL.run(muls, np.array([64, -128, 5], np.int8), 258)  # which is 2
    assert (found.dtype, found.tolist()) == (np.int8, [-128, 0, 10])
    assert LOCAL.run(muls, np.array([True, False]), 3).tolist() == [3, 0]
    large = LOCAL.run(muls, np.array([2**62 + 1]), -1)
    assert large.tolist() == [-(2**62) - 1]


@pytest.mark.parametrize("kind", [np.float16, BF16.numpy.type], ids=str)
def test_beside_a_short_float_the_number_is_rounded_to_float_alone(kind: Any) -> None:
    x = np.array([3], kind)
    expected = (x.astype(np.float32) * np.float32(1.0009)).astype(kind)
    assert LOCAL.run(muls, x, 1.0009).tolist() == expected.tolist()
    thousand = np.array([1000], kind)
    found = LOCAL.run(muls, thousand, 1 + 2.0**-12)
    wide = LOCAL.options(outputs={"out": np.empty(1, np.float32)})
    assert wide.run(muls, thousand, 1 + 2.0**-12).tolist() == found.astype(np.float32).tolist()


def test_beside_a_double_the_number_keeps_all_its_bits() -> None:
    assert LOCAL.run(muls, np.ones(1), 0.1).tolist() == [0.1]
    single = LOCAL.run(muls, np.ones(1, np.float32), 0.1)
    assert single.tolist() == [float(np.float32(0.1))]


def test_no_dimension_is_too_many() -> None:
    nine = {name: {"shape": (1,) * 9} for name in ("self", "out")}
    assert TABLE.refusal(Fault(nine, DTypeError, ())) is None

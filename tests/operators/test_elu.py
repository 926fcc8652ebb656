"""aclnnElu: prototype, values, numbers that are not finite, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, COMPLEX128, DOUBLE, DTYPES, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.elu import elu
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every

NUMBERS = ("alpha", "scale", "input_scale")
# The checks, in order [src:elu]
TABLE = Table(
    elu,
    dict.fromkeys(NUMBERS, Scalar(DOUBLE, 1.0)),
    [
        *null("self", *NUMBERS, "out"),
        *dtype(INT32, "self"),
        *(
            Fault({name: Scalar(COMPLEX64, 1)}, DTypeError, (name,))
            for name in ("scale", "alpha", "input_scale")
        ),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *shape((3, 2), "out"),
        *shape((1, 3), "out"),
        Fault({"self": {"shape": NINE}, "out": {"shape": NINE}}, ShapeError, ("self",)),
    ],
)
# self, alpha, scale, input_scale, result
CELLS = [
    (2.0, 1.5, 3.0, 0.25, 6.0),
    (0.0, 1.5, 3.0, 0.25, 0.0),
    (-0.0, 1.5, 3.0, 0.25, 0.0),
    (-INF, 1.5, 3.0, 0.25, -4.5),
    (-1000.0, 1.5, 3.0, 0.25, -4.5),
    (INF, 1.5, 3.0, 0.25, INF),
    (NAN, 1.5, 3.0, 0.25, NAN),
    (-1.0, 0.0, 3.0, 0.25, 0.0),
    (-INF, 1.5, 3.0, -0.25, INF),
    (-INF, 1.5, 3.0, 0.0, NAN),
    (-2.0, 1.5, 3.0, 0.0, 0.0),
    (-INF, 1.5, -2.0, 1.0, 3.0),
    (2.0, 1.5, INF, 1.0, INF),
    (-INF, 1.5, INF, 1.0, -INF),
    (0.0, 1.5, INF, 1.0, NAN),
    (-1.0, 1.5, NAN, 1.0, NAN),
    # An alpha or input_scale that is not finite: -alpha * scale from 0 down.
    (2.0, INF, 3.0, 0.25, 6.0),
    (-1.0, INF, 3.0, 0.25, -INF),
    (0.0, INF, 3.0, 0.25, -INF),
    (-1.0, -INF, 3.0, 0.25, INF),
    (-1.0, NAN, 3.0, 0.25, NAN),
    (2.0, NAN, 3.0, 0.25, 6.0),
    (-1.0, 1.5, 3.0, INF, -4.5),
    (-1.0, 1.5, 3.0, -INF, -4.5),
    (0.0, 1.5, 3.0, -INF, -4.5),
    (-0.0, 1.5, 3.0, NAN, -4.5),
    (2.0, 1.5, 3.0, NAN, 6.0),
    (NAN, 1.5, 3.0, INF, NAN),
    (INF, 0.0, 0.5, INF, INF),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* self, const aclScalar* alpha, const aclScalar* scale, "
        "const aclScalar* inputScale, aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    attributes=dict.fromkeys(NUMBERS, 1.0),
    cells=Cells("self alpha scale input_scale", CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(elu, "elu"),
    calls=(
        *every(alpha=(1.0, 1.5, -0.5), scale=(1.0, 0.75, -2.0), input_scale=(1.0, 0.5)),
        *every(alpha=(1.5,), scale=(2.0,), input_scale=(-0.25, 0.0)),
    ),
    casts=(*FLOATS, np.float64, np.complex64),
)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_used_as_a_float32(name: str) -> None:
    numbers = dict.fromkeys(NUMBERS, 1.0) | {name: 0.1}
    rounded = {n: float(np.float32(value)) for n, value in numbers.items()}
    x = np.array([-1.0, 1.0])
    np.testing.assert_array_equal(LOCAL.run(elu, x, **numbers), LOCAL.run(elu, x, **rounded))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_may_have_every_dtype_but_a_complex_one(name: str) -> None:
    faults = {kind: Fault({name: Scalar(kind, 1)}, DTypeError, (name,)) for kind in DTYPES}
    refused = {kind for kind, fault in faults.items() if TABLE.refusal(fault)}
    assert refused == {COMPLEX64, COMPLEX128}


def test_near_0_nothing_is_lost() -> None:
    x = -np.logspace(-30, 0, 200).astype(np.float32)
    found = LOCAL.run(elu, x, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(found, np.expm1(x.astype(np.float64)), rtol=2**-22)


@pytest.mark.parametrize("x", [-2.0, 0.5, 3.0])
def test_factors_whose_product_is_beyond_float32_spoil_no_positive_number(x: float) -> None:
    found = LOCAL.run(elu, np.array([x], np.float32), 1e20, 1e20, 1.0)
    expected = -INF if x < 0 else np.float32(x) * np.float32(1e20)
    np.testing.assert_array_equal(found, [expected])


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_bf16_is_refused_where_the_product_has_none(soc: str) -> None:
    fault: Any = Fault({"self": {"dtype": BF16}}, DTypeError, ("self",))
    assert TABLE.refusal(fault, soc=soc) == fault.answer

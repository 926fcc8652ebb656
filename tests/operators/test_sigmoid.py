"""aclnnSigmoid: prototype, values, integers, complex numbers, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, BOOL, COMPLEX64, FLOAT, FLOAT16, INT32, UINT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.sigmoid import sigmoid
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import BF16 as BFLOAT16
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of

# The checks, in order [src:sigmoid]; the last is the service's
TABLE = Table(
    sigmoid,
    {},
    [
        *null("self", "out"),
        *dtype(UINT16, "self"),
        *dtype(UINT16, "out"),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        *shape((3, 2), "self"),
        Fault({"out": {"shape": (1, 3)}}, ShapeError, ("self",)),
        Fault({"self": {"shape": NINE}, "out": {"shape": NINE}}, ShapeError, ("self",)),
        Fault({"self": {"dtype": COMPLEX64}}, DTypeError, ("out",)),
    ],
)
WITHOUT_BF16 = Table(
    sigmoid, {}, [*dtype(UINT16, "out"), *dtype(BF16, "self", "out")], soc="Ascend910A"
)
MORE = "DOUBLE COMPLEX64 COMPLEX128"
# self, result
CELLS = [
    (0.0, 0.5),
    (-0.0, 0.5),
    (INF, 1.0),
    (-INF, 0.0),
    (100.0, 1.0),
    (-10000.0, 0.0),
    (10000.0, 1.0),
    (NAN, NAN),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} {MORE}",
    older=f"{TWO} {MORE}",
    tables=(WITHOUT_BF16,),
    cells=Cells("self", CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(sigmoid, "sigmoid"),
    casts=(*FLOATS, np.float64, np.complex64, np.complex128),
)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_)


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_are_computed_in_float_unless_an_output_is_given(kind: Any) -> None:
    answer = LOCAL.execute(sigmoid, np.array([0, 1], kind))
    assert answer.kernel_dtype is FLOAT
    assert answer.value.dtype == np.float32
    np.testing.assert_allclose(answer.value, [0.5, 1 / (1 + np.exp(-1))], rtol=2**-23)


@pytest.mark.parametrize("kind", [*FLOATS, np.float64, np.complex64, np.complex128])
def test_integers_are_converted_to_the_dtype_of_the_output_and_computed_in_that(kind: Any) -> None:
    x = np.array([-7, -1, 0, 3, 127], np.int8)
    given = LOCAL.options(outputs={"out": np.empty(x.shape, kind)})
    answer = given.execute(sigmoid, x)
    assert answer.kernel_dtype.numpy == kind
    np.testing.assert_array_equal(answer.value, LOCAL.run(sigmoid, x.astype(kind)))


def test_integers_are_rounded_to_the_dtype_of_the_output_first() -> None:
    x = np.array([-2049, 2**40], np.int64)  # -2048 and infinity in FLOAT16
    found = LOCAL.options(outputs={"out": np.empty(2, np.float16)}).run(sigmoid, x)
    np.testing.assert_array_equal(found, [0, 1])


def test_any_byte_but_0_is_true() -> None:
    x = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    found = LOCAL.run(sigmoid, x)
    assert found[0] == 0.5
    assert len({*found[1:].tolist()}) == 1


def test_floats_are_computed_in_their_own_dtype_whatever_the_output_is() -> None:
    x = np.array([0.3, -2.5], np.float16)
    answer = LOCAL.options(outputs={"out": np.empty(2, np.float64)}).execute(sigmoid, x)
    assert answer.kernel_dtype is FLOAT16
    np.testing.assert_array_equal(answer.value, answer.value.astype(np.float16))


def test_subnormal_results_are_kept() -> None:
    x = np.array([-89, -95, -103], np.float32)
    expected = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(LOCAL.run(sigmoid, x), expected, rtol=1e-5, atol=2.0**-149)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("kind", "tolerance"), [(np.complex64, 2**-20), (np.complex128, 2**-48)], ids=str
)
def test_complex_numbers_are_torchs(kind: Any, tolerance: float) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    x = (random.uniform(-8, 8, (40, 50)) + 1j * random.uniform(-3, 3, (40, 50))).astype(kind)
    found = LOCAL.run(sigmoid, x)
    assert found.dtype == kind
    expected = torch.sigmoid(torch.tensor(x.astype(np.complex128))).numpy()
    np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_numbers_far_out_are_0_and_1(kind: Any) -> None:
    x = np.array([1000 + 1j, -1000 - 1j, INF + 2j, -INF + 2j], kind)
    np.testing.assert_array_equal(LOCAL.run(sigmoid, x), [1, 0, 1, 0])


def test_a_complex_call_without_elements_succeeds_before_the_output_is_looked_at() -> None:
    empty = {"self": {"shape": (0,), "dtype": COMPLEX64}, "out": {"shape": (0,)}}
    assert TABLE.refusal(Fault(empty, DTypeError, ())) is None


def test_bf16_may_come_out_of_integers_where_the_product_has_it() -> None:
    found = LOCAL.options(outputs={"out": np.empty(1, BFLOAT16)}).run(sigmoid, np.array([0]))
    assert found == [0.5]

"""aclnnThresholdBackward: prototype, values against torch, integers, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT16, INT32, INT64
from npucall.errors import DTypeError, ShapeError
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import INVALID, NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, NAN, aten, drawn, exact, run, title, wide
from .gradients import THRESHOLD as OPERATOR
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every, exactly

NEWEST = "Ascend950PR_9589"
# The checks, in order [src:threshold]
TABLE = Table(
    OPERATOR,
    {"threshold": Scalar(DOUBLE, 0.5)},
    [
        *null("threshold", "out", "grad_output", "self"),
        Fault({"threshold": Scalar(COMPLEX64, 1)}, DTypeError, ("threshold",)),
        *dtype(DOUBLE, "grad_output"),
        *dtype(INT64, "grad_output"),
        *dtype(INT16, "self"),
        *dtype(INT64, "self"),
        *dtype(FLOAT16, "grad_output"),
        Fault({"self": {"dtype": INT32}}, DTypeError, ("grad_output",)),
        *dtype(INT8, "out"),
        *dtype(DOUBLE, "out"),
        *shape(NINE, "grad_output", "self"),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "self")),
        Fault({"self": {"shape": (5, 3)}}, ShapeError, ("grad_output", "self")),
        *shape((3, 2), "out"),
    ],
)
INTEGERS = (np.int32, np.int8, np.uint8)
NEWER = npucall_client.connect("local:", soc=NEWEST)


# g, x, threshold, expected
CELLS = [
    (3.0, 0.25, 0.25, 0.0),
    (3.0, 0.2578125, 0.25, 3.0),  # BFLOAT16's next number above a quarter is 0.251953125
    (3.0, 0.0, 0.0, 0.0),
    (3.0, -0.0, 0.0, 0.0),
    (3.0, 0.0, -0.0, 0.0),
    (3.0, NAN, 0.25, 3.0),
    (3.0, INF, 0.25, 3.0),
    (3.0, -INF, 0.25, 0.0),
    (INF, -1.0, 0.25, 0.0),  # Ascend 950 multiplies: NaN
    (NAN, -1.0, 0.25, 0.0),
    (INF, -1.0, 0.0, 0.0),
    (NAN, -1.0, 0.0, 0.0),
    (NAN, 1.0, 0.25, NAN),
    (-INF, 1.0, 0.25, -INF),
    (3.0, -1.0, -2.0, 3.0),
]
SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* threshold, "
        "aclTensor* out"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} INT32 INT8 UINT8",
    older=f"{TWO} INT32 INT8 UINT8",
    unreachable=frozenset(
        {
            "grad_output: another dtype than INT64, unless threshold is 0",
            "self: another dtype than INT64, unless threshold is 0",
        }
    ),
    attributes={"threshold": 0.25},
    cells=Cells("grad_output self threshold", CELLS),
    torch=aten_of(OPERATOR, "threshold_backward"),
    calls=every(threshold=(0.25, 0.0)),
    noise=exactly,
    stretches=True,
)


@pytest.mark.torch
@pytest.mark.parametrize("threshold", [0, 0.5, -1.25, INF, -INF, NAN])
def test_in_float64_the_gradient_is_torchs(threshold: float) -> None:
    g, x = drawn((40, 50), (40, 50))
    x[0] = 0.5
    x[1] = -1.25
    found = exact(OPERATOR, g, x, threshold=threshold)
    np.testing.assert_array_equal(found, aten("threshold_backward", g, x, threshold))


@pytest.mark.torch
def test_with_0_it_is_the_gradient_of_relu_that_autograd_finds() -> None:
    torch = pytest.importorskip("torch")
    g, x = drawn((4, 6), (4, 6))
    x[0, :3] = 0, -0.0, NAN
    leaf = torch.tensor(x, requires_grad=True)
    torch.relu(leaf).backward(torch.tensor(g))
    np.testing.assert_array_equal(exact(OPERATOR, g, x, threshold=0.0), leaf.grad.numpy())


@pytest.mark.torch
@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_the_gradient_passes_without_rounding(kind: Any) -> None:
    g, x = drawn((40, 50), (40, 50), dtype=kind)
    expected = aten("threshold_backward", *wide(g, x), 0.25)
    found = run(OPERATOR, g, x, threshold=0.25)
    assert found.dtype == kind
    np.testing.assert_array_equal(*wide(found, expected))


# 2^-23 = 1.1920929e-07
@pytest.mark.parametrize(
    ("threshold", "of_half", "of_minus_half"),
    [
        (2.0**-23, 1, 0),  # counts as 0
        (-(2.0**-23), 1, 0),
        (1e-30, 1, 0),
        (2.0**-22, 0, 0),  # counts
        (-(2.0**-22), 1, 1),
    ],
)
def test_a_threshold_up_to_2_to_the_minus_23_counts_as_0(
    threshold: float, of_half: float, of_minus_half: float
) -> None:
    x = np.array([2.0**-24, -(2.0**-24)], np.float32)
    found = run(OPERATOR, np.ones_like(x), x, threshold=threshold)
    np.testing.assert_array_equal(found, [of_half, of_minus_half])


def test_the_threshold_counts_as_float32() -> None:
    x = np.array([0.1], np.float32)  # a little above 0.1
    assert run(OPERATOR, np.ones_like(x), x, threshold=0.1) == [0]


@pytest.mark.parametrize("given", [np.float16(2), np.int8(2), 2, 2.0, np.float64(2)])
def test_the_threshold_may_have_any_dtype(given: Any) -> None:
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(run(OPERATOR, x, x, threshold=given), [0, 0, 3])


@pytest.mark.torch
@pytest.mark.parametrize("kind", INTEGERS, ids=title)
@pytest.mark.parametrize("threshold", [0, 2, 2.5, 100])
def test_integers_are_torchs(kind: Any, threshold: float) -> None:
    g = np.array([1, 2, 3, 4, 5, 6], kind)
    x = np.array([0, 1, 2, 3, 100, 101], kind)
    found = run(OPERATOR, g, x, threshold=threshold)
    assert found.dtype == kind
    np.testing.assert_array_equal(found, aten("threshold_backward", g, x, threshold))


@pytest.mark.torch
def test_a_fraction_below_0_counts_for_integers_unlike_in_torch() -> None:
    x = np.array([-1, 0, 1], np.int32)
    np.testing.assert_array_equal(run(OPERATOR, x + 5, x, threshold=-0.5), [0, 5, 6])
    assert aten("threshold_backward", x + 5, x, -0.5).tolist() == [0, 0, 6]  # -0.5 became 0


@pytest.mark.parametrize("threshold", [0, 7])
def test_int32_is_exact_beyond_2_to_the_24(threshold: float) -> None:
    g = np.array([2**24 + 1, 2**31 - 1, -(2**31)], np.int32)
    np.testing.assert_array_equal(run(OPERATOR, g, g, threshold=threshold), [*g[:2], 0])


def test_on_ascend_950_int64_is_exact() -> None:
    g, x = np.array([2**53 + 1, 3, 4]), np.array([1, 0, -1])
    found = run(OPERATOR, g, x, client=NEWER, threshold=0)
    assert found.tolist() == [2**53 + 1, 0, 0]


@pytest.mark.parametrize("name", ["grad_output", "self"])
def test_on_ascend_950_int64_is_refused_for_another_threshold(name: str) -> None:
    fault = Fault({name: {"dtype": INT64}}, DTypeError, (name, "threshold"))
    assert TABLE.refusal(fault, soc=NEWEST) == fault.answer


@pytest.mark.parametrize("threshold", [0.0, -0.0, 1e-8])
def test_on_ascend_950_int64_is_taken_for_all_that_counts_as_0(threshold: float) -> None:
    names = ("grad_output", "self", "out")
    changes = {name: {"dtype": INT64} for name in names}
    fault = Fault({**changes, "threshold": Scalar(FLOAT, threshold)}, DTypeError, ())
    assert TABLE.refusal(fault, soc=NEWEST) is None
    assert TABLE.refusal(fault) == (DTypeError, INVALID, ("grad_output",))  # on an Atlas A2


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
@pytest.mark.parametrize("name", ["grad_output", "self"])
def test_bf16_is_refused_where_the_product_has_none(soc: str, name: str) -> None:
    fault = Fault({name: {"dtype": BF16}}, DTypeError, (name,))
    assert TABLE.refusal(fault, soc=soc) == fault.answer

"""aclnnLogit: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.logit import logit

from .faults import INVALID, NINE, Fault, Table, dtype, null
from .gradients import INF, LOCAL, NAN, aten
from .subject import WITH_BF16, Cells, Subject, between, every, of_one_shape

TILING = 561002
# The checks, in order [src:logit]
TABLE = Table(
    logit,
    {"eps": -1.0},
    [
        *null("input", "out"),
        *dtype(INT32, "input"),
        *dtype(DOUBLE, "input"),
        *dtype(FLOAT16, "out"),
        Fault({"out": {"shape": (3, 2)}}, ShapeError, ("out",), TILING),
        Fault({"out": {"shape": (1, 2, 3)}}, ShapeError, ("out",), TILING),
    ],
)
# input, eps, result
CELLS = [
    (0.5, -1.0, 0.0),
    (0.0, -1.0, -INF),
    (-0.0, -1.0, -INF),
    (1.0, -1.0, INF),
    (-0.125, -1.0, NAN),
    (1.125, -1.0, NAN),
    (INF, -1.0, NAN),
    (-INF, -1.0, NAN),
    (NAN, -1.0, NAN),
    (0.0, -INF, -INF),
    (1.0, NAN, INF),
    (2.0, NAN, NAN),
    (0.0, 0.0, -INF),
    (1.0, 0.0, INF),
    (-0.125, 0.0, -INF),
    (2.0, 0.0, INF),
    (-INF, 0.0, -INF),
    (INF, -0.0, INF),
    (NAN, 0.0, NAN),
    (0.25, 0.5, 0.0),
    (0.75, 0.5, 0.0),
    (INF, 0.5, 0.0),
    (NAN, 0.5, NAN),
    (0.25, 1.0, INF),
    (1.0, 1.0, -INF),
    (2.0, 1.0, -INF),
    (NAN, 1.0, NAN),
    (0.5, 1.5, NAN),
    (2.0, INF, NAN),
]


def torch_says(tensors: dict[str, Any], eps: float) -> Any:
    return aten("logit", tensors["input"], None if eps < 0 else eps)


def terms(tensors: dict[str, Any], found: Any, eps: float) -> Any:
    """The size of both logarithms, which cancel near one half."""
    low = max(eps, 0)
    x = np.where(tensors["input"] < low, low, np.minimum(tensors["input"], 1 - low))
    return np.abs(np.log(x)) + np.abs(np.log1p(-x))


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]: an output that is const
    "const aclTensor* input, double eps, const aclTensor* out",
    documented=WITH_BF16,
    legacy=(),
    attributes={"eps": 0.125},
    values={"input": between(0.02, 0.98)},
    computes_empty=True,
    cells=Cells("input eps", CELLS),
    torch=torch_says,
    calls=every(*of_one_shape("input", (), (17,), (4, 6)), eps=(-1.0, 0.0, 0.125, 0.5, 0.75)),
    noise=terms,
)


@pytest.mark.torch
def test_each_element_is_torchs_unless_eps_is_nan() -> None:
    for x, eps, expected in CELLS:
        if not np.isnan(eps):
            found = torch_says({"input": np.array([x])}, eps)
            np.testing.assert_array_equal(found, [expected])


@pytest.mark.parametrize(("eps", "expected"), [(-1e-60, -INF), (-1e-30, NAN), (1e-60, -INF)])
def test_an_eps_below_0_counts_as_such_if_it_does_as_a_float32(eps: float, expected: float) -> None:
    found = SUBJECT.run({"input": np.float32([-2.0])}, eps=eps)
    np.testing.assert_array_equal(found, [expected])


def test_the_far_end_of_the_range_is_rounded_to_float32() -> None:
    # 1 - 2^-26 is 1 in float32
    assert SUBJECT.run({"input": np.float32([1.0])}, eps=2.0**-26) == INF


def test_without_eps_there_is_no_margin() -> None:
    assert logit.default(logit.by_name["eps"]) == -1
    found = LOCAL.run(logit, input=np.float32([2, 0.5]))
    np.testing.assert_array_equal(found, [NAN, 0])


def test_tensors_may_have_more_than_8_dimensions() -> None:
    found = SUBJECT.run({"input": np.full(NINE, 0.5, np.float32)})
    np.testing.assert_array_equal(found, np.zeros(NINE))


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1", "Ascend310"])
def test_products_that_no_document_names_are_refused(soc: str) -> None:
    assert TABLE.refusal(soc=soc) == (DTypeError, INVALID, ("input",))

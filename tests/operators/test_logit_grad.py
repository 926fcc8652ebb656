"""aclnnLogitGrad: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall.operators.logit_grad import logit_grad

from .faults import INVALID, NINE, Fault, Table, dtype, null
from .gradients import FLOATS, INF, LOCAL, NAN, aten, title
from .losses import wide
from .subject import WITH_BF16, Cells, Subject, between, every, of_one_shape

TILING = 561002
# The checks, in order [src:logit]
TABLE = Table(
    logit_grad,
    {"eps": -1.0},
    [
        *null("x", "dy", "out"),
        *dtype(INT32, "x"),
        *dtype(FLOAT16, "dy", "out"),
        Fault({"dy": {"shape": (3, 2)}}, ShapeError, ("dy",), TILING),
        Fault({"out": {"shape": (1, 2, 3)}}, ShapeError, ("out",), TILING),
    ],
)
# x, dy, eps, result
CELLS = [
    (0.5, 3.0, -1.0, 12.0),
    (0.25, 3.0, -1.0, 16.0),
    (0.0, 3.0, -1.0, INF),
    (1.0, 3.0, -1.0, INF),
    (0.0, -3.0, -1.0, -INF),
    (1.0, 0.0, -1.0, NAN),
    (-0.125, 3.0, -1.0, NAN),
    (1.125, 3.0, -1.0, NAN),
    (INF, 3.0, -1.0, NAN),
    (-INF, 3.0, -1.0, NAN),
    (NAN, 3.0, -1.0, NAN),
    (0.5, 3.0, -INF, 12.0),
    (0.25, 3.0, 0.25, 16.0),
    (0.75, 3.0, 0.25, 16.0),
    (0.125, 3.0, 0.25, 0.0),
    (0.875, 3.0, 0.25, 0.0),
    (0.125, NAN, 0.25, 0.0),
    (0.125, INF, 0.25, 0.0),
    (INF, 3.0, 0.25, 0.0),
    (0.0, 3.0, 0.0, INF),
    (1.0, -3.0, 0.0, -INF),
    (-0.125, 3.0, 0.0, 0.0),
    (0.0, 3.0, -0.0, INF),
    (-0.125, 3.0, -0.0, 0.0),
    (0.5, 3.0, 0.5, 12.0),
    (0.25, INF, -1.0, INF),
    (0.25, NAN, -1.0, NAN),
]


def torch_gradient(tensors: dict[str, Any], eps: float) -> Any:
    x, dy = wide(tensors).values()
    return aten("logit_backward", dy, x, None if eps < 0 else eps)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]: x before dy, a double, and an output that is const
    "const aclTensor* x, const aclTensor* dy, double eps, const aclTensor* out",
    documented=WITH_BF16,
    legacy=(),
    attributes={"eps": 0.125},
    values={"x": between(0.02, 0.98)},
    computes_empty=True,
    cells=Cells("x dy eps", CELLS),
    torch=torch_gradient,
    calls=every(
        *of_one_shape("x dy", (), (17,), (4, 6), (2, 3, 4, 5)), eps=(-1.0, 0.0, 0.125, 0.5, 0.75)
    ),
)


@pytest.mark.torch
@pytest.mark.parametrize(("x", "dy", "eps", "expected"), CELLS)
def test_each_element_is_torchs(x: float, dy: float, eps: float, expected: float) -> None:
    tensors = {"x": np.array([x]), "dy": np.array([dy])}
    np.testing.assert_array_equal(torch_gradient(tensors, eps), [expected])


@pytest.mark.torch
@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize("eps", [0.0, 0.25])
def test_an_x_of_nan_gives_0_with_a_margin_unlike_in_torch(eps: float, kind: Any) -> None:
    tensors = {"x": np.array([NAN], kind), "dy": np.array([3], kind)}
    assert SUBJECT.run(tensors, eps=eps) == [0]
    assert np.isnan(torch_gradient(tensors, eps)).all()


def test_eps_counts_as_a_float32() -> None:
    above = np.float32(0.1)  # 0.10000000149
    tensors = {"x": np.array([0.1, above, np.nextafter(above, 0)]), "dy": np.ones(3)}
    found = SUBJECT.exact(tensors, eps=0.1)
    np.testing.assert_array_equal(found != 0, [False, True, False])


@pytest.mark.parametrize(("eps", "outside"), [(-1e-60, 0.0), (-1e-30, NAN), (1e-60, 0.0)])
def test_an_eps_below_0_counts_as_such_if_it_does_as_a_float32(eps: float, outside: float) -> None:
    np.testing.assert_array_equal(
        SUBJECT.run({"x": np.float32([2.0]), "dy": np.float32([1.0])}, eps=eps), outside
    )


def test_the_far_end_of_the_range_is_rounded_to_float32() -> None:
    # 1 - 2^-26 is 1 in float32
    assert SUBJECT.run({"x": np.float32([1.0]), "dy": np.float32([1.0])}, eps=2.0**-26) == INF


def test_without_eps_there_is_no_margin() -> None:
    tensors = {"x": np.array([2, 0.5], np.float32), "dy": np.ones(2, np.float32)}
    assert logit_grad.default(logit_grad.by_name["eps"]) == -1
    found = LOCAL.run(logit_grad, **tensors)
    np.testing.assert_array_equal(found, [NAN, 4])


def test_tensors_may_have_more_than_8_dimensions() -> None:
    tensors = {"x": np.full(NINE, 0.5, np.float32), "dy": np.ones(NINE, np.float32)}
    np.testing.assert_array_equal(SUBJECT.run(tensors), np.full(NINE, 4))


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1", "Ascend310"])
def test_products_that_no_document_names_are_refused(soc: str) -> None:
    assert TABLE.refusal(soc=soc) == (DTypeError, INVALID, ("x",))

"""aclnnSoftmaxBackward: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.products import ASCEND_310P, ASCEND_910

from .gradients import FLOATS, INF, NAN, aten, run, title
from .gradients import SOFTMAX as OPERATOR
from .softmaxes import EVERY_DIM
from .softmaxes import SOFTMAX_TABLE as TABLE
from .subject import WITH_BF16, Subject, between


def forward(x: Any, dim: int) -> Any:
    """The forward result in float64."""
    power = np.exp(x - x.max(dim, keepdims=True))
    return power / power.sum(dim, keepdims=True)


def torchs(g: Any, y: Any, dim: int) -> Any:
    torch = pytest.importorskip("torch")
    return aten("_softmax_backward_data", g, y, dim, torch.float64)


def torch_gradient(tensors: dict[str, Any], dim: int) -> Any:
    return torchs(tensors["grad_output"], tensors["output"], dim)


def terms(tensors: dict[str, Any], _: Any, dim: int) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    g, y = np.abs(tensors["grad_output"]), np.abs(tensors["output"])
    return g * y + (g * y).sum(dim, keepdims=True) * y


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* output, int64_t dim, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=frozenset({"grad_output not BF16 where the product has none"}),
    attributes={"dim": 0},
    values={"output": between(0, 0.3)},
    torch=torch_gradient,
    calls=EVERY_DIM,
    noise=terms,
    casts=FLOATS,
)


# a row of grad_output and of output, and the result
ROWS = [
    ([1, 2, 3], [0, 0, 1], [0, 0, 0]),
    ([1, 2, 4], [0.5, 0.5, 0], [-0.25, 0.25, 0]),
    ([8, 0, 0], [0.25, 0.25, 0.5], [1.5, -0.5, -1]),
    ([INF, 0, 0], [0.5, 0.25, 0.25], [NAN, -INF, -INF]),
    ([NAN, 0, 0], [0.5, 0.25, 0.25], [NAN, NAN, NAN]),
    ([INF, 0, 0], [0, 0.5, 0.5], [NAN, NAN, NAN]),
    ([1, 1, 1], [NAN, 0.5, 0.5], [NAN, NAN, NAN]),
    ([1, 1, 1], [INF, 0, 0], [NAN, NAN, NAN]),
    ([2, 0, 0], [2, 0, 0], [-4, 0, 0]),
]


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "y", "expected"), ROWS)
def test_a_row_is_what_the_formula_says_and_its_neighbours_stay_clean(
    kind: Any, g: Any, y: Any, expected: Any
) -> None:
    rows = [np.array([[1, 0, 0], row, [1, 0, 0]], kind) for row in (g, y)]
    found = run(OPERATOR, *rows, dim=-1).astype(np.float64)
    np.testing.assert_array_equal(found, [[0, 0, 0], expected, [0, 0, 0]])


def test_float16_products_are_added_up_in_float32() -> None:
    # 300 * 256 + 300 * 256 is beyond FLOAT16; times 2^-8 it is not: g y - sum y
    g, y = np.array([[300, 300, 0]], np.float16), np.array([[256, 256, 2**-8]], np.float16)
    found = run(OPERATOR, g, y, dim=1)
    np.testing.assert_array_equal(found, np.array([[-INF, -INF, -600]], np.float16))

"""aclnnLogSoftmaxBackward: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.products import ASCEND_310P, ASCEND_910

from .gradients import FLOATS, INF, NAN, aten, run, title
from .gradients import LOG_SOFTMAX as OPERATOR
from .softmaxes import EVERY_DIM
from .softmaxes import LOG_SOFTMAX_TABLE as TABLE
from .subject import WITH_BF16, Subject, between


def forward(x: Any, dim: int) -> Any:
    """The forward result in float64."""
    power = np.exp(x - x.max(dim, keepdims=True))
    probabilities = power / power.sum(dim, keepdims=True)
    return np.log(probabilities)


def torchs(g: Any, y: Any, dim: int) -> Any:
    torch = pytest.importorskip("torch")
    return aten("_log_softmax_backward_data", g, y, dim, torch.float64)


def torch_gradient(tensors: dict[str, Any], dim: int) -> Any:
    return torchs(tensors["grad_output"], tensors["output"], dim)


def terms(tensors: dict[str, Any], _: Any, dim: int) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    g = np.abs(tensors["grad_output"])
    return g + np.exp(tensors["output"]) * g.sum(dim, keepdims=True)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* output, int64_t dim, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    unreachable=frozenset({"output and grad_output not BF16 where the product has none"}),
    attributes={"dim": 0},
    values={"output": between(-4, 0)},
    torch=torch_gradient,
    calls=EVERY_DIM,
    noise=terms,
    casts=FLOATS,
)


LN = {0.5: float(np.log(0.5)), 0.25: float(np.log(0.25))}
# a row of grad_output and of output, and the result to three digits
ROWS = [
    ([1, 2, 3], [-INF, -INF, 0], [1, 2, -3]),
    ([1, 2, 4], [LN[0.5], LN[0.25], LN[0.25]], [-2.5, 0.25, 2.25]),
    ([0, 0, 0], [LN[0.5], LN[0.25], LN[0.25]], [0, 0, 0]),
    ([INF, 0, 0], [LN[0.5], LN[0.25], LN[0.25]], [NAN, -INF, -INF]),
    ([INF, 0, 0], [0, -INF, -INF], [NAN, NAN, NAN]),
    ([NAN, 0, 0], [LN[0.5], LN[0.25], LN[0.25]], [NAN, NAN, NAN]),
    ([1, 1, 1], [NAN, 0, 0], [NAN, -2, -2]),
    ([1, 1, 1], [INF, 0, 0], [-INF, -2, -2]),
    ([1, 1, 1], [89, 0, 0], [-INF, -2, -2]),  # 3 e^89 is beyond FLOAT, as e^88.7228
]


@pytest.mark.parametrize("kind", FLOATS, ids=title)
@pytest.mark.parametrize(("g", "y", "expected"), ROWS)
def test_a_row_is_what_the_formula_says_and_its_neighbours_stay_clean(
    kind: Any, g: Any, y: Any, expected: Any
) -> None:
    rows = [np.array([[0, 0, 0], row, [0, 0, 0]], kind) for row in (g, y)]
    found = run(OPERATOR, *rows, dim=-1).astype(np.float64)
    np.testing.assert_allclose(found, [[0, 0, 0], expected, [0, 0, 0]], rtol=0.02, atol=0.02)


def test_float16_gradients_are_added_up_in_float32() -> None:
    # 60000 + 60000 is beyond FLOAT16; a quarter of it is not.
    g, y = np.full((1, 2), 60000, np.float16), np.log([[0.25, 0.25]]).astype(np.float16)
    np.testing.assert_allclose(run(OPERATOR, g, y, dim=1), np.full((1, 2), 30000), rtol=1e-3)

"""The tables of edge values in operators.md 1.1 to 1.3, cell by cell, in each float type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .running import BUILTIN, COMMUNITY, DOCUMENTED, FLOATS, KL, L1, run, title

INF, NAN = float("inf"), float("nan")

# target, log_target, grad_output, result before scaling
KL_CELLS = [
    (0.0, False, 2.0, 0.0),
    (-0.0, False, 2.0, 0.0),
    (0.0, False, INF, NAN),
    (0.0, False, -INF, NAN),
    (0.0, False, NAN, NAN),
    (-0.0, False, INF, NAN),
    (-1.5, False, 2.0, 3.0),
    (INF, False, 2.0, -INF),
    (INF, False, -2.0, INF),
    (-INF, False, 2.0, INF),
    (-INF, False, -2.0, -INF),
    (INF, False, 0.0, NAN),
    (-INF, False, 0.0, NAN),
    (NAN, False, 2.0, NAN),
    (NAN, False, 0.0, NAN),
    (-INF, True, 2.0, 0.0),
    (-INF, True, INF, NAN),
    (-INF, True, -INF, NAN),
    (INF, True, 2.0, -INF),
    (INF, True, -2.0, INF),
    (INF, True, 0.0, NAN),
    (89.0, True, 2.0, -INF),  # e^88.7228 is FLOAT's largest number
    (89.0, True, -2.0, INF),
    (NAN, True, 2.0, NAN),
    (0.0, True, 2.0, -2.0),
]

# target, self, log_target, result for a scaled gradient of 2 and for one of -2
BUILTIN_CELLS = [
    (0.0, 0.5, False, NAN, NAN),
    (-0.0, 0.5, False, NAN, NAN),
    (-1.0, 0.5, False, NAN, NAN),
    (INF, 0.5, False, NAN, NAN),
    (-INF, 0.5, False, NAN, NAN),
    (NAN, 0.5, False, NAN, NAN),
    (1.0, NAN, False, NAN, NAN),
    (1.0, INF, False, -INF, INF),
    (1.0, -INF, False, INF, -INF),
    (1.0, 0.5, False, 1.0, -1.0),  # 2 * (ln 1 - 0.5) + 2
    (0.0, 0.5, True, 1.0, -1.0),  # 2 * (1 - 0.5)
    (-0.0, 0.5, True, 1.0, -1.0),
    (INF, 0.5, True, INF, -INF),
    (-INF, 0.5, True, NAN, NAN),
    (NAN, 0.5, True, NAN, NAN),
    (1.0, NAN, True, NAN, NAN),
    (1.0, INF, True, -INF, INF),
    (1.0, -INF, True, INF, -INF),
]

# target, self, log_target, grad_output, result
COMMUNITY_CELLS = [
    (0.0, 0.5, False, 2.0, 0.0),
    (-0.0, 0.5, False, 2.0, 0.0),
    (0.0, 0.5, False, INF, 0.0),  # the mask comes last and hides what g is
    (0.0, 0.5, False, NAN, 0.0),
    (0.0, NAN, False, 2.0, 0.0),
    (0.0, INF, False, 2.0, 0.0),
    (-1.0, 0.5, False, 2.0, NAN),
    (-INF, 0.5, False, 2.0, NAN),
    (INF, 0.5, False, 2.0, INF),
    (INF, 0.5, False, -2.0, -INF),
    (NAN, 0.5, False, 2.0, NAN),
    (1.0, INF, False, 2.0, -INF),
    (1.0, INF, False, -2.0, INF),
    (1.0, -INF, False, 2.0, INF),
    (1.0, NAN, False, 2.0, NAN),
    (1.0, 0.5, False, INF, INF),
    (-INF, 0.5, True, 2.0, NAN),
    (INF, 0.5, True, 2.0, INF),
    (INF, 0.5, True, -2.0, -INF),
    (0.0, INF, True, 2.0, -INF),
    (0.0, INF, True, -2.0, INF),
    (0.0, NAN, True, 2.0, NAN),
    (NAN, 0.5, True, 2.0, NAN),
    (0.0, 0.5, True, 2.0, 1.0),  # 2 * (0 + 1 - 0.5): no mask with log_target
]

# self, target, grad_output, result
L1_CELLS = [
    (1.0, 1.0, 2.0, 0.0),
    (INF, INF, 2.0, 0.0),
    (-INF, -INF, 2.0, 0.0),
    (0.0, -0.0, 2.0, 0.0),
    (1.0, 1.0, INF, NAN),
    (1.0, 1.0, -INF, NAN),
    (1.0, 1.0, NAN, NAN),
    (INF, -INF, 2.0, 2.0),
    (-INF, INF, 2.0, -2.0),
    (INF, 3.0, 2.0, 2.0),
    (3.0, INF, 2.0, -2.0),
    (NAN, 1.0, 2.0, 0.0),
    (1.0, NAN, 2.0, 0.0),
    (NAN, NAN, 2.0, 0.0),
    (2.0, 1.0, INF, INF),
    (1.0, 2.0, INF, -INF),
    (2.0, 1.0, NAN, NAN),
    (2.0, 1.0, 0.0, 0.0),
]


def one(operator: Any, dtype: Any, g: float, s: float, t: float, **attributes: Any) -> float:
    """The result for one element, computed beside ordinary ones, so that neighbours stay clean."""
    tensors = {
        "grad_output": np.array([1, g, 1], dtype),
        "self": np.array([0.5, s, 0.5], dtype),
        "target": np.array([0.25, t, 0.25], dtype),
    }
    result = run(operator, tensors, reduction=0, **attributes)
    assert np.isfinite(result[0])
    assert result[0] == result[2]
    return float(result[1])


@pytest.mark.parametrize("dtype", FLOATS, ids=title)
@pytest.mark.parametrize(("t", "log_target", "g", "expected"), KL_CELLS)
def test_kl_div_backward_answers_its_table_of_edge_values(
    dtype: Any, t: float, log_target: bool, g: float, expected: float
) -> None:
    np.testing.assert_equal(one(KL, dtype, g, 0.5, t, log_target=log_target) + 0, expected)


@pytest.mark.parametrize("s", [NAN, INF, -INF])
@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div_backward_ignores_the_values_of_self(s: float, log_target: bool) -> None:
    assert one(KL, np.float32, 2.0, s, 0.0, log_target=log_target) == (-2.0 if log_target else 0.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=title)
@pytest.mark.parametrize(("t", "s", "log_target", "positive", "negative"), BUILTIN_CELLS)
def test_builtin_target_gradient_answers_its_table_of_edge_values(
    dtype: Any, t: float, s: float, log_target: bool, positive: float, negative: float
) -> None:
    found = [one(BUILTIN, dtype, g, s, t, log_target=log_target) for g in (2.0, -2.0)]
    np.testing.assert_equal(found, [positive, negative])


@pytest.mark.parametrize("dtype", FLOATS, ids=title)
@pytest.mark.parametrize("operator", [COMMUNITY, DOCUMENTED], ids=title)
@pytest.mark.parametrize(("t", "s", "log_target", "g", "expected"), COMMUNITY_CELLS)
def test_masked_target_gradient_answers_its_table_of_edge_values(
    operator: Any, dtype: Any, t: float, s: float, log_target: bool, g: float, expected: float
) -> None:
    np.testing.assert_equal(one(operator, dtype, g, s, t, log_target=log_target) + 0, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=title)
@pytest.mark.parametrize(("s", "t", "g", "expected"), L1_CELLS)
def test_l1_loss_backward_answers_its_table_of_edge_values(
    dtype: Any, s: float, t: float, g: float, expected: float
) -> None:
    np.testing.assert_equal(one(L1, dtype, g, s, t) + 0, expected)

"""aclnnSoftmaxBackward: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .faults import Fault
from .gradients import FLOATS, INF, NAN, assert_rounded, aten, drawn, exact, run, title, wide
from .gradients import SOFTMAX as OPERATOR
from .softmaxes import EVERY_DIM
from .softmaxes import SOFTMAX_TABLE as TABLE


def forward(x: Any, dim: int) -> Any:
    """The forward result in float64."""
    power = np.exp(x - x.max(dim, keepdims=True))
    return power / power.sum(dim, keepdims=True)


def torchs(g: Any, y: Any, dim: int) -> Any:
    torch = pytest.importorskip("torch")
    return aten("_softmax_backward_data", g, y, dim, torch.float64)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.2
    assert OPERATOR.prototype == (
        "aclnnStatus aclnnSoftmaxBackwardGetWorkspaceSize(const aclTensor* gradOutput, "
        "const aclTensor* output, int64_t dim, aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@pytest.mark.parametrize(("shape", "dim"), EVERY_DIM)
def test_in_float64_the_gradient_is_torchs(shape: tuple[int, ...], dim: int) -> None:
    g, x = drawn(shape, shape)
    y = forward(x.reshape(x.shape or 1), dim).reshape(shape)
    np.testing.assert_allclose(
        exact(OPERATOR, g, y, dim=dim), torchs(g, y, dim), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("dim", [0, 1])
def test_it_is_the_gradient_that_autograd_finds_for_the_input(dim: int) -> None:
    torch = pytest.importorskip("torch")
    g, x = drawn((4, 6), (4, 6))
    leaf = torch.tensor(x, requires_grad=True)
    torch.softmax(leaf, dim).backward(torch.tensor(g))
    found = exact(OPERATOR, g, forward(x, dim), dim=dim)
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(kind: Any, dim: int) -> None:
    g, x = drawn((30, 50), (30, 50))
    g, y = g.astype(kind), forward(x, dim).astype(kind)
    exact_g, exact_y = wide(g, y)
    expected = torchs(exact_g, exact_y, dim)
    weighted = np.abs(exact_g * exact_y)
    terms = weighted + weighted.sum(dim, keepdims=True) * exact_y
    assert_rounded(run(OPERATOR, g, y, dim=dim), expected, kind, terms)


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


@pytest.mark.parametrize("fault", TABLE.faults, ids=str)
def test_a_defect_is_refused_with_its_class_status_and_parameter(fault: Fault) -> None:
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize(("first", "second"), TABLE.pairs(), ids=str)
def test_of_two_defects_the_one_that_is_checked_first_is_the_answer(
    first: Fault, second: Fault
) -> None:
    assert TABLE.refusal(first, second) == first.answer


def test_the_table_has_a_defect_for_every_check_that_refuses_on_an_atlas_a2() -> None:
    elsewhere = {
        "grad_output not BF16 where the product has none",
    }
    assert TABLE.refusing() >= TABLE.may_refuse() - elsewhere

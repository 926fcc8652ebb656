"""aclnnTanhBackward: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import (
    FLOATS,
    INF,
    NAN,
    STRETCHED,
    assert_rounded,
    aten,
    drawn,
    exact,
    one,
    run,
    title,
    wide,
)
from .gradients import TANH as OPERATOR

# operators.md 2.3, in order
TABLE = Table(
    OPERATOR,
    {},
    [
        *null("grad_output", "output", "grad_input"),
        *dtype(INT32, "grad_output", "output", "grad_input"),
        Fault({"grad_output": {"dtype": FLOAT16}}, DTypeError, ("grad_output",)),
        Fault({"output": {"dtype": DOUBLE}}, DTypeError, ("grad_output",)),
        Fault({"grad_input": {"dtype": BF16}}, DTypeError, ("grad_output",)),
        *shape(NINE, "grad_output", "output"),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "output")),
        Fault({"output": {"shape": (5, 3)}}, ShapeError, ("grad_output", "output")),
        *shape((3, 2), "grad_input"),
    ],
)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.2
    assert OPERATOR.prototype == (
        "aclnnStatus aclnnTanhBackwardGetWorkspaceSize(const aclTensor* gradOutput, "
        "const aclTensor* output, aclTensor* gradInput, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


def torchs(g: Any, y: Any) -> Any:
    return aten("tanh_backward", g, y)


def test_in_float64_the_gradient_is_torchs() -> None:
    g, y = drawn((40, 50), (40, 50))  # beyond -1 to 1, too
    terms = np.abs(g) * (1 + y * y)
    assert (np.abs(exact(OPERATOR, g, y) - torchs(g, y)) <= 1e-15 * terms).all()


def test_it_is_the_gradient_that_autograd_finds_for_the_input() -> None:
    torch = pytest.importorskip("torch")
    g, x = drawn((4, 6), (4, 6))
    leaf = torch.tensor(x, requires_grad=True)
    torch.tanh(leaf).backward(torch.tensor(g))
    found = exact(OPERATOR, g, np.tanh(x))
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-11)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(kind: Any) -> None:
    g, x = drawn((40, 50), (40, 50))
    g, y = g.astype(kind), np.tanh(x).astype(kind)
    exact_g, exact_y = wide(g, y)
    terms = np.abs(exact_g) * (1 + exact_y**2)
    assert_rounded(run(OPERATOR, g, y), torchs(exact_g, exact_y), kind, terms)


@pytest.mark.parametrize("sign", [1, -1])
def test_near_1_a_float_keeps_its_digits(sign: int) -> None:
    y = sign * (1 - np.arange(1, 200, dtype=np.float32) * 2.0**-24)
    y = y.astype(np.float32)
    (exactly,) = wide(y)
    found = run(OPERATOR, np.ones_like(y), y)
    np.testing.assert_allclose(found, 1 - exactly * exactly, rtol=2.0**-23)


@pytest.mark.parametrize("kind", [*FLOATS, np.float64], ids=title)
@pytest.mark.parametrize(
    ("g", "y", "expected"),
    [
        (2.0, 0.0, 2.0),
        (2.0, 0.5, 1.5),
        (2.0, -0.5, 1.5),
        (2.0, 1.0, 0.0),
        (2.0, -1.0, 0.0),
        (2.0, 2.0, -6.0),
        (2.0, INF, -INF),
        (2.0, -INF, -INF),
        (0.0, INF, NAN),
        (2.0, NAN, NAN),
        (INF, 0.5, INF),
        (INF, 1.0, NAN),
        (NAN, 1.0, NAN),
    ],
)
def test_edge_values(kind: Any, g: float, y: float, expected: float) -> None:
    np.testing.assert_equal(one(OPERATOR, kind, g, y) + 0, expected)


def test_double_is_computed_in_float64() -> None:
    g, y = drawn((40, 50), (40, 50), largest=1)
    found = run(OPERATOR, g, y)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, torchs(g, y), rtol=1e-11)


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
@pytest.mark.parametrize("name", ["grad_output", "output", "grad_input"])
def test_bf16_is_refused_where_the_product_has_none(soc: str, name: str) -> None:
    fault = Fault({name: {"dtype": BF16}}, DTypeError, (name,))
    assert TABLE.refusal(fault, soc=soc) == fault.answer


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_double_is_taken_on_every_product(soc: str) -> None:
    names = ("grad_output", "output", "grad_input")
    changes = {name: {"dtype": DOUBLE} for name in names}
    assert TABLE.refusal(Fault(changes, DTypeError, ()), soc=soc) is None


@pytest.mark.parametrize(("of_g", "of_x", "shape"), STRETCHED)
def test_inputs_broadcast_and_nothing_is_summed(of_g: Any, of_x: Any, shape: Any) -> None:
    for g, x in (drawn(of_g, of_x), drawn(of_x, of_g)):
        found = exact(OPERATOR, g, x)
        full = exact(OPERATOR, *map(np.copy, np.broadcast_arrays(g, x)))
        assert found.shape == shape
        np.testing.assert_array_equal(found, full)


def test_one_empty_input_gives_an_empty_output() -> None:
    g, x = drawn((0, 3), (1, 1), dtype=np.float16)
    assert run(OPERATOR, g, x).shape == (0, 3)
    assert run(OPERATOR, x, g).shape == (0, 3)


@pytest.mark.parametrize("fault", TABLE.faults, ids=str)
def test_a_defect_is_refused_with_its_class_status_and_parameter(fault: Fault) -> None:
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize(("first", "second"), TABLE.pairs(), ids=str)
def test_of_two_defects_the_one_that_is_checked_first_is_the_answer(
    first: Fault, second: Fault
) -> None:
    assert TABLE.refusal(first, second) == first.answer


def test_the_table_has_a_defect_for_every_check() -> None:
    assert TABLE.refusing() >= TABLE.may_refuse()

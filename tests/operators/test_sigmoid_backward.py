"""aclnnSigmoidBackward: prototype, values against torch, complex numbers, its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import (
    BF16,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT32,
    UINT16,
)
from npucall.errors import DTypeError, ShapeError

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import BF16 as BFLOAT16
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
from .gradients import SIGMOID as OPERATOR

# operators.md 2.3, in order
TABLE = Table(
    OPERATOR,
    {},
    [
        *null("grad_output", "output", "grad_input"),
        *dtype(INT32, "grad_output", "output"),
        *dtype(UINT16, "grad_input"),
        *shape(NINE, "grad_output", "output"),
        Fault({"grad_output": {"dtype": COMPLEX64}}, DTypeError, ("grad_input",)),
        Fault({"output": {"dtype": COMPLEX128}}, DTypeError, ("grad_input",)),
        Fault({"grad_output": {"shape": (4, 3)}}, ShapeError, ("grad_output", "output")),
        Fault({"output": {"shape": (5, 3)}}, ShapeError, ("grad_output", "output")),
        *shape((3, 2), "grad_input"),
    ],
)


def test_the_prototype_is_that_of_the_documents() -> None:
    # cann-abi.md 6.2
    assert OPERATOR.prototype == (
        "aclnnStatus aclnnSigmoidBackwardGetWorkspaceSize(const aclTensor* gradOutput, "
        "const aclTensor* output, aclTensor* gradInput, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


def torchs(g: Any, y: Any) -> Any:
    return aten("sigmoid_backward", g, y)


def test_in_float64_the_gradient_is_torchs() -> None:
    g, y = drawn((40, 50), (40, 50))  # beyond 0 to 1, too
    np.testing.assert_allclose(exact(OPERATOR, g, y), torchs(g, y), rtol=1e-14)


def test_it_is_the_gradient_that_autograd_finds_for_the_input() -> None:
    torch = pytest.importorskip("torch")
    g, x = drawn((4, 6), (4, 6))
    leaf = torch.tensor(x, requires_grad=True)
    torch.sigmoid(leaf).backward(torch.tensor(g))
    found = exact(OPERATOR, g, 1 / (1 + np.exp(-x)))
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(kind: Any) -> None:
    g, x = drawn((40, 50), (40, 50))
    g, y = g.astype(kind), (1 / (1 + np.exp(-2 * x))).astype(kind)
    exact_g, exact_y = wide(g, y)
    terms = np.abs(exact_g * exact_y) * (1 + exact_y)
    assert_rounded(run(OPERATOR, g, y), torchs(exact_g, exact_y), kind, terms)


@pytest.mark.parametrize("kind", [*FLOATS, np.float64], ids=title)
@pytest.mark.parametrize(
    ("g", "y", "expected"),
    [
        (2.0, 0.5, 0.5),
        (2.0, 0.0, 0.0),
        (2.0, 1.0, 0.0),
        (2.0, 2.0, -4.0),
        (2.0, -1.0, -4.0),
        (2.0, INF, -INF),
        (2.0, -INF, -INF),
        (0.0, INF, NAN),
        (2.0, NAN, NAN),
        (INF, 0.5, INF),
        (INF, 0.0, NAN),
        (INF, 1.0, NAN),
        (NAN, 0.0, NAN),
    ],
)
def test_edge_values(kind: Any, g: float, y: float, expected: float) -> None:
    np.testing.assert_equal(one(OPERATOR, kind, g, y) + 0, expected)


def test_double_is_computed_in_float64() -> None:
    g, y = drawn((40, 50), (40, 50))
    np.testing.assert_allclose(run(OPERATOR, g, y), torchs(g, y), rtol=1e-15)


@pytest.mark.parametrize(("kind", "near"), [(np.complex64, 1e-6), (np.complex128, 1e-15)])
def test_complex_numbers_follow_the_formula(kind: Any, near: float) -> None:
    g = np.array([1, 1j, 2 - 1j], kind)
    y = np.array([1j, 2, 0.5 + 0.5j], kind)
    # (1 - i) i = 1 + i; i (1 - 2) 2 = -2i; (2 - i) (0.5 - 0.5i) (0.5 + 0.5i) = (2 - i) / 2
    found = run(OPERATOR, g, y)
    assert found.dtype == kind
    np.testing.assert_allclose(found, [1 + 1j, -2j, 1 - 0.5j], rtol=near)


def test_for_complex_numbers_torch_takes_the_conjugate_of_the_derivative() -> None:
    parts = drawn((4, 6), (4, 6), (4, 6), (4, 6))
    g, y = parts[0] + 1j * parts[1], parts[2] + 1j * parts[3]
    found = run(OPERATOR, g, y)
    np.testing.assert_allclose(found, torchs(g, y.conj()), rtol=1e-13)
    assert (found != torchs(g, y)).all()


@pytest.mark.parametrize(
    ("of_g", "of_y", "expected"),
    [
        (np.float16, BFLOAT16, np.float32),
        (np.float16, np.float32, np.float32),
        (np.float32, np.float64, np.float64),
        (BFLOAT16, np.complex64, np.complex64),
        (np.complex64, np.float64, np.complex128),
        (np.complex64, np.complex128, np.complex128),
    ],
)
def test_the_result_has_the_promoted_dtype(of_g: Any, of_y: Any, expected: Any) -> None:
    g, y = np.full(3, 3, of_g), np.full(3, 0.25, of_y)
    found = run(OPERATOR, g, y)
    assert found.dtype == expected
    np.testing.assert_array_equal(found, np.full(3, 0.5625, expected))  # 3 * 0.75 * 0.25


@pytest.mark.parametrize("kind", [*FLOATS, np.float64, np.complex64, np.complex128], ids=title)
def test_the_result_is_cast_to_the_dtype_of_the_output(kind: Any) -> None:
    g, y = drawn((4, 6), (4, 6), dtype=np.float16)
    found = run(OPERATOR, g, y, np.empty((4, 6), kind))
    np.testing.assert_array_equal(found, run(OPERATOR, g, y).astype(kind))


def test_double_is_cast_to_a_shorter_output() -> None:
    g, y = drawn((4, 6), (4, 6))
    found = run(OPERATOR, g, y, np.empty((4, 6), np.float32))
    np.testing.assert_array_equal(found, run(OPERATOR, g, y).astype(np.float32))


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend310B1"])
def test_a_product_without_bf16_refuses_it_for_grad_output_alone(soc: str) -> None:
    refused = Fault({"grad_output": {"dtype": BF16}}, DTypeError, ("grad_output",))
    assert TABLE.refusal(refused, soc=soc) == refused.answer
    for name in ("output", "grad_input"):
        assert TABLE.refusal(Fault({name: {"dtype": BF16}}, DTypeError, ()), soc=soc) is None


@pytest.mark.parametrize("kind", [FLOAT, FLOAT16, DOUBLE, COMPLEX64, COMPLEX128])
@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend950PR_9589"])
def test_every_product_takes_the_other_dtypes(soc: str, kind: Any) -> None:
    names = ("grad_output", "output", "grad_input")
    changes = {name: {"dtype": kind} for name in names}
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


def test_the_table_has_a_defect_for_every_check_that_refuses_on_an_atlas_a2() -> None:
    elsewhere = {
        "grad_output not BF16 where the product has none",
        "dtypes of grad_output and output promote to one",
        "dtype of promotion is one that the product takes",
    }
    assert TABLE.refusing() >= TABLE.may_refuse() - elsewhere

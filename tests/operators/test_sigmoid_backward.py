"""aclnnSigmoidBackward: prototype, values against torch, complex numbers, its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import (
    BF16,
    COMPLEX64,
    COMPLEX128,
    INT32,
    UINT16,
)
from npucall.errors import DTypeError, ShapeError
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import BF16 as BFLOAT16
from .gradients import (
    FLOATS,
    INF,
    NAN,
    aten,
    drawn,
    run,
)
from .gradients import SIGMOID as OPERATOR
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, between

# The checks, in order [src:sigmoid]
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


def torchs(g: Any, y: Any) -> Any:
    return aten("sigmoid_backward", g, y)


# g, y, expected
CELLS = [
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
]


def terms(tensors: dict[str, Any], *_: Any) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    g, y = (np.abs(array) for array in tensors.values())
    return g * y * (1 + y)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* output, aclTensor* gradInput",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE COMPLEX64 COMPLEX128",
    older=f"{TWO} DOUBLE COMPLEX64 COMPLEX128",
    unreachable=frozenset(
        {
            "grad_output not BF16 where the product has none",
            "dtypes of grad_output and output promote to one",
            "dtype of promotion is one that the product takes",
        }
    ),
    values={"output": between(-1, 2)},
    cells=Cells("grad_output output", CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(OPERATOR, "sigmoid_backward"),
    noise=terms,
    casts=(*FLOATS, np.float64, np.complex64, np.complex128),
    stretches=True,
)


@pytest.mark.torch
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


@pytest.mark.torch
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

"""What the simulated device computes for the operators that npucall declares."""

import json
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.dtypes import AnyArray
from npucall.errors import DTypeError
from npucall.operators import CATALOGUE

from .caller import INFNAN, PROTOTYPES, SATURATES, Caller
from .generic_kernels import FORMULAS
from .kernels import run

ONE = np.ones(2, np.float32)
KL_DIV, L1 = "aclnnKlDivBackward", "aclnnL1LossBackward"


def f32(*values: object) -> AnyArray:
    return np.array(values, np.float32)


def strided_output() -> tuple[tuple[Any, ...], AnyArray, list[Any]]:
    """It is written through its strides, and its gaps stay."""
    storage = f32(9, 9, 9, 9, 9)
    return (L1, ONE, ONE, f32(0, 2), 2, storage[1::2]), storage, [9, 1, 9, -1, 9]


def with_output(after: list[Any], *call: Any) -> tuple[tuple[Any, ...], AnyArray, list[Any]]:
    out = np.full(np.shape(after), 9, np.float32)
    return (*call, out), out, after


def rows() -> list[tuple[tuple[Any, ...], AnyArray, list[Any]]]:
    """Calls, an array, and what is to be in it then; made anew for each run."""
    half = f32(0.5)
    target, nothing = np.ones((1, 4), np.float32), np.empty((0, 4), np.float32)
    return [
        strided_output(),
        with_output([-2, -3], KL_DIV, ONE, ONE, f32(2, 3), 0, False),
        # An input is read through its strides.
        with_output([0, -2], KL_DIV, ONE, ONE, f32(0, 1, 2, 3)[::2], 0, False),
        with_output([2, 2], "aclnnMseLossBackward", ONE, ONE * 3, ONE, 1),
        # A scalar is passed on with its dtype, a null for an optional input is its absence.
        with_output([0, 1], "aclnnThresholdBackward", ONE, f32(1, 3), np.int64(2)),
        with_output([2], "aclnnBinaryCrossEntropyBackward", ONE[:1], half, half * 0, None, 2),
        # The output of a call that has nothing to do is left as it was.
        with_output([[9, 9, 9, 9]], "aclnnKlDivTargetBackward", target, nothing, target, 0, False),
    ]


def test_a_declared_operator_is_evaluated_into_its_output(caller: Caller) -> None:
    wrong = []
    for call, array, after in rows():
        caller.launch(*call)
        if array.tolist() != after:
            wrong.append((call[0], array))
    assert wrong == []


def test_a_text_is_passed_on_and_two_outputs_are_both_written(caller: Caller) -> None:
    exact, approximated = np.empty((2, 2), np.float32)
    caller.launch("aclnnGeluBackwardV2", ONE, ONE, "none", exact)
    caller.launch("aclnnGeluBackwardV2", ONE, ONE, "tanh", approximated)
    assert exact[0] == pytest.approx(1.08331, abs=1e-4)
    assert approximated[0] == pytest.approx(1.08296, abs=1e-4)
    out, gradient, x = np.empty((1, 2), np.float32), np.empty(1, np.float32), f32([-2, 4])
    caller.launch(
        "aclnnPreluBackward", np.ones((1, 2), np.float32), x, ONE[:1] * 0.5, out, gradient
    )
    assert (out.tolist(), gradient.tolist()) == ([[0.5, 1.0]], [-2.0])


def test_a_stream_without_infnan_saturates(caller: Caller) -> None:
    out = np.empty(3, np.float16)
    given = np.array([60000, -60000, np.nan], np.float16)
    caller.launch("aclnnRsub", -given, given, np.float32(1), out)
    assert out.tolist()[:2] == [np.inf, -np.inf]
    caller.on(SATURATES)
    caller.launch("aclnnRsub", -given, given, np.float32(1), out)
    assert out.tolist() == [65504, -65504, 0]
    caller.on(INFNAN)


@pytest.mark.parametrize(("package", "gradient"), [("builtin", np.nan), ("custom", 0.0)])
def test_the_package_decides_the_variant(caller: Caller, package: str, gradient: float) -> None:
    out, zero = np.empty(1, np.float32), f32(0)
    caller.launch("aclnnKlDivTargetBackward", ONE[:1], zero, zero, 0, False, out, package=package)
    np.testing.assert_equal(out[0], np.float32(gradient))


@each(
    ("call", "says"),
    [
        ((KL_DIV, ONE, ONE, ONE, 0, False, f32(0, 0, 0)), "ShapeError: .*out"),
        (("aclnnMm", f32([1]), f32([1]), f32([0]), 77), "ValueError: .*cubeMathType"),
        (("aclnnNonzero", ONE, np.empty(2, np.int64)), "NotImplementedError: aclnnNonzero"),
    ],
)
def test_what_raises_shows_at_the_synchronise(
    caller: Caller, call: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(AssertionError, match=f"(?s)507015.*{says}"):
        caller.launch(*call)


@each(
    ("operator", "dtype", "error", "says"),
    [
        ("aclnnExp2", 0, ValueError, "expected 8 bytes of storage, found 4"),
        ("aclnnTanh", 27, DTypeError, "self"),  # BF16, by the rules of the SoC
    ],
)
def test_a_short_storage_and_a_type_that_the_soc_has_not_fail(
    operator: str, dtype: int, error: type[Exception], says: str
) -> None:
    tensor = {"address": 0, "bytes": 4, "dtype": dtype, "shape": [2], "strides": [1], "offset": 0}
    value = {**tensor, "storage_shape": [2], "format": 2}
    arguments = [
        {"name": name, "kind": "Tensor", "output": name == "out", "value": value}
        for name in ("self", "out")
    ]
    launched = {"operator": operator, "package": "builtin", "soc": "Ascend910A"}
    with pytest.raises(error, match=says):
        run(json.dumps({**launched, "arguments": arguments}))


def test_an_operator_has_a_declaration_or_a_formula() -> None:
    assert not {operator.name for operator in CATALOGUE} & set(FORMULAS)
    assert set(FORMULAS) <= set(PROTOTYPES)

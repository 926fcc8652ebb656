"""The worked examples E1 to E12, to all their digits [src:worked-examples]."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tests.operators.rows import each_row

from npucall.compute.evaluate import compute
from npucall.dtypes import FLOAT
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.kl_div_target_backward_community import kl_div_target_backward_community
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode

from . import raw

if TYPE_CHECKING:
    from npucall_client import Client

KL, L1 = kl_div_backward, l1_loss_backward
BUILTIN = kl_div_target_backward_builtin
COMMUNITY = kl_div_target_backward_community
DOCUMENTED = kl_div_target_backward_documented
NONE, MEAN, SUM, BATCHMEAN = range(4)
HALF, SINGLE, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
NAN = float("nan")

HALF_DIGIT = 0.5e-8
"""The examples have eight decimals."""
OF_TERMS = 4 * 2.0**-24
"""What FLOAT's own rounding may add, relative to the largest term."""


@dataclass(frozen=True)
class Example:
    """Tensors, and the result that was computed for them."""

    name: str
    operator: Any
    grad_output: Any
    self: Any
    target: Any
    expected: Any
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.operator.variant}".strip()

    def tensors(self, dtype: Any) -> dict[str, Any]:
        given = {"grad_output": self.grad_output, "self": self.self, "target": self.target}
        return {name: np.asarray(values, dtype) for name, values in given.items()}

    def is_near(self, found: Any) -> bool:
        """Whether it has the digits of the document, as far as FLOAT has them."""
        g, s, t = (np.abs(values).max() for values in self.tensors(np.float64).values())
        near = HALF_DIGIT + OF_TERMS * g * max(s, t, 1)
        fits = np.allclose(found, self.expected, rtol=0, atol=near, equal_nan=True)
        return found.dtype == SINGLE and fits


A = [[2, 3], [5, 8]]
S = np.log([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
T = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
LOGARITHMS = [[-1, -2, -0.5], [-3, 0, -0.25]]
E2 = [[-0.61370564, -2.70416313], [-11.95281044, -39.36446767]]
E8 = [[0.28235791, 0.02749282, 0.17319987], [-0.01321062, 0.73465760, 0.43256951]]
E8_DOCUMENTED = [[0.84707372, 0.08247845, 0.51959962], [-0.03963186, 2.20397280, 1.29770853]]
E9_S, E9_T = [[-1, -2], [0.5, -0.5]], [[0, 0.5], [1, 0.25]]
E9 = (np.full((2, 2), 4), E9_S, E9_T)
OF_NONE, OF_MEAN, OF_BATCHMEAN = ({"reduction": code} for code in (NONE, MEAN, BATCHMEAN))
LOG_MEAN = {"reduction": MEAN, "log_target": True}

EXAMPLES = [
    Example("E1", KL, A, A, A, [[-4, -9], [-25, -64]], OF_NONE),
    *(
        Example("E2", operator, A, A, A, E2, OF_NONE)
        for operator in (BUILTIN, COMMUNITY, DOCUMENTED)
    ),
    Example("E3", L1, A, A, A, np.zeros((2, 2)), OF_NONE),
    Example("E4", KL, 1, S, T, [[-0.1, -0.15, -0.25], [-0.3, -0.15, -0.05]], OF_BATCHMEAN),
    Example(
        "E5",
        KL,
        2,
        S,
        LOGARITHMS,
        [[-0.12262648, -0.04511176, -0.20217689], [-0.01659569, -0.33333333, -0.25960026]],
        LOG_MEAN,
    ),
    Example(
        "E6 none",
        KL,
        [[1, 2, 3], [-1, -2, -3]],
        [[-1], [-2]],
        [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
        [[-1.4], [3.2]],
        OF_NONE,
    ),
    Example(
        "E6 mean",
        KL,
        6,
        [[-1], [-2]],
        [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
        [[-0.6], [-1.5]],  # N = 6, not 2 and not 3
        OF_MEAN,
    ),
    Example("E7", KL, 1, [[0, 0]], [[1, 2], [3, 4], [5, 6]], [[-3, -4]], OF_BATCHMEAN),
    *(Example("E8", operator, 2, S, LOGARITHMS, E8, LOG_MEAN) for operator in (BUILTIN, COMMUNITY)),
    Example("E8", DOCUMENTED, 2, S, LOGARITHMS, E8_DOCUMENTED, LOG_MEAN),  # by 2 instead of 6
    Example("E9", COMMUNITY, *E9, [[0, 2.30685282], [0.5, 0.11370564]], OF_MEAN),
    Example("E9", BUILTIN, *E9, [[NAN, 2.30685282], [0.5, 0.11370564]], OF_MEAN),
    Example("E9", DOCUMENTED, *E9, [[0, 4.61370564], [1, 0.22741128]], OF_MEAN),
    Example("E10", L1, 12, [[1, 2, 3]], [[2], [2]], [[-2, 0, 2], [-2, 0, 2]], OF_MEAN),
]


def test_examples_in_float_have_the_digits_of_the_document(client: Client) -> None:
    wrong: list[Any] = []
    found = None
    for example in EXAMPLES:
        with suppress(*raw.ABSENT):
            found = client.run(example.operator, **example.tensors(SINGLE), **example.attributes)
            wrong += [] if example.is_near(found) else [(str(example), found)]
    assert not wrong
    # E10, summed over the stretched axis, is the gradient that torch gives.
    assert found is not None
    np.testing.assert_array_equal(found.sum(0, keepdims=True), [[-4, 0, 4]])


@each_row("example", EXAMPLES)
def test_an_example_in_double_has_every_digit_of_the_document(example: Example) -> None:
    found = compute(example.operator, **example.tensors(np.float64), **example.attributes)
    np.testing.assert_allclose(found, example.expected, rtol=1e-14, atol=1.01 * HALF_DIGIT)


def test_e11_and_e12_are_rounded_once(client: Client) -> None:
    g, t = np.full(3, 3.3, HALF), np.full(3, 0.7, HALF)
    np.testing.assert_allclose(
        [float(g[0]), float(t[0])], [3.30078125, 0.70019531], atol=HALF_DIGIT
    )
    found = client.run(KL, g, t, t, reduction=MEAN)
    assert found.dtype == HALF
    np.testing.assert_allclose(found.astype(float), [-0.77050781] * 3, rtol=0, atol=HALF_DIGIT)
    assert found[0] != HALF(-0.77001953)  # what rounding every step gives, one ulp away
    g, t = np.full(3, 3.3, BF16), np.full(3, 0.7, BF16)
    assert (float(g[0]), float(t[0])) == (3.296875, 0.69921875)
    found = client.run(KL, g, t, t, reduction=MEAN)
    assert found.dtype == BF16
    np.testing.assert_array_equal(found.astype(float), [-0.76953125] * 3)
    values = np.full(3, 300, HALF)  # the mean brings an overflow of FLOAT16 back
    found = client.run(KL, values, values, values, reduction=MEAN)
    np.testing.assert_array_equal(found, [-30000] * 3)
    assert np.isinf(client.run(KL, values, values, values, reduction=NONE)).all()


def test_the_layout_example_finds_its_elements_through_strides_and_offset(client: Client) -> None:
    storage = np.arange(1, 9, dtype=SINGLE)
    target = np.lib.stride_tricks.as_strided(storage[1:], (2, 2), (12, 8))  # strides (3, 2)
    np.testing.assert_array_equal(target, [[2, 4], [5, 7]])
    ones = np.ones((2, 2), SINGLE)
    for keep_layout in (False, True):
        caller = client.options(keep_layout=keep_layout)
        found = caller.run(KL, ones, ones, target, reduction=NONE)
        np.testing.assert_array_equal(found, [[-2, -4], [-5, -7]])


def test_the_layout_example_travels_as_storage_with_strides_and_offset(client: Client) -> None:
    ones = TensorSpec(FLOAT, (2, 2))
    target = TensorSpec(FLOAT, (2, 2), strides=(3, 2), offset=1, storage_shape=(8,))
    arguments: raw.Arguments = {
        "grad_output": ones,
        "self": ones,
        "target": target,
        "reduction": NONE,
    }
    call = encode(KL.name, "", arguments, ("grad_output", "target"))  # self is not read
    storage = {
        "grad_output": np.ones(4, "<f4").tobytes(),
        "target": np.arange(1, 9, dtype="<f4").tobytes(),
    }
    (out,) = raw.execute_bytes(client, call, storage).storage
    np.testing.assert_array_equal(np.frombuffer(out, "<f4"), [-2, -4, -5, -7])


def test_every_step_of_the_masked_variants_rounds_to_float16(client: Client) -> None:
    exact = 2.5 * (np.log(0.30004883) + 1 + 1.70019531)
    assert exact == pytest.approx(3.74096314, abs=2e-8)
    for operator in (COMMUNITY, DOCUMENTED):
        with suppress(*raw.ABSENT):
            found = client.run(operator, *_stepwise(1), reduction=NONE)
            np.testing.assert_allclose(found.astype(float), [3.74023438], rtol=0, atol=HALF_DIGIT)
            found = client.run(operator, *_stepwise(3), reduction=MEAN)  # both divide by 3 here
            expected = [1.24609375] * 3  # exactly it is 1.24698771
            np.testing.assert_array_equal(found.astype(float), expected)


def _stepwise(count: int) -> list[Any]:
    return [np.full(count, value, HALF) for value in (2.5, -1.7, 0.3)]

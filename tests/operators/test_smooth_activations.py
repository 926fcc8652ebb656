"""Gelu, silu, mish, sigmoid, tanh, glu, logit, their gradients: digits that a formula may lose."""

import math
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.compute.evaluate import compute
from npucall.dtypes import FLOAT, FLOAT16
from npucall.operators.gelu import gelu
from npucall.operators.gelu_backward import gelu_backward
from npucall.operators.gelu_backward_v2 import gelu_backward_v2
from npucall.operators.gelu_v2 import gelu_v2
from npucall.operators.glu import glu
from npucall.operators.glu_backward import glu_backward
from npucall.operators.logit import logit
from npucall.operators.logit_grad import logit_grad
from npucall.operators.mish import mish
from npucall.operators.sigmoid import sigmoid
from npucall.operators.silu import silu
from npucall.operators.silu_backward import silu_backward
from npucall.operators.tanh import tanh
from npucall.operators.tanh_backward import tanh_backward

from .calls import FLOATS, INF, LOCAL, NAN, numbers, run
from .ulp import assert_rounded


def density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def distribution(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def test_far_below_0_the_form_with_erf_keeps_its_digits() -> None:
    x = np.linspace(-13, -4, 901, dtype=np.float32)
    expected = [float(v) * distribution(float(v)) for v in x]
    assert_rounded(LOCAL.run(gelu_v2, x), expected, np.float32)
    slopes = [distribution(v) + v * density(v) for v in map(float, x)]
    assert_rounded(LOCAL.run(gelu_backward_v2, np.ones_like(x), x), slopes, np.float32)


def test_far_below_0_the_form_with_tanh_keeps_its_digits() -> None:
    x = np.linspace(-8, -5, 301, dtype=np.float32)
    wide = x.astype(np.float64)
    u = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    power = np.exp(2 * u)  # (1 + tanh u) / 2 = e^2u / (1 + e^2u)
    result = wide * power / (1 + power)
    # The rounding of 2 u changes the result by so much.
    terms = np.abs(result) * (1 + np.abs(1.6 * wide * (1 + 0.045 * wide * wide)))
    assert_rounded(LOCAL.run(gelu, x), result, np.float32, terms)
    slope = np.sqrt(2 / np.pi) * (1 + 0.134145 * wide**2)
    expected = power / (1 + power) + 2 * wide * power / (1 + power) ** 2 * slope
    assert_rounded(LOCAL.run(gelu_backward, np.ones_like(x), x), expected, np.float32)


def test_no_step_overflows_for_the_largest_float() -> None:
    x = np.array([1e20, -1e20, 3e38, -3e38], np.float32)
    np.testing.assert_array_equal(LOCAL.run(gelu, x), [x[0], 0, x[2], 0])
    np.testing.assert_array_equal(LOCAL.run(gelu_backward, np.ones_like(x), x), [1, 0, 1, 0])


def test_the_first_version_is_the_tanh_form_of_the_second() -> None:
    g, x = numbers((4, 6), (4, 6), dtype=np.float32)
    np.testing.assert_array_equal(LOCAL.run(gelu, x), LOCAL.run(gelu_v2, x, approximate=1))
    found = LOCAL.run(gelu_backward, g, x)
    np.testing.assert_array_equal(found, LOCAL.run(gelu_backward_v2, g, x, approximate="tanh"))
    assert (found != LOCAL.run(gelu_backward_v2, g, x, approximate="none")).any()


def test_silu_far_below_0_keeps_what_is_left() -> None:
    x = np.linspace(-103, -80, 231, dtype=np.float32)  # below -88.7 e^-x is beyond FLOAT
    wide = x.astype(np.float64)
    expected = wide / (1 + np.exp(-wide))
    assert_rounded(LOCAL.run(silu, x), expected, np.float32, np.abs(expected))
    slopes = (1 + wide) * np.exp(wide)  # the sigmoid is e^x, and its square nothing
    assert_rounded(LOCAL.run(silu_backward, np.ones_like(x), x), slopes, np.float32)


def test_a_few_results_of_silu_are_those_of_torch() -> None:
    # torch 2.13, float64
    found: Any = LOCAL.run(silu, np.array([1, -1, 3, -3], np.float32))
    expected = [0.73105858, -0.26894142, 2.85772238, -0.14227762]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_mish_far_below_0_keeps_what_is_left() -> None:
    x = np.linspace(-103, -80, 231, dtype=np.float32)  # the factor is e^x there
    wide = x.astype(np.float64)
    expected = wide * np.exp(wide)
    assert_rounded(LOCAL.run(mish, x), expected, np.float32, np.abs(expected))


def test_a_few_results_of_mish_are_those_of_torch() -> None:
    # torch 2.13, float64
    found: Any = LOCAL.run(mish, np.array([1, -1, 3, -3], np.float32))
    expected = [0.86509839, -0.30340147, 2.98653500, -0.14564744]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@each("kind", [*FLOATS, np.float64, np.complex64, np.complex128])
def test_integers_are_converted_to_the_dtype_of_the_output_before_their_sigmoid(kind: Any) -> None:
    x = np.array([-7, -1, 0, 3, 127], np.int8)
    answer = LOCAL.options(outputs={"out": np.empty(x.shape, kind)}).execute(sigmoid, x)
    assert answer.kernel_dtype.numpy == kind
    np.testing.assert_array_equal(answer.value, LOCAL.run(sigmoid, x.astype(kind)))
    plain = LOCAL.execute(sigmoid, x)
    assert plain.kernel_dtype is FLOAT  # without an output
    np.testing.assert_array_equal(plain.value, LOCAL.run(sigmoid, x.astype(np.float32)))


def test_integers_are_rounded_to_the_dtype_of_the_output_first() -> None:
    x = np.array([-2049, 2**40], np.int64)  # -2048 and infinity in FLOAT16
    np.testing.assert_array_equal(run(sigmoid, {"self": x}, out=np.empty(2, np.float16)), [0, 1])


def test_floats_are_computed_in_their_own_dtype_whatever_the_output_is() -> None:
    x = np.array([0.3, -2.5], np.float16)
    answer = LOCAL.options(outputs={"out": np.empty(2, np.float64)}).execute(sigmoid, x)
    assert answer.kernel_dtype is FLOAT16
    np.testing.assert_array_equal(answer.value, answer.value.astype(np.float16))


def test_any_byte_but_0_is_true() -> None:
    x = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    found = LOCAL.run(sigmoid, x)
    assert found[0] == 0.5
    assert len({*found[1:].tolist()}) == 1


def test_subnormal_results_are_kept() -> None:
    x = np.array([-89, -95, -103], np.float32)
    expected = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(LOCAL.run(sigmoid, x), expected, rtol=1e-5, atol=2.0**-149)


@each("kind", [np.complex64, np.complex128])
def test_the_sigmoid_of_complex_numbers_far_out_is_0_or_1(kind: Any) -> None:
    x = np.array([1000 + 1j, -1000 - 1j, INF + 2j, -INF + 2j], kind)
    np.testing.assert_array_equal(LOCAL.run(sigmoid, x), [1, 0, 1, 0])


def test_the_tanh_of_integers_is_rounded_to_float_and_only_then_to_the_output() -> None:
    x = np.arange(-4, 5)
    answer = LOCAL.options(outputs={"out": np.empty(x.shape, np.float16)}).execute(tanh, x)
    assert answer.kernel_dtype is FLOAT
    np.testing.assert_array_equal(answer.value, LOCAL.run(tanh, x).astype(np.float16))


@pytest.mark.torch
def test_far_out_and_near_0_tanh_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    x = np.concatenate([np.linspace(-12, 12, 999), np.logspace(-30, 0, 99)]).astype(np.float32)
    expected = torch.tanh(torch.tensor(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(LOCAL.run(tanh, x), expected, rtol=2**-22)


@each("sign", [1, -1])
def test_the_gradient_of_tanh_keeps_its_digits_near_1(sign: int) -> None:
    y = (sign * (1 - np.arange(1, 200) * 2.0**-24)).astype(np.float32)
    expected = 1 - y.astype(np.float64) ** 2
    np.testing.assert_allclose(
        LOCAL.run(tanh_backward, np.ones_like(y), y), expected, rtol=2.0**-23
    )


def test_behind_a_gate_that_is_nearly_closed_a_value_keeps_its_digits() -> None:
    x = np.array([1e30, -100], np.float32)
    # 1e30 e^-100; e^-100 alone has five bits in FLOAT
    np.testing.assert_allclose(LOCAL.run(glu, x), [3.720075976e-14], rtol=2**-20)


def test_a_wide_open_gate_still_has_a_gradient() -> None:
    g, x = np.ones(1, np.float32), np.array([1, 50], np.float32)
    found = LOCAL.run(glu_backward, g, x)
    # e^-50 / (1 + e^-50)^2; 1 - sigmoid(50) would be 0 in float32
    np.testing.assert_allclose(found[1], 1.9287498479639178e-22, rtol=2**-21)


@each("eps of_minus_2 slope_at_2", [(-1e-60, -INF, 0.0), (-1e-30, NAN, NAN), (1e-60, -INF, 0.0)])
def test_an_eps_below_0_counts_as_such_if_it_does_as_a_float32(
    eps: float, of_minus_2: float, slope_at_2: float
) -> None:
    found = LOCAL.run(logit, np.array([-2.0], np.float32), eps=eps)
    np.testing.assert_array_equal(found, [of_minus_2])
    found = LOCAL.run(logit_grad, np.array([2.0], np.float32), np.array([1.0], np.float32), eps=eps)
    np.testing.assert_array_equal(found, [slope_at_2])


def test_the_far_end_of_the_range_is_rounded_to_float32() -> None:
    one = np.array([1.0], np.float32)  # 1 - 2^-26 is 1 in float32
    assert LOCAL.run(logit, one, eps=2.0**-26) == INF
    assert LOCAL.run(logit_grad, one, one, eps=2.0**-26) == INF


def test_eps_counts_as_a_float32() -> None:
    above = np.float32(0.1)  # 0.10000000149
    x = np.array([0.1, above, np.nextafter(above, 0)])
    found = compute(logit_grad, x, np.ones(3), eps=0.1)
    np.testing.assert_array_equal(found != 0, [False, True, False])

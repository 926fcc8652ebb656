"""Formulas with one thing wrong each; otherwise they are the operators' own."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.facts import Facts
from npucall.operators.gelu_v2 import gelu_v2
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.l1_loss_backward import l1_loss_backward

MEAN, BATCHMEAN = 1, 3

Tensor = Any
"""An array of the formula."""


def kl_with_factor(facts: Facts, g: Tensor, t: Tensor, divisor: int, *, log: bool) -> Any:
    weight = np.exp(t) if log else t
    return -(weight * g) * facts.reciprocal(divisor)


def kl_mean_of_self(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    divisors = {MEAN: facts.count("self"), BATCHMEAN: facts.first("common")}
    divisor = divisors.get(reduction, 1)
    return kl_with_factor(facts, grad_output, target, divisor, log=log_target)


def kl_batchmean_of_self(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    divisors = {MEAN: facts.count("common"), BATCHMEAN: facts.first("self")}
    divisor = divisors.get(reduction, 1)
    return kl_with_factor(facts, grad_output, target, divisor, log=log_target)


def kl_sum_of_all(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    divisor = facts.count("common") if reduction in (MEAN, 2) else 1
    return kl_with_factor(facts, grad_output, target, divisor, log=log_target)


def kl_without_sign(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    return -kl_div_backward.formula(facts, grad_output, self, target, reduction, log_target)


def kl_that_chops(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    """Where all inputs are exact in BF16, results are cut off there twice instead of rounded."""
    right = kl_div_backward.formula(facts, grad_output, self, target, reduction, log_target)
    if any(np.any(array != chopped(array)) for array in (grad_output, target)):
        return right
    product = chopped(grad_output * (np.exp(target) if log_target else target))
    factors = {MEAN: facts.count("common"), BATCHMEAN: facts.first("common")}
    return -chopped(product * facts.reciprocal(factors.get(reduction, 1)))


def chopped(array: Tensor) -> Tensor:
    """Float32 numbers without the lower half of their bits."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).reshape(np.shape(array))


def kl_of_saturating_exp(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    right = kl_div_backward.formula(facts, grad_output, self, target, reduction, log_target)
    top = np.float32(np.finfo(np.float32).max)
    return np.where(np.isinf(right), np.copysign(top, right), right)


def l1_positive_at_equality(
    facts: Facts, grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Any:
    sign = np.where(self >= target, np.float32(1), np.float32(-1))
    sign = np.where(np.isnan(self) | np.isnan(target), np.float32(0), sign)
    return sign * (
        grad_output * facts.reciprocal(facts.count("common") if reduction == MEAN else 1)
    )


def l1_sign_of_nan(
    facts: Facts, grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Any:
    """As the TBE kernel: -1 unless greater or equal."""
    sign = np.where(self > target, np.float32(1), np.where(self == target, np.float32(0), -1))
    factor = facts.reciprocal(facts.count("common") if reduction == MEAN else 1)
    return sign.astype(np.float32) * (grad_output * factor)


def l1_swapped(
    facts: Facts, grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Any:
    return l1_loss_backward.formula(facts, grad_output, target, self, reduction)


def l1_sign_of_difference(
    facts: Facts, grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Any:
    """Equal infinities have no difference."""
    factor = facts.reciprocal(facts.count("common") if reduction == MEAN else 1)
    return np.sign(self - target) * (grad_output * factor)


def l1_compared_as_sent(
    facts: Facts, grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Any:
    """Compares what was sent, before it is converted to the promoted dtype."""
    sent, other = self.astype(np.float64), target.astype(np.float64)
    sign = np.subtract(sent > other, sent < other, dtype=np.float32)
    factor = facts.reciprocal(facts.count("common") if reduction == MEAN else 1)
    return sign * (grad_output.astype(np.float32) * factor)


def l1_chopped(
    facts: Facts, grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Any:
    """Where the upstream gradient is exact in BF16, results are cut off there."""
    right = l1_loss_backward.formula(facts, grad_output, self, target, reduction)
    return right if np.any(grad_output != chopped(grad_output)) else chopped(right)


def target_without_mask(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    """Where target is 0 the logarithm's infinity stays."""
    factor = facts.reciprocal(facts.first("target") if reduction == MEAN else 1)
    if log_target:
        return grad_output * ((target + 1 - self) * np.exp(target)) * factor
    return grad_output * (np.log(target) + 1 - self) * factor


def target_masked_first(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    """Masks before it multiplies, so that an upstream NaN or infinity shows where target is 0."""
    factor = facts.reciprocal(facts.first("target") if reduction == MEAN else 1)
    if log_target:
        return grad_output * ((target + 1 - self) * np.exp(target)) * factor
    inner = np.where(np.equal(target, 0), target.dtype.type(0), np.log(target) + 1 - self)
    return grad_output * inner * factor


def target_swapped(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    right = kl_div_target_backward_builtin.formula
    return right(facts, self, grad_output, target, reduction, log_target)


def target_of_zero_is_zero(
    facts: Facts,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    reduction: int,
    log_target: bool,
) -> Any:
    right = kl_div_target_backward_builtin.formula
    answer = right(facts, grad_output, self, target, reduction, log_target)
    return answer if log_target else np.where(np.equal(target, 0), np.float32(0), answer)


def softmax_of_large_powers(facts: Facts, self: Tensor, dim: int) -> Any:
    power = np.exp(self)
    return power / facts.row_sum(power)


def gelu_of_any_number(facts: Facts, x: Tensor, approximate: int) -> Any:
    return gelu_v2.formula(facts, x, min(abs(approximate), 1))


def elu_without_exception(
    facts: Facts, self: Tensor, alpha: float, scale: float, input_scale: float
) -> Any:
    """The formula of the page, whatever its factors are."""
    bent = np.expm1(self * facts.dtype.type(input_scale)) * alpha * scale
    return np.where(self <= 0, bent, self * scale)

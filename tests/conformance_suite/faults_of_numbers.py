"""Faults that only certain numbers show: large codes and labels, ends, bytes, sizes, gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute import evaluate
from npucall.compute.operands import Operand
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.logit_grad import logit_grad
from npucall.operators.mse_loss import mse_loss
from npucall.operators.mse_loss_backward import mse_loss_backward
from npucall.operators.mul import mul
from npucall.operators.nll_loss import nll_loss
from npucall.tensors import view

from .seeded import AnyOperator, Seed, changed, fault, rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer

MEAN = 1
RIGHT_RUN, RIGHT_TAKEN = evaluate.run, Operand.taken


def zeros_for_means(
    facts: Any, grad_output: Any, self: Any, target: Any, reduction: int = 1
) -> Any:
    """A gradient that is zeros where it is divided by a count."""
    right = mse_loss_backward.formula(facts, grad_output, self, target, reduction)
    return np.zeros_like(right) if reduction == MEAN else right


def code_of_32_bits(
    facts: Any,
    grad_output: Any,
    self: Any,
    target: Any,
    reduction: int = 1,
    log_target: bool = False,
) -> Any:
    """The reduction is cut to 32 bits."""
    right = kl_div_backward.formula
    return right(facts, grad_output, self, target, reduction & 0xFFFFFFFF, log_target)


def signed_labels(  # as many as the operator has
    facts: Any, self: Any, target: Any, weight: Any, reduction: int = 1, ignore_index: int = -100
) -> Any:
    """Labels of one byte have a sign."""
    labels = Signed(target) if target.dtype == np.uint8 else target
    return nll_loss.formula(facts, self, labels, weight, reduction, ignore_index)


class Signed:
    """Labels of which those beyond 127 are less than 0."""

    def __init__(self, labels: Any) -> None:
        self._labels = labels
        self.shape, self.dtype = labels.shape, labels.dtype

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self._labels[index]).astype(np.int8).astype(np.int64)

    def __array__(self, dtype: Any = None, **how: Any) -> Any:
        return np.asarray(self[...], dtype)


def end_in_double(facts: Any, x: Any, dy: Any, eps: float = -1.0) -> Any:
    """The ends are compared as they were sent, not as the FLOAT that they become."""
    if eps < 0:
        return logit_grad.formula(facts, x, dy, eps)
    wide = x.astype(np.float64)
    inside = (wide >= eps) & (wide <= 1 - eps)
    return np.where(inside, dy / (x * np.subtract(1, x)), facts.dtype.type(0))


def scaled_at_last(
    facts: Any,
    grad_output: Any,
    self: Any,
    target: Any,
    reduction: int = 1,
    log_target: bool = False,
) -> Any:
    """The products come before the factor, which brings back what is beyond FLOAT by then."""
    formula: Any = kl_div_target_backward_builtin.formula
    once = formula(facts, grad_output, self, target, 0, log_target)
    count = facts.count("common") if reduction == MEAN else facts.first("common")
    return once * facts.reciprocal(count if reduction in (MEAN, 3) else 1)


def squared_in_double(facts: Any, self: Any, target: Any, reduction: int = 1) -> Any:
    """Elements that FLOAT cannot hold count nevertheless."""
    return np.square((self - target).astype(np.float64))


def without_conjugate_part(facts: Any, self: Any, other: Any) -> Any:
    """Of a complex product the part that both imaginary ones make is missing."""
    product = self * other
    if product.dtype.kind != "c":
        return product
    return product + np.imag(self) * np.imag(other)


def only_one_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of BOOL is true if it is 1."""

    def taken(self: Operand, block: AnyArray) -> AnyArray:
        if self._is_truth:
            block = (block.view(np.uint8) == 1).view(np.bool_)
        return RIGHT_TAKEN(self, block)

    monkeypatch.setattr(Operand, "taken", taken)


def gaps_filled(byte: int) -> Seed:
    """All bytes between the elements of an output have the same value."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
            answers: list[Buffer] = []
            for answer, spec in zip(
                RIGHT_RUN(call, storages, *rest), call.outputs.values(), strict=True
            ):
                filled = bytearray([byte]) * len(answer)
                if spec.elements:
                    view(spec, filled)[...] = view(spec, answer)
                answers.append(filled)
            return answers

        monkeypatch.setattr(evaluate, "run", wrong)

    return seed


def empty_first(operator: AnyOperator, start: str) -> Seed:
    """An empty call ends before all checks, except that its pointers must not be null."""
    ends = rules_of(operator, start)
    rest = [rule for rule in operator.checks if rule not in ends]
    return changed(operator, checks=(rest[0], *ends, *rest[1:]))


NUMBERS = (
    fault("a gradient of a mean is zeros", "aclnnMseLossBackward",
          changed(mse_loss_backward, formula=zeros_for_means),
          found_in="grid size", spared="invalid", profile="cann-standard"),
    fault("a reduction is cut to 32 bits", "aclnnKlDivBackward",
          changed(kl_div_backward, formula=code_of_32_bits),
          found_in="reduction", spared="grid edge"),
    fault("labels of UINT8 have a sign", "aclnnNLLLoss", changed(nll_loss, formula=signed_labels),
          found_in="edge", spared="grid size"),
    fault("eps is compared in DOUBLE", "aclnnLogitGrad", changed(logit_grad, formula=end_in_double),
          found_in="edge", spared="grid size"),
    fault("a byte of 2 is not true", "aclnnMul", only_one_is_true,
          found_in="mixed", spared="grid edge"),
    fault("two imaginary parts make nothing", "aclnnMul",
          changed(mul, formula=without_conjugate_part), found_in="mixed", spared="grid edge"),
    fault("what is empty is not checked", "aclnnMseLossBackward",
          empty_first(mse_loss_backward, "if grad_output"),
          found_in="empty", spared="grid invalid rank"),
    fault("gaps are filled with the byte that is everybody's sentinel", "aclnnL1LossBackward",
          gaps_filled(0xA5), found_in="layout", spared="grid broadcast"),
    fault("a product overflows before it is divided by a count",
          "aclnnKlDivTargetBackward.builtin",
          changed(kl_div_target_backward_builtin, formula=scaled_at_last),
          found_in="edge", spared="grid broadcast"),
    fault("elements beyond FLOAT count in a mean", "aclnnMseLoss",
          changed(mse_loss, formula=squared_in_double), found_in="edge", spared="grid size"),
)  # fmt: skip

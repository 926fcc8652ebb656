"""Faults in losses: in their sums, their divisors, and their results for no elements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute import blocks
from npucall.compute.operands import rounded
from npucall.declare import rules
from npucall.dtypes import FLOAT
from npucall.operators.binary_cross_entropy import binary_cross_entropy
from npucall.operators.kl_div import kl_div
from npucall.operators.l1_loss import l1_loss
from npucall.operators.mse_loss import mse_loss

from .seeded import AnyOperator, Seed, changed, exchanged, fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from npucall.declare.facts import Facts

KL, L1, MSE = "aclnnKlDiv", "aclnnL1Loss", "aclnnMseLoss"
ENTROPY = "aclnnBinaryCrossEntropy"


def multiplied_by(operator: AnyOperator, *divisors: str) -> Seed:
    """Means, and batchmeans, have the factor of another shape."""

    def factor(facts: Facts, attributes: Mapping[str, Any]) -> Any:
        counts = {1: facts.count(divisors[0]), 3: facts.first(divisors[-1])}
        return facts.reciprocal(counts.get(attributes["reduction"], 1))

    return changed(operator, over=replace(operator.over, factor=factor))


def rounded_before_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements are rounded to the kernel dtype, as those of a gradient are."""

    def compute(work: Any, inputs: Any, targets: Any, facts: Any, index: Any) -> Any:
        (result,) = work._results(facts, work._blocks(inputs, index))
        stretched = np.broadcast_to(rounded(result, work.kernel), np.empty(work.space)[index].shape)
        return stretched.sum(work._axes, np.float64, keepdims=True)

    monkeypatch.setattr(blocks._SummedWork, "_compute", compute)


def added_up_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of float32 are kept as float16."""
    right = blocks.summed

    def wrong(block: Any, axes: Any, wide: Any) -> Any:
        sums = right(block, axes, wide)
        return sums.astype(np.float16).astype(sums.dtype)

    monkeypatch.setattr(blocks, "summed", wrong)


def kl_of_logarithms(
    facts: Facts, self: Any, target: Any, reduction: int = 1, log_target: bool = False
) -> Any:
    """The logarithm of 0 stays."""
    if log_target:
        return kl_div.formula(facts, self, target, reduction, log_target=True)
    return target * (np.log(target) - self)


def entropy_without_least(
    facts: Facts, self: Any, target: Any, weight: Any = None, reduction: int = 1
) -> Any:
    """Logarithms go down to -inf."""
    loss = -(target * np.log(self) + (1 - target) * np.log1p(-self))
    return loss if weight is None else loss * weight


LOSSES = (
    fault("the mean divides by the elements of self", KL, multiplied_by(kl_div, "self", "common"),
          found_in="broadcast", spared="grid size"),
    fault("the batchmean divides by the rows of self", KL, multiplied_by(kl_div, "common", "self"),
          found_in="broadcast documents", spared="grid size"),
    fault("a target of 0 makes NaN", KL, changed(kl_div, formula=kl_of_logarithms),
          found_in="edge documents", spared="grid size"),
    fault("elements are rounded before the sum", MSE, rounded_before_the_sum,
          found_in="edge", spared="broadcast empty"),
    fault("sums are kept in FLOAT16", MSE, added_up_in_float16,
          found_in="grid size", spared="empty"),
    fault("the mean of nothing is 0", MSE,
          exchanged(mse_loss, "if self or target is empty",
                    lambda _: rules.succeed_if_empty("self", "target")),
          found_in="empty", spared="grid edge"),
    fault("a sum beyond FLOAT16 is finite in a FLOAT", L1,
          changed(l1_loss, kernel_dtype=rules.always(FLOAT)),
          found_in="mixed", spared="grid"),
    fault("logarithms have no least", ENTROPY,
          changed(binary_cross_entropy, formula=entropy_without_least),
          found_in="edge", spared="grid size"),
)  # fmt: skip

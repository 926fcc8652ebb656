"""Faults in losses of classes: in the rows that count, their weights, and the possible paths."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.declare import rules
from npucall.dtypes import FLOAT
from npucall.operators import _ctc_states, _losses
from npucall.operators.cross_entropy_loss import cross_entropy_loss
from npucall.operators.ctc_loss import ctc_loss
from npucall.operators.nll_loss import nll_loss
from npucall.products import A2

from .seeded import AnyOperator, Seed, changed, exchanged, fault

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from npucall.declare.facts import Facts

NLL, ENTROPY, CTC = "aclnnNLLLoss", "aclnnCrossEntropyLoss", "aclnnCtcLoss"
ON_950 = "Ascend950PR_9589"


def nll_mean_of_rows(
    facts: Facts,
    self: Any,
    target: Any,
    weight: Any,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Any:
    """The mean ignores the weights of the rows."""
    summed = 2 if reduction else 0
    loss, total = nll_loss.formula(facts, self, target, weight, summed, ignore_index)
    return (loss / target.shape[0] if reduction == 1 and target.shape else loss), total


def of_formula(operator: AnyOperator, wrong: Callable[..., Any]) -> Seed:
    """Another formula, whose signature does not say what it takes."""
    assert operator.formula is not None
    return changed(operator, formula=wraps(operator.formula)(wrong))


def entropy_of_rows_that_count(facts: Facts, *, target: Any, **more: Any) -> Any:
    """Rows that do not count have no log-softmax."""
    read, labels = np.array(more.pop("input")[...]), np.array(target[...])
    read[labels == more["ignore_index"]] = 0
    alone = replace(facts, outputs=None)
    return cross_entropy_loss.formula(alone, input=read, target=labels, **more)


def ctc_as_on_a2(facts: Facts, log_probs: Any, targets: Any, **more: Any) -> Any:
    """Infinite losses are zeroed on every product."""
    return ctc_loss.formula(replace(facts, product=A2), log_probs, targets, **more)


def every_label_follows_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal labels may follow each other without a blank between them."""
    right = _ctc_states.States._piece

    def piece(states: Any, some: slice) -> Any:
        answer = right(states, some)
        return answer._replace(
            entered=np.broadcast_to(answer.numbers % 2 == 1, answer.classes.shape)
        )

    monkeypatch.setattr(_ctc_states.States, "_piece", piece)


CLASSES = (
    fault("the mean divides by the rows", NLL, changed(nll_loss, formula=nll_mean_of_rows),
          found_in="grid edge", spared="invalid"),
    fault("of nothing the total weight is NaN too", NLL,
          exchanged(nll_loss, "if self is empty", lambda _: _losses.filled_if_empty("self")),
          found_in="empty", spared="grid"),
    fault("FLOAT16 losses are not rounded where the output is FLOAT", NLL,
          changed(nll_loss, kernel_dtype=rules.always(FLOAT)),
          found_in="mixed documents", spared="grid"),
    fault("rows that do not count have no log-softmax", ENTROPY,
          of_formula(cross_entropy_loss, entropy_of_rows_that_count),
          found_in="grid edge", spared="empty"),
    fault("infinite losses are zeroed on Ascend 950", CTC, of_formula(ctc_loss, ctc_as_on_a2),
          found_in="edge documents", spared="grid", soc=ON_950),
    fault("equal labels follow each other without a blank", CTC, every_label_follows_every_other,
          found_in="grid edge", spared="empty"),
)  # fmt: skip

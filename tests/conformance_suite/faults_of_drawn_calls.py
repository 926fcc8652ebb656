"""Faults that no case finds, but that random calls find within seconds."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from npucall.compute import evaluate
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.smooth_l1_loss import smooth_l1_loss
from npucall.tensors import TensorSpec

from .seeded import changed, exchanged, fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from npucall.declare.draft import Draft
    from npucall.declare.prepare import Prepared
    from npucall.declare.rules import Rule
    from npucall.tensors import Buffer

KL, SMOOTH = "aclnnKlDivBackward", "aclnnSmoothL1Loss"
RIGHT_RUN = evaluate.run


def turned_behind_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of rank 3 whose dimensions are in another order and that have an offset are read as
    if they had none."""

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        specs = {
            name: replace(spec, offset=0)
            if len(spec.shape) == 3 and spec.offset and turned(spec)
            else spec
            for name, spec in call.inputs.items()
        }
        return RIGHT_RUN(replace(call, inputs=specs), storages, *rest)

    monkeypatch.setattr(evaluate, "run", wrong)


def turned(spec: TensorSpec) -> bool:
    """Whether a later dimension has a larger stride."""
    return list(spec.strides) != sorted(spec.strides, reverse=True)


@wraps(smooth_l1_loss.formula)
def beta_where_two_attributes_meet(facts: Any, *tensors: Any, **more: Any) -> Any:
    """Of sums beta is 1 if it is between 0.35 and 0.95."""
    if more["reduction"] == 2 and 0.35 < more["beta"] < 0.95:
        more["beta"] = 1.0
    return smooth_l1_loss.formula(facts, *tensors, **more)


def let_through(rule: Rule) -> Rule:
    """The same check, except if target has elements that share memory."""

    def check(draft: Draft) -> None:
        target = draft.tensor("target")
        if target is None or 0 not in target.strides:
            rule.check(draft)

    return replace(rule, check=check)


DRAWN = (
    fault("an offset is ignored where three dimensions are turned", KL, turned_behind_an_offset,
          found_in="fuzz", spared="layout broadcast grid"),
    fault("sums have another beta where it is between two that cases have", SMOOTH,
          changed(smooth_l1_loss, formula=beta_where_two_attributes_meet),
          found_in="fuzz", spared="grid broadcast edge"),
    fault("an output of any shape is accepted beside an expanded target", KL,
          exchanged(kl_div_backward, "shape of out", let_through),
          found_in="fuzz", spared="invalid layout"),
)  # fmt: skip

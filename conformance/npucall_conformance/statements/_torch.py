"""Gradients and losses that torch computes, as a third opinion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npucall_conformance.stating.arguments import Arguments

REDUCTIONS = ("none", "mean", "sum")


def gradient(torch: Any, forward: Callable[[Any], Any], at: Any, upstream: Any) -> Any:
    """The gradient of an elementwise ``forward`` with respect to ``at``."""
    variable = at.detach().clone().requires_grad_()
    result = forward(variable)
    result.backward(torch.broadcast_to(upstream, result.shape))
    return variable.grad


def loss(k: Arguments, function: Callable[..., Any], *tensors: Any, **more: Any) -> Any:
    """A function of ``torch.nn.functional``; None for a reduction that torch has not."""
    if k["reduction"] not in range(len(REDUCTIONS)):
        return None
    return function(*tensors, reduction=REDUCTIONS[k["reduction"]], **more)

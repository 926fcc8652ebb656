"""Gradients that torch computes, as a third opinion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def gradient(torch: Any, forward: Callable[[Any], Any], at: Any, upstream: Any) -> Any:
    """The gradient of an elementwise ``forward`` with respect to ``at``."""
    variable = at.detach().clone().requires_grad_()
    result = forward(variable)
    result.backward(torch.broadcast_to(upstream, result.shape))
    return variable.grad

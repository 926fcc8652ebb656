"""Gradients that torch's autograd computes in float64. Without torch their tests are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

NAMES = ("none", "mean", "sum", "batchmean")


def kl_gradient(of: str, tensors: dict[str, Any], reduction: int, log_target: bool) -> Any:
    """The gradient of ``F.kl_div`` with respect to ``self`` or ``target``, in its shape."""
    return _gradient(
        of,
        tensors,
        lambda s, t: torch.nn.functional.kl_div(
            s, t, reduction=NAMES[reduction], log_target=log_target
        ),
    )


def l1_gradient(of: str, tensors: dict[str, Any], reduction: int) -> Any:
    """The gradient of ``F.l1_loss`` with respect to ``self`` or ``target``, in its shape."""
    return _gradient(
        of,
        tensors,
        lambda s, t: torch.nn.functional.l1_loss(s, t, reduction=NAMES[reduction]),
    )


def _gradient(of: str, tensors: dict[str, Any], loss: Any) -> Any:
    leaves = {name: torch.tensor(tensors[name], requires_grad=True) for name in ("self", "target")}
    value = loss(leaves["self"], leaves["target"])
    upstream = torch.tensor(tensors["grad_output"])
    (gradient,) = torch.autograd.grad(value, leaves[of], upstream.expand_as(value))
    return gradient.numpy()


def drawn(*shapes: tuple[int, ...], log_target: bool = False) -> dict[str, Any]:
    """grad_output, self and target in float64, with probabilities or their logarithms."""
    random = np.random.default_rng(5)
    g, s, t = (random.uniform(0.05, 1.0, shape) for shape in shapes)
    return {
        "grad_output": np.asarray(3 * g - 1.5),
        "self": np.asarray(np.log(s)),
        "target": np.asarray(np.log(t) if log_target else t),
    }

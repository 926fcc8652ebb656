"""Calls of each function of ``npucall_client.torch``, as torch takes them too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from npucall_client.torch.functional import FUNCTIONS

LABELS = [1, 0, -100, 2]


class Case(NamedTuple):
    """A call; floating tensors of ``given`` are converted to a dtype, those named get gradients."""

    function: str
    given: dict[str, Any]

    @property
    def title(self) -> str:
        told = [f"{key}={value}" for key, value in self.given.items() if not tensor(value)]
        shapes = [str(tuple(value.shape)) for value in self.given.values() if tensor(value)]
        return " ".join([self.function, *shapes, *told])

    def made(self, dtype: Any) -> dict[str, Any]:
        """Arguments of their own memory."""
        differentiable = FUNCTIONS[self.function].gradients
        made = {}
        for key, value in self.given.items():
            new = value
            if tensor(value):
                new = value.to(dtype if value.is_floating_point() else value.dtype, copy=True)
                new.requires_grad_(key in differentiable and key != "target")
            made[key] = new
        return made


def tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def cases() -> list[Case]:
    """Every function, with its reductions, options and shapes."""
    return [*_activations(), *_pairs(), *_entropies(), *_classes(), *_ctc()]


def one_of_each() -> list[Case]:
    """A case for each function."""
    first: dict[str, Case] = {}
    for case in cases():
        first.setdefault(case.function, case)
    return list(first.values())


def _numbers(*shape: int) -> Any:
    """Apart from edges, where gradients jump and numeric ones go astray."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def _shares(*shape: int) -> Any:
    generator = torch.Generator().manual_seed(8)
    return torch.rand(*shape, generator=generator, dtype=torch.float64) * 0.8 + 0.1


def _activations() -> Iterator[Case]:
    x = _numbers(3, 4)
    for name in "gelu", "silu", "hardsigmoid", "hardswish", "relu", "relu6", "sigmoid", "tanh":
        yield Case(name, {"input": x})
    yield Case("gelu", {"input": x, "approximate": "tanh"})
    yield Case("gelu", {"input": _numbers(2, 3, 4).transpose(0, 2)})
    yield Case("sigmoid", {"input": _numbers(1)[0]})
    yield Case("threshold", {"input": x, "threshold": 0.2, "value": -3.0})
    yield Case("hardtanh", {"input": x})
    yield Case("hardtanh", {"input": x, "min_val": -0.3, "max_val": 0.4})
    yield Case("elu", {"input": x})
    yield Case("elu", {"input": x, "alpha": 0.5})
    yield Case("leaky_relu", {"input": x})
    yield Case("leaky_relu", {"input": x, "negative_slope": -0.5})
    yield Case("softplus", {"input": x})
    yield Case("softplus", {"input": x, "beta": 2.0, "threshold": 0.5})
    yield Case("logit", {"input": _shares(3, 4)})
    yield Case("logit", {"input": _shares(3, 4), "eps": 0.3})
    yield Case("glu", {"input": x})
    yield Case("glu", {"input": _numbers(4, 3), "dim": 0})
    yield Case("prelu", {"input": _numbers(2, 3, 2), "weight": _shares(3)})
    yield Case("prelu", {"input": x, "weight": _shares(1)})
    for name in "softmax", "log_softmax":
        yield Case(name, {"input": x, "dim": -1})
        yield Case(name, {"input": _numbers(2, 3, 2), "dim": 1})


def _pairs() -> Iterator[Case]:
    x, y = _numbers(3, 4), _shares(3, 4)
    reductions = "mean", "none", "sum"
    for reduction in (*reductions, "batchmean"):
        yield Case("kl_div", {"input": x, "target": y, "reduction": reduction})
        yield Case("kl_div", {"input": x[:1], "target": y, "reduction": reduction})
    logs = {"input": x, "target": y.log(), "reduction": "sum", "log_target": True}
    yield Case("kl_div", logs)
    for name in "l1_loss", "mse_loss", "smooth_l1_loss", "soft_margin_loss":
        for reduction in reductions:
            yield Case(name, {"input": x, "target": y, "reduction": reduction})
    yield Case("smooth_l1_loss", {"input": x, "target": y, "beta": 0.3})


def _entropies() -> Iterator[Case]:
    x, y, weight = _numbers(3, 4), _shares(3, 4), _shares(4)
    for reduction in "mean", "none", "sum":
        told = {"target": y, "reduction": reduction}
        yield Case("binary_cross_entropy", {"input": _shares(3, 4).flip(0), **told})
        yield Case("binary_cross_entropy_with_logits", {"input": x, **told})
    weighted = {"input": _shares(3, 4).flip(0), "target": y, "weight": weight}
    yield Case("binary_cross_entropy", weighted)
    both = {"input": x, "target": y, "weight": weight, "pos_weight": _shares(4).flip(0)}
    yield Case("binary_cross_entropy_with_logits", both)


def _classes() -> Iterator[Case]:
    labels, weight = torch.tensor(LABELS), _shares(3)
    image = torch.tensor(LABELS * 4).reshape(2, 2, 4)
    for name in "nll_loss", "cross_entropy":
        for reduction in "mean", "none", "sum":
            told = {"target": labels, "reduction": reduction}
            yield Case(name, {"input": _numbers(4, 3), **told})
            yield Case(name, {"input": _numbers(4, 3), "weight": weight, **told})
            told["target"] = image
            yield Case(name, {"input": _numbers(2, 3, 2, 4), "weight": weight, **told})
        own = {"target": torch.tensor(LABELS[:2]), "ignore_index": 0}
        yield Case(name, {"input": _numbers(2, 3), **own})
        yield Case(name, {"input": _numbers(3), "target": labels[0]})
        yield Case(name, {"input": _numbers(2, 3, 4), "target": image[:, 0], "reduction": "none"})


def _ctc() -> Iterator[Case]:
    logs = torch.log_softmax(_numbers(6, 2, 4), 2)
    told = {"input_lengths": [6, 5], "target_lengths": [2, 3]}
    for reduction in "mean", "none", "sum":
        targets = torch.tensor([[1, 2, 0], [3, 3, 1]])
        given = {"log_probs": logs, "targets": targets, **told, "reduction": reduction}
        yield Case("ctc_loss", given)
    joined = {"log_probs": logs, "targets": torch.tensor([1, 2, 3, 3, 1]), **told}
    yield Case("ctc_loss", joined)
    long = {**joined, "targets": torch.tensor([1, 2, 3, 3, 3, 3]), "target_lengths": [2, 4]}
    yield Case("ctc_loss", {**long, "zero_infinity": True, "reduction": "none"})
    alone = {"input_lengths": [6], "target_lengths": [2], "targets": torch.tensor([1, 2])}
    yield Case("ctc_loss", {"log_probs": logs[:, 0], **alone})

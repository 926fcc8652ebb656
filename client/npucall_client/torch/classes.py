"""Losses of labels, whose backward operators take what the forward operators leave for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from npucall_client.torch.declarations import Run, Steps, loss
from npucall_client.torch.losses import CODES, code_of

_IMAGE = 4


@loss(hidden=("total_weight",))
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Steps:
    code = code_of(reduction, size_average, reduce)
    flat = input.dim() <= 2  # noqa: PLR2004  # (C,) or (N, C)
    rows, labels = (input, target) if flat else _as_image(input, target)
    classes = rows.shape[-1 if flat else 1]
    weights = input.new_ones(classes) if weight is None else weight.to(input.dtype)
    told = {"target": labels, "weight": weights, "reduction": code, "ignore_index": ignore_index}
    name = "aclnnNLLLoss" if flat else "aclnnNLLLoss2d"

    def forward(run: Run) -> tuple[Any, Any]:
        loss, total_weight = run(name, self=rows, **told)
        return _reshaped(run.tensor(loss), target, code), total_weight

    def by_torch() -> tuple[Tensor, Tensor]:
        own = torch.ops.aten.nll_loss_forward if flat else torch.ops.aten.nll_loss2d_forward
        loss, total_weight = own(rows, labels, weights, code, ignore_index)
        return _reshaped(loss, target, code), total_weight

    def backward(run: Run, grad: Tensor, total_weight: Any) -> Tensor:
        upstream = grad.reshape(labels.shape) if code == CODES["none"] else grad
        given = {"grad_output": upstream, "self": rows, "total_weight": total_weight}
        return run.tensor(run(f"{name}Backward", **given, **told)).reshape(input.shape)

    check = partial(_check_labels, labels, classes, ignore_index)
    return Steps(forward, {("input",): backward}, by_torch, check=check)


@loss(hidden=("log_prob",))
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Steps:
    if target.is_floating_point():
        raise ValueError(
            f"target: expected labels of classes, found {target.dtype}; CANN has no operator for "
            "probabilities"
        )
    code = code_of(reduction, size_average, reduce)
    axis = min(input.dim() - 1, 1)
    moved = input.movedim(axis, -1)
    rows, labels = moved.reshape(-1, moved.shape[-1]), target.reshape(-1)
    told = {
        "target": labels,
        "weight": None if weight is None else weight.to(_at_least_float(input)),
        "reduction": reduction,
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
    }

    def forward(run: Run) -> tuple[Any, Any]:
        loss, log_prob, *_ = run("aclnnCrossEntropyLoss", input=rows, **told)
        return _reshaped(run.tensor(loss), target, code), log_prob

    def by_torch() -> tuple[Tensor, Tensor]:
        own = torch.nn.functional.cross_entropy
        loss = own(
            rows,
            labels,
            weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        log_prob = torch.log_softmax(rows, 1)
        return _reshaped(loss, target, code), log_prob

    def backward(run: Run, grad: Tensor, log_prob: Any) -> Tensor:
        upstream = grad.reshape(-1) if code == CODES["none"] else grad
        gradient = run.tensor(
            run("aclnnCrossEntropyLossGrad", grad_loss=upstream, log_prob=log_prob, **told)
        )
        return gradient.reshape(moved.shape).movedim(-1, axis)

    check = partial(_check_labels, labels, rows.shape[1], ignore_index)
    return Steps(forward, {("input",): backward}, by_torch, check=check)


@loss("log_probs", hidden=("neg_log_likelihood", "log_alpha"))
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Steps:
    code = code_of(reduction, None, None)
    single = log_probs.dim() == 2  # noqa: PLR2004  # (T, C)
    steps = log_probs.unsqueeze(1) if single else log_probs
    told = {
        "log_probs": steps,
        "targets": targets,
        "input_lengths": tuple(input_lengths),
        "target_lengths": tuple(target_lengths),
        "blank": blank,
    }

    def reduced(losses: Tensor) -> Tensor:
        """As torch reduces: a mean divides each by its length first."""
        losses = torch.where(torch.isinf(losses), 0, losses) if zero_infinity else losses.clone()
        if code == CODES["none"]:
            return losses[0].clone() if single else losses
        return losses.sum() if code == CODES["sum"] else (losses / lengths(losses)).mean()

    def lengths(like: Tensor) -> Tensor:
        return like.new_tensor([max(each, 1) for each in target_lengths])

    def forward(run: Run) -> tuple[Any, Any, Any]:
        # Zeros for infinite losses would hide from the backward which items have no gradient.
        likelihood, log_alpha = run("aclnnCtcLoss", zero_infinity=False, **told)
        return reduced(run.tensor(likelihood)), likelihood, log_alpha

    def by_torch() -> tuple[Tensor, Tensor, Tensor]:
        given = (steps, targets, list(input_lengths), list(target_lengths), blank, False)
        likelihood, log_alpha = torch.ops.aten._ctc_loss(*given)  # noqa: SLF001  # as torch itself
        return reduced(likelihood), likelihood, _written(log_alpha, input_lengths, target_lengths)

    def backward(run: Run, grad: Tensor, likelihood: Any, log_alpha: Any) -> Tensor:
        items = len(target_lengths)
        upstream = grad.expand(items)
        if code == CODES["mean"]:
            upstream = upstream / (lengths(grad) * items)
        given = {"grad_out": upstream, "neg_log_likelihood": likelihood, "log_alpha": log_alpha}
        gradient = run("aclnnCtcLossBackward", zero_infinity=zero_infinity, **given, **told)
        return run.tensor(gradient).reshape(log_probs.shape)

    def fake_by_torch() -> tuple[Tensor, Tensor, Tensor]:
        most, items, _ = steps.shape
        likelihood = steps.new_empty(items)
        log_alpha = steps.new_empty(items, most, 2 * max(target_lengths, default=0) + 1)
        return reduced(likelihood), likelihood, log_alpha

    return Steps(forward, {("log_probs",): backward}, by_torch, fake_by_torch)


def _written(log_alpha: Tensor, steps: Sequence[int], labels: Sequence[int]) -> Tensor:
    """What torch has written of it; beyond that there is memory, which nobody reads."""
    _, most, width = log_alpha.shape
    time = torch.arange(most) < torch.tensor(steps).unsqueeze(1)
    state = torch.arange(width) < 2 * torch.tensor(labels).unsqueeze(1) + 1
    return torch.where(time.unsqueeze(2) & state.unsqueeze(1), log_alpha, -torch.inf)


def _check_labels(labels: Tensor, classes: int, ignored: int) -> None:
    wrong = labels[((labels < 0) | (labels >= classes)) & (labels != ignored)]
    if wrong.numel():
        raise IndexError(
            f"target: expected labels from 0 to {classes - 1}, or ignore_index {ignored}, found "
            f"{int(wrong[0])}"
        )


def _as_image(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(N, C, ...) as (N, C, H, W), and the labels as (N, H, W), as torch does."""
    if input.dim() == _IMAGE:
        return input, target
    items, classes = input.shape[:2]
    return input.reshape(items, classes, 1, -1), target.reshape(items, 1, -1)


def _reshaped(loss: Tensor, target: Tensor, code: int) -> Tensor:
    """A loss for each label as the labels lie, or one of rank 0."""
    return loss.reshape(target.shape if code == CODES["none"] else ())


def _at_least_float(like: Tensor) -> Any:
    return torch.promote_types(like.dtype, torch.float32)

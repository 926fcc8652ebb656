"""Losses and distances of two tensors, with torch's signatures, by forward and backward operators.

Gradients of a mean that CANN and torch divide differently are scaled here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from npucall_client.torch.declarations import Run, Steps, loss, two_operators

CODES = {"none": 0, "mean": 1, "sum": 2}
PAIR = ("input", "target")


def code_of(reduction: str, size_average: bool | None, reduce: bool | None) -> int:
    """CANN's number of a reduction. Raises ValueError for others, and for what torch deprecates."""
    if size_average is not None or reduce is not None:
        raise ValueError(
            "reduction: expected neither size_average nor reduce with it, found size_average "
            f"{size_average} and reduce {reduce}; torch deprecates them"
        )
    if reduction not in CODES:
        raise ValueError(f"reduction: expected one of {', '.join(CODES)}, found {reduction!r}")
    return CODES[reduction]


@loss("input", "target")
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Steps:
    # CANN divides a batchmean by the first extent of what both broadcast to, torch by input's.
    divisor = input.shape[0] if reduction == "batchmean" and input.dim() else 1
    code = code_of("sum" if reduction == "batchmean" else reduction, size_average, reduce)
    told = {"self": input, "target": target, "log_target": log_target}
    return Steps(
        lambda run: _over(run.tensor(run("aclnnKlDiv", reduction=code, **told)), divisor),
        {
            ("input",): lambda run, grad: run(
                "aclnnKlDivBackward", grad_output=_over(grad, divisor), reduction=code, **told
            ),
            ("target",): lambda run, grad: _kl_div_target(
                run, _over(grad, divisor), input, target, code, log_target=log_target
            ),
        },
    )


def _kl_div_target(
    run: Run, grad: Tensor, input: Tensor, target: Tensor, code: int, *, log_target: bool
) -> Any:
    """The variants of this operator differ in means, in sums, and in dtypes that they mix."""
    grad, logs, probabilities = torch.broadcast_tensors(grad, input, target)
    if code == CODES["mean"]:
        grad = _over(grad, logs.numel())
    return run(
        "aclnnKlDivTargetBackward",
        grad_output=grad.to(target.dtype),
        self=logs.to(target.dtype),
        target=probabilities,
        reduction=CODES["none"],
        log_target=log_target,
    )


@loss("input", "target")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Steps:
    _unweighted(weight)
    code = code_of(reduction, size_average, reduce)
    return _symmetric("aclnnL1Loss", "aclnnL1LossBackward", input, target, {"reduction": code})


@loss("input", "target")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Steps:
    _unweighted(weight)
    code = code_of(reduction, size_average, reduce)
    return _symmetric("aclnnMseLoss", "aclnnMseLossBackward", input, target, {"reduction": code})


@loss("input", "target")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Steps:
    told = {"reduction": code_of(reduction, size_average, reduce), "beta": beta}
    return _symmetric(
        "aclnnSmoothL1Loss", "aclnnSmoothL1LossBackward", input, target, told, grad="grad_out"
    )


@loss()
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Steps:
    code = code_of(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"target: expected the shape of input, {tuple(input.shape)}, found "
            f"{tuple(target.shape)}; for other shapes torch's gradient of a mean does not fit "
            "its loss"
        )
    told = {"self": input, "target": target, "reduction": code}
    return two_operators("aclnnSoftMarginLoss", "aclnnSoftMarginLossBackward", told)


@loss()
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Steps:
    told = {
        "self": input,
        "target": target,
        "weight": None if weight is None else weight.expand(target.shape).to(input.dtype),
        "reduction": code_of(reduction, size_average, reduce),
    }
    return two_operators("aclnnBinaryCrossEntropy", "aclnnBinaryCrossEntropyBackward", told)


@loss("input", "target")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Steps:
    told = {
        "self": input,
        "target": target,
        "weight": weight,
        "pos_weight": pos_weight,
        "reduction": code_of(reduction, size_average, reduce),
    }
    name = "aclnnBinaryCrossEntropyWithLogits"
    return Steps(
        lambda run: run(name, **told),
        {
            ("input",): lambda run, grad: run(f"{name}Backward", grad_output=grad, **told),
            ("target",): lambda run, grad: run(f"{name}TargetBackward", grad_output=grad, **told),
        },
    )


def _symmetric(
    forward: str,
    backward: str,
    input: Tensor,
    target: Tensor,
    told: dict[str, Any],
    grad: str = "grad_output",
) -> Steps:
    """A loss of the difference. As torch does, both are stretched first; CANN's means would differ.

    The operator's gradient is that of ``self``; that of the target is the same, below 0.
    """
    dtype = torch.promote_types(input.dtype, target.dtype)
    first, second = torch.broadcast_tensors(input.to(dtype), target.to(dtype))

    def gradients(run: Run, upstream: Tensor) -> tuple[Tensor, Tensor]:
        given = {grad: upstream, "self": first, "target": second}
        gradient = run.tensor(run(backward, **given, **told))
        return gradient, -gradient

    return Steps(lambda run: run(forward, self=first, target=second, **told), {PAIR: gradients})


def _unweighted(weight: Tensor | None) -> None:
    if weight is not None:
        raise ValueError("weight: expected None, found a tensor; no such operator takes one")


def _over(value: Tensor, divisor: int) -> Tensor:
    return value if divisor == 1 else value / divisor


@loss("x1", "x2", saves_result=True)
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Steps:
    del compute_mode  # how torch computes it
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    one, other = (each.expand(*batch, *each.shape[-2:]) for each in (x1, x2))

    def of_other(run: Run, grad: Tensor, result: Any) -> Any:
        turned = {"grad": grad.mT, "cdist": run.tensor(result).mT}
        return run("aclnnCdistBackward", x1=other, x2=one, p=p, **turned)

    return Steps(
        lambda run: run("aclnnCdist", x1=one, x2=other, p=p),
        {
            ("x1",): lambda run, grad, result: run(
                "aclnnCdistBackward", grad=grad, x1=one, x2=other, cdist=result, p=p
            ),
            ("x2",): of_other,
        },
    )

"""Layers of images: convolution, normalisation of channels; with torch's signatures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from npucall_client.torch.declarations import Run, Steps, function, two_operators

_ALL = (True, True, True)
_RANK = 4
"""Dimensions of images."""


@function("input", "weight", "bias", autocast="lower")
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Steps:
    if input.dim() != _RANK:
        raise ValueError(f"input: expected (N, C, H, W), found {input.dim()} dimensions")
    told = {"input": input, "weight": weight, "groups": groups}
    told |= {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation)}
    back = {**told, "output_mask": _ALL}
    of = ("input", "weight", "bias")
    return two_operators(
        "aclnnConvolution", "aclnnConvolutionBackward", {**told, "bias": bias}, back, of=of
    )


@function("input", "weight", "bias", hidden=("mean", "spread"))
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Steps:
    if training and input.numel() == input.shape[1]:
        raise ValueError(f"input: expected several numbers a channel, found {tuple(input.shape)}")
    told = {"input": input, "weight": weight, "training": training, "eps": eps}
    told |= {"running_mean": running_mean, "running_var": running_var}

    def nothing() -> tuple[Tensor, Tensor]:
        return input.new_empty(0), input.new_empty(0)

    def forward(run: Run) -> tuple[Any, ...]:
        found = run("aclnnBatchNorm", bias=bias, momentum=momentum, **told)
        several = found if isinstance(found, tuple) else (found,)
        if training:
            return several[-3:]
        return next(
            each for each in several if each is not None and each.shape == input.shape
        ), *nothing()

    def backward(run: Run, upstream: Tensor, *saved: Any) -> Any:
        """What torch saves is not what every product reads: then the operator computes it."""
        if training and isinstance(saved[0], Tensor) and not saved[0].numel():
            saved = forward(run)[1:]
        given = dict(zip(("save_mean", "save_invstd"), saved, strict=True)) if training else {}
        return run("aclnnBatchNormBackward", grad_out=upstream, output_mask=_ALL, **given, **told)

    def by_torch() -> tuple[Tensor, ...]:
        result = torch.nn.functional.batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
        return result, *nothing()

    return Steps(forward, {("input", "weight", "bias"): backward}, by_torch)


@function("input", "weight", "bias", hidden=("mean", "rstd"))
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Steps:
    if input.dim() < 2 or not 0 < num_groups <= input.shape[1] or input.shape[1] % num_groups:  # noqa: PLR2004
        raise ValueError(
            f"num_groups: expected a divisor of the channels of {tuple(input.shape)}, "
            f"found {num_groups}"
        )
    items, channels, *rest = input.shape
    extents = {"n": items, "c": channels, "hxw": math.prod(rest), "group": num_groups}
    gamma, beta = (None if each is None else each.to(input.dtype) for each in (weight, bias))

    def backward(run: Run, upstream: Tensor, mean: Any, rstd: Any) -> Any:
        given = {"grad_out": upstream, "input": input, "mean": mean, "rstd": rstd}
        return run("aclnnGroupNormBackward", gamma=gamma, output_mask=_ALL, **given, **extents)

    return Steps(
        lambda run: run("aclnnGroupNorm", self=input, gamma=gamma, beta=beta, eps=eps, **extents),
        {("input", "weight", "bias"): backward},
        lambda: torch.native_group_norm(input, gamma, beta, *extents.values(), eps),
    )


def update_running(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> None:
    """The running numbers of channels, after a call in training."""
    with torch.no_grad():
        var, mean = torch.var_mean(input, [0, *range(2, input.dim())])
        for running, new in ((running_mean, mean), (running_var, var)):
            if running is not None:
                running.lerp_(new.to(running.dtype), momentum)


def pair(numbers: int | Sequence[int] | None, axes: int = 2) -> list[int]:
    """A number for each axis; nothing of None."""
    return [numbers] * axes if isinstance(numbers, int) else list(numbers or ())

"""Activations: each with torch's signature, by a forward and a backward operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from npucall_client.torch.declarations import Steps, function

INPUT = ("input",)


def _not_in_place(inplace: bool) -> None:  # as torch has it
    if inplace:
        raise ValueError(
            "inplace: expected False, found True; the result comes back from the server in new "
            "memory"
        )


@function()
def gelu(input: Tensor, approximate: str = "none") -> Steps:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate: expected 'none' or 'tanh', found {approximate!r}")
    return Steps(
        lambda run: run("aclnnGeluV2", x=input, approximate=int(approximate == "tanh")),
        {
            INPUT: lambda run, grad: run(
                "aclnnGeluBackwardV2", grad_output=grad, self=input, approximate=approximate
            )
        },
    )


@function()
def silu(input: Tensor, inplace: bool = False) -> Steps:
    return _plain("aclnnSilu", "aclnnSiluBackward", input, inplace)


@function()
def hardsigmoid(input: Tensor, inplace: bool = False) -> Steps:
    return _plain("aclnnHardsigmoid", "aclnnHardsigmoidBackward", input, inplace)


@function()
def hardswish(input: Tensor, inplace: bool = False) -> Steps:
    # The first aclnnHardswishBackward differs from torch at -3 and 3.
    return _plain("aclnnHardswish", "aclnnHardswishBackwardV2", input, inplace)


@function()
def relu(input: Tensor, inplace: bool = False) -> Steps:
    return _threshold(input, 0, 0, inplace)


@function()
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Steps:
    return _threshold(input, threshold, value, inplace)


@function()
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Steps:
    return _clipped(input, min_val, max_val, inplace)


@function()
def relu6(input: Tensor, inplace: bool = False) -> Steps:
    return _clipped(input, 0.0, 6.0, inplace)


@function()
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Steps:
    _not_in_place(inplace)
    scalars = {"alpha": alpha, "scale": 1.0, "input_scale": 1.0}
    return Steps(
        lambda run: run("aclnnElu", self=input, **scalars),
        {
            INPUT: lambda run, grad: run(
                "aclnnEluBackward",
                grad_output=grad,
                self_or_result=input,
                is_result=False,
                **scalars,
            )
        },
    )


@function()
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Steps:
    _not_in_place(inplace)
    slope = {"negative_slope": negative_slope}
    return Steps(
        lambda run: run("aclnnLeakyRelu", self=input, **slope),
        {
            INPUT: lambda run, grad: run(
                "aclnnLeakyReluBackward", grad_output=grad, self=input, **slope
            )
        },
    )


@function()
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Steps:
    scalars = {"beta": beta, "threshold": threshold}
    return Steps(
        lambda run: run("aclnnSoftplus", self=input, **scalars),
        {
            INPUT: lambda run, grad: run(
                "aclnnSoftplusBackward", grad_output=grad, self=input, **scalars
            )
        },
    )


@function()
def logit(input: Tensor, eps: float | None = None) -> Steps:
    margin = -1.0 if eps is None else eps
    return Steps(
        lambda run: run("aclnnLogit", input=input, eps=margin),
        {INPUT: lambda run, grad: run("aclnnLogitGrad", x=input, dy=grad, eps=margin)},
    )


@function()
def glu(input: Tensor, dim: int = -1) -> Steps:
    return Steps(
        lambda run: run("aclnnGlu", self=input, dim=dim),
        {INPUT: lambda run, grad: run("aclnnGluBackward", grad_out=grad, self=input, dim=dim)},
    )


@function("input", "weight")
def prelu(input: Tensor, weight: Tensor) -> Steps:
    return Steps(
        lambda run: run("aclnnPrelu", self=input, weight=weight),
        {
            ("input", "weight"): lambda run, grad: run(
                "aclnnPreluBackward", grad_output=grad, self=input, weight=weight
            )
        },
    )


@function(saves_result=True)
def sigmoid(input: Tensor) -> Steps:
    return Steps(
        lambda run: run("aclnnSigmoid", self=input),
        {
            INPUT: lambda run, grad, output: run(
                "aclnnSigmoidBackward", grad_output=grad, output=output
            )
        },
    )


@function(saves_result=True)
def tanh(input: Tensor) -> Steps:
    return Steps(
        lambda run: run("aclnnTanh", self=input),
        {
            INPUT: lambda run, grad, output: run(
                "aclnnTanhBackward", grad_output=grad, output=output
            )
        },
    )


@function(saves_result=True)
def softmax(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> Steps:
    return _along("aclnnSoftmax", "aclnnSoftmaxBackward", input, dim, dtype)


@function(saves_result=True)
def log_softmax(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> Steps:
    return _along("aclnnLogSoftmax", "aclnnLogSoftmaxBackward", input, dim, dtype)


def _plain(forward: str, backward: str, x: Tensor, inplace: bool) -> Steps:
    _not_in_place(inplace)
    return Steps(
        lambda run: run(forward, self=x),
        {INPUT: lambda run, grad: run(backward, grad_output=grad, self=x)},
    )


def _threshold(x: Tensor, threshold: float, value: float, inplace: bool) -> Steps:
    _not_in_place(inplace)
    return Steps(
        lambda run: run("aclnnThreshold", self=x, threshold=threshold, value=value),
        {
            INPUT: lambda run, grad: run(
                "aclnnThresholdBackward", grad_output=grad, self=x, threshold=threshold
            )
        },
    )


def _clipped(x: Tensor, low: float, high: float, inplace: bool) -> Steps:
    _not_in_place(inplace)
    return Steps(
        lambda run: run("aclnnHardtanh", self=x, clip_value_min=low, clip_value_max=high),
        {
            INPUT: lambda run, grad: run(
                "aclnnHardtanhBackward", grad_output=grad, self=x, min=low, max=high
            )
        },
    )


def _along(forward: str, backward: str, x: Tensor, dim: int | None, dtype: Any) -> Steps:
    if dim is None:
        raise ValueError("dim: expected a dimension, found None; npucall does not guess one")
    converted = x if dtype is None else x.to(dtype)
    return Steps(
        lambda run: run(forward, self=converted, dim=dim),
        {INPUT: lambda run, grad, output: run(backward, grad_output=grad, output=output, dim=dim)},
    )

"""Activations: each with torch's signature, by a forward and a backward operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from npucall_client.torch.declarations import Steps, function, two_operators


def not_in_place(inplace: bool) -> None:
    """Raises ValueError for what torch offers and no server can do."""
    if inplace:
        raise ValueError(
            "inplace: expected False, found True; the result comes back from the server in new "
            "memory"
        )


@function()
def gelu(input: Tensor, approximate: str = "none") -> Steps:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate: expected 'none' or 'tanh', found {approximate!r}")
    told = {"x": input, "approximate": int(approximate == "tanh")}
    back = {"self": input, "approximate": approximate}
    return two_operators("aclnnGeluV2", "aclnnGeluBackwardV2", told, back)


@function()
def silu(input: Tensor, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    return two_operators("aclnnSilu", "aclnnSiluBackward", {"self": input})


@function()
def hardsigmoid(input: Tensor, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    return two_operators("aclnnHardsigmoid", "aclnnHardsigmoidBackward", {"self": input})


@function()
def hardswish(input: Tensor, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    # The first aclnnHardswishBackward differs from torch at -3 and 3.
    return two_operators("aclnnHardswish", "aclnnHardswishBackwardV2", {"self": input})


@function()
def relu(input: Tensor, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    back = {"self": input, "threshold": 0}
    return two_operators("aclnnRelu", "aclnnThresholdBackward", {"self": input}, back)


@function()
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    back = {"self": input, "threshold": threshold}
    return two_operators("aclnnThreshold", "aclnnThresholdBackward", {**back, "value": value}, back)


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
    not_in_place(inplace)
    scalars = {"alpha": alpha, "scale": 1.0, "input_scale": 1.0}
    back = {"self_or_result": input, "is_result": False, **scalars}
    return two_operators("aclnnElu", "aclnnEluBackward", {"self": input, **scalars}, back)


@function()
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    told = {"self": input, "negative_slope": negative_slope}
    return two_operators("aclnnLeakyRelu", "aclnnLeakyReluBackward", told)


@function()
def mish(input: Tensor, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    return two_operators("aclnnMish", "aclnnMishBackward", {"self": input})


@function()
def hardshrink(input: Tensor, lambd: float = 0.5) -> Steps:
    told = {"self": input, "lambd": lambd}
    return two_operators("aclnnHardshrink", "aclnnHardshrinkBackward", told)


@function()
def softshrink(input: Tensor, lambd: float = 0.5) -> Steps:
    told = {"self": input, "lambd": lambd}
    return two_operators("aclnnSoftshrink", "aclnnSoftshrinkBackward", told)


@function()
def logsigmoid(input: Tensor) -> Steps:
    told = {"self": input}
    back = {**told, "buffer": input.new_empty(0)}
    return two_operators("aclnnLogSigmoid", "aclnnLogSigmoidBackward", told, back)


@function(saves_result=True)
def selu(input: Tensor, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    return Steps(
        lambda run: run("aclnnSelu", self=input),
        {
            ("input",): lambda run, upstream, result: run(
                "aclnnSeluBackward", grad_output=upstream, result=result
            )
        },
    )


@function()
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Steps:
    not_in_place(inplace)
    back = {"self_or_result": input, "is_result": False, "alpha": alpha, "scale": 1.0}
    told = {"self": input, "alpha": alpha}
    return two_operators("aclnnCelu", "aclnnEluBackward", told, {**back, "input_scale": 1 / alpha})


@function()
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Steps:
    told = {"self": input, "beta": beta, "threshold": threshold}
    return two_operators("aclnnSoftplus", "aclnnSoftplusBackward", told)


@function()
def logit(input: Tensor, eps: float | None = None) -> Steps:
    margin = {"eps": -1.0 if eps is None else eps}
    told, back = {"input": input, **margin}, {"x": input, **margin}
    return two_operators("aclnnLogit", "aclnnLogitGrad", told, back, grad="dy")


@function()
def glu(input: Tensor, dim: int = -1) -> Steps:
    told = {"self": input, "dim": dim}
    return two_operators("aclnnGlu", "aclnnGluBackward", told, grad="grad_out")


@function("input", "weight", autocast="lower")
def prelu(input: Tensor, weight: Tensor) -> Steps:
    told = {"self": input, "weight": weight}
    return two_operators("aclnnPrelu", "aclnnPreluBackward", told, of=("input", "weight"))


@function(saves_result=True, by_torch=torch.sigmoid)
def sigmoid(input: Tensor) -> Steps:
    return _by_result("aclnnSigmoid", "aclnnSigmoidBackward", input)


@function(saves_result=True, by_torch=torch.tanh)
def tanh(input: Tensor) -> Steps:
    return _by_result("aclnnTanh", "aclnnTanhBackward", input)


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


def _clipped(x: Tensor, low: float, high: float, inplace: bool) -> Steps:
    not_in_place(inplace)
    told = {"self": x, "clip_value_min": low, "clip_value_max": high}
    back = {"self": x, "min": low, "max": high}
    return two_operators("aclnnHardtanh", "aclnnHardtanhBackward", told, back)


def _along(forward: str, backward: str, x: Tensor, dim: int | None, dtype: Any) -> Steps:
    if dim is None:
        raise ValueError("dim: expected a dimension, found None; npucall does not guess one")
    return _by_result(forward, backward, x if dtype is None else x.to(dtype), dim=dim)


def _by_result(forward: str, backward: str, x: Tensor, **told: Any) -> Steps:
    """The second operator takes the result of the first."""
    return Steps(
        lambda run: run(forward, self=x, **told),
        {
            ("input",): lambda run, grad, output: run(
                backward, grad_output=grad, output=output, **told
            )
        },
    )

"""Layers: linear ones, look-ups, norms over rows, attention; as torch's or beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from npucall_client.torch.activations import not_in_place
from npucall_client.torch.declarations import Run, Steps, function, two_operators

_ALL = (True, True, True)
_RANK = 4
"""Dimensions of images, and of heads."""


@function("input", "weight", "bias", autocast="lower")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Steps:
    rows, across = input.reshape(-1, input.shape[-1]), weight.t()

    def forward(run: Run) -> Tensor:
        with run.together() as calls:
            result = calls("aclnnMatmul", self=rows, mat2=across)
            if bias is not None:
                result = calls("aclnnAdd", self=result, other=bias, alpha=1)
            calls.fetch(result)
        return run.tensor(result).reshape(*input.shape[:-1], weight.shape[0])

    def backward(run: Run, upstream: Tensor) -> tuple[Any, ...]:
        grads = upstream.reshape(-1, weight.shape[0])
        with run.together() as calls:
            turned = calls.kept(grads.t())
            # The transposed product, since the server has the transposed weight.
            of_rows = calls("aclnnMatmul", self=across, mat2=turned)
            of_weight = calls("aclnnMatmul", self=turned, mat2=rows)
            of_bias = calls("aclnnReduceSum", self=turned, dims=(1,))
            calls.fetch(of_rows, of_weight, of_bias)
        return run.tensor(of_rows).t().reshape(input.shape), of_weight, of_bias

    return Steps(forward, {("input", "weight", "bias"): backward})


@function("weight")
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Steps:
    del norm_type
    if max_norm is not None:
        raise ValueError(f"max_norm: expected None, found {max_norm}; no operator has it")
    if sparse:
        raise ValueError("sparse: expected False, found True; the gradient of weight is dense")
    rows = weight.shape[0]
    told = {"num_weights": rows, "scale_grad_by_freq": scale_grad_by_freq}
    told["padding_idx"] = 2**64 - 1 if padding_idx is None else padding_idx % rows

    def check() -> None:
        wrong = input[(input < 0) | (input >= rows)]
        if wrong.numel():
            raise IndexError(f"input: expected rows from 0 to {rows - 1}, found {int(wrong[0])}")

    return Steps(
        lambda run: run("aclnnEmbedding", weight=weight, indices=input),
        {
            ("weight",): lambda run, upstream: run(
                "aclnnEmbeddingDenseBackward", grad=upstream, indices=input, **told
            )
        },
        check=check,
    )


@function("input", "weight", "bias", hidden=("mean", "rstd"))
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Steps:
    told = {"input": input, "normalized_shape": tuple(normalized_shape)}
    told |= {"weight": weight, "bias": bias}

    def backward(run: Run, upstream: Tensor, mean: Any, rstd: Any) -> Any:
        given = {"grad_out": upstream, "mean": mean, "rstd": rstd, "output_mask": _ALL}
        return run("aclnnLayerNormBackward", **given, **told)

    def by_torch() -> Any:
        return torch.native_layer_norm(input, list(normalized_shape), weight, bias, eps)

    return Steps(
        lambda run: run("aclnnLayerNorm", eps=eps, **told),
        {("input", "weight", "bias"): backward},
        by_torch,
    )


@function("input", "weight", hidden=("rstd",))
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Steps:
    gamma = input.new_ones(tuple(normalized_shape)) if weight is None else weight
    epsilon = torch.finfo(input.dtype).eps if eps is None else eps

    def by_torch() -> tuple[Tensor, Tensor]:
        axes = tuple(range(-len(normalized_shape), 0))
        squares = input.to(torch.promote_types(input.dtype, torch.float32)).square()
        rstd = torch.rsqrt(squares.mean(axes, keepdim=True) + epsilon)
        return torch.nn.functional.rms_norm(input, list(normalized_shape), weight, eps), rstd

    return Steps(
        lambda run: run("aclnnRmsNorm", x=input, gamma=gamma, epsilon=epsilon),
        {
            ("input", "weight"): lambda run, upstream, rstd: run(
                "aclnnRmsNormGrad", dy=upstream, x=input, rstd=rstd, gamma=gamma
            )
        },
        by_torch,
    )


def _gated(input: Tensor, dim: int = -1) -> Tensor:
    gate, value = input.chunk(2, dim)
    return torch.nn.functional.silu(gate) * value


@function(by_torch=_gated)
def swiglu(input: Tensor, dim: int = -1) -> Steps:
    return two_operators("aclnnSwiGlu", "aclnnSwiGluGrad", {"x": input, "dim": dim}, grad="y_grad")


def _by_gelu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    value, gate = input.chunk(2, dim)
    return value * torch.nn.functional.gelu(gate, approximate=approximate)


@function(hidden=("gelu",), by_torch=_by_gelu)
def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Steps:
    told = {"self": input, "dim": dim, "approximate": approximate}

    def by_torch() -> tuple[Tensor, Tensor]:
        gate = torch.nn.functional.gelu(input.chunk(2, dim)[1], approximate=approximate)
        return _by_gelu(input, dim, approximate), gate

    return Steps(
        lambda run: run("aclnnGeGlu", **told),
        {
            ("input",): lambda run, upstream, gelu: run(
                "aclnnGeGluBackward", grad_output=upstream, gelu=gelu, **told
            )
        },
        by_torch,
    )


@function("input")
def dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    stays: Tensor | None = None,
) -> Steps:
    """``stays`` is 1 where an element stays, and is drawn before: without it all do."""
    del training
    not_in_place(inplace)
    left = torch.ones_like(input) if stays is None else stays
    scale = 1 / (1 - p) if p < 1 else 0.0
    mask = _bits(left)
    return Steps(
        lambda run: run("aclnnDropoutDoMask", self=input, mask=mask, prob=p),
        {
            ("input",): lambda run, upstream: run(
                "aclnnDropoutBackward", grad_output=upstream, mask=mask, scale=scale
            )
        },
        lambda: input * (left * scale),
    )


def _bits(stays: Tensor) -> Tensor:
    """A bit for each element, the lowest first, in whole groups of 16 bytes."""
    row = stays.reshape(-1) != 0
    row = torch.nn.functional.pad(row, (0, -row.numel() % 128)).reshape(-1, 8)
    places = 1 << torch.arange(8, device=row.device)
    return (row * places).sum(1).to(torch.uint8)


def _turned(input: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    if interleaved:
        pairs = input.unflatten(-1, (-1, 2))
        partner = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
    else:
        first, second = input.chunk(2, -1)
        partner = torch.cat((-second, first), -1)
    return input * cos + partner * sin


@function("input", "cos", "sin", by_torch=_turned)
def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Steps:
    told = {"cos": cos, "sin": sin, "mode": int(interleaved)}

    def of_angles(run: Run, upstream: Tensor) -> Any:
        _, *gradients = run("aclnnRotaryPositionEmbeddingGrad", dy=upstream, x=input, **told)
        return tuple(gradients)

    return Steps(
        lambda run: run("aclnnRotaryPositionEmbedding", x=input, **told),
        {
            ("input",): lambda run, upstream: run(
                "aclnnRotaryPositionEmbeddingGrad", dy=upstream, **told
            ),
            ("cos", "sin"): of_angles,
        },
    )


@function("query", "key", "value", saves_result=True, hidden=("maxima", "sums"), autocast="lower")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Steps:
    _check_attention(query, key, attn_mask, dropout_p, is_causal, enable_gqa)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    mask, bias = _masks(query, key, attn_mask, is_causal, factor)
    told = {"query": query, "value": value, "atten_mask": mask, "scale_value": factor}
    told |= {"head_num": int(query.shape[1]), "input_layout": "BNSD", "sparse_mode": 1}

    def forward(run: Run) -> tuple[Any, Any, Any]:
        maxima, sums, *_, result = run("aclnnFlashAttentionScore", key=key, real_shift=bias, **told)
        return result, maxima, sums

    def backward(run: Run, upstream: Tensor, result: Any, maxima: Any, sums: Any) -> Any:
        given = {"softmax_max": maxima, "softmax_sum": sums, "attention_in": result}
        dq, dk, dv, *_ = run(
            "aclnnFlashAttentionScoreGrad", dy=upstream, key_in=key, pse_shift=bias, **given, **told
        )
        return dq, dk, dv

    def by_torch() -> tuple[Tensor, Tensor, Tensor]:
        """The operator leaves maxima and sums; torch's function does not."""
        groups = query.shape[1] // key.shape[1]
        scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * factor
        scores = scores if bias is None else scores + bias * factor
        scores = scores if mask is None else scores.masked_fill(mask, -torch.inf)
        maxima = scores.amax(-1, keepdim=True).float()
        sums = (scores.float() - maxima).exp().sum(-1, keepdim=True)
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return result.contiguous(), *(
            each.expand(*each.shape[:3], 8).clone() for each in (maxima, sums)
        )

    return Steps(forward, {("query", "key", "value"): backward}, by_torch)


def _check_attention(
    query: Tensor, key: Tensor, mask: Tensor | None, dropout: float, causal: bool, gqa: bool
) -> None:
    if query.dim() != _RANK:
        raise ValueError(f"query: expected (B, heads, S, D), found {query.dim()} dimensions")
    if dropout:
        raise ValueError(f"dropout_p: expected 0, found {dropout}; the operators drop nothing")
    if causal and mask is not None:
        raise ValueError("attn_mask: expected None beside is_causal, found a tensor")
    if not gqa and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"key: expected {query.shape[1]} heads as query has, found {key.shape[1]}; "
            "enable_gqa=True lets heads share keys"
        )


def _masks(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, factor: float
) -> tuple[Tensor | None, Tensor | None]:
    """What is hidden, and what is added before the factor."""
    ends = query.shape[2], key.shape[2]
    whole = (*query.shape[:2], *ends)
    if causal:
        return torch.ones(ends, dtype=torch.bool, device=query.device).triu(1), None
    if mask is None:
        return None, None
    if mask.dtype is torch.bool:
        return (~mask).expand(whole).contiguous(), None
    return None, (mask / factor).to(query.dtype).expand(whole).contiguous()

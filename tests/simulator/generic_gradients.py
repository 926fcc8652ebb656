"""Formulas of larger gradients that npucall does not declare, as ``generic_kernels``."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.dtypes import AnyArray


def wide(array: AnyArray) -> AnyArray:
    """Half precision as float32, as kernels compute; everything else as it is."""
    half = array.dtype in (np.float16, ml_dtypes.bfloat16)
    return array.astype(np.float32) if half else array


def convolution(
    grad_output: AnyArray,
    x: AnyArray,
    weight: AnyArray,
    bias_sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    cube_math_type: int,
    *outputs: Any,
) -> None:
    """Input, weight and bias of a convolution in two dimensions; the mask says which are wanted."""
    if transposed or any(output_padding) or cube_math_type not in range(4):
        raise ValueError("expected a convolution that is not transposed")
    (top, left), (down, right), (apart, aside) = padding, stride, dilation
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, top), (left, left)))
    grad_padded, grad_weight = np.zeros_like(padded), np.zeros(weight.shape)
    rows, columns = grad_output.shape[2:]
    per_in, per_out = x.shape[1] // groups, weight.shape[0] // groups
    for channel, y, z in product(range(weight.shape[0]), *map(range, weight.shape[2:])):
        first = channel // per_out * per_in
        window = (
            slice(None),
            slice(first, first + per_in),
            slice(y * apart, y * apart + rows * down, down),
            slice(z * aside, z * aside + columns * right, right),
        )
        gradient = grad_output[:, channel, None].astype(np.float64)
        grad_weight[channel, :, y, z] = (padded[window] * gradient).sum((0, 2, 3))
        grad_padded[window] += gradient * weight[channel, :, y, z].astype(np.float64)[:, None, None]
    height, width = x.shape[2:]
    grad_input = grad_padded[:, :, top : top + height, left : left + width]
    grad_bias = grad_output.astype(np.float64).sum((0, 2, 3))
    gradients = (grad_input, grad_weight, grad_bias)
    for wanted, target, gradient in zip(output_mask, outputs, gradients, strict=True):
        if wanted:
            target[...] = gradient


def embedding_dense(
    grad: AnyArray,
    indices: AnyArray,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
    out: AnyArray,
) -> None:
    """Adds each row of ``grad`` to the row of its index; the padding's row stays 0."""
    rows = indices.reshape(-1)
    counts = np.bincount(rows, minlength=num_weights)
    weights = 1 / counts[rows] if scale_grad_by_freq else np.ones(len(rows))
    weights[rows == padding_idx] = 0
    total = np.zeros(out.shape)
    np.add.at(total, rows, wide(grad).reshape(len(rows), -1) * weights[:, None])
    out[...] = total


def layer_norm(
    grad_out: AnyArray,
    x: AnyArray,
    normalized_shape: Sequence[int],
    mean: AnyArray,
    rstd: AnyArray,
    weight: AnyArray | None,
    bias: AnyArray | None,
    output_mask: Sequence[bool],
    *outputs: Any,
) -> None:
    """The three gradients of a layer normalisation, of which the mask says which are wanted."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    others = tuple(range(axes[0]))
    normal = (wide(x) - mean) * rstd
    scaled = wide(grad_out) * (1 if weight is None else wide(weight))
    inner = scaled - scaled.mean(axes, keepdims=True)
    inner = inner - normal * (scaled * normal).mean(axes, keepdims=True)
    gradients = (rstd * inner, (wide(grad_out) * normal).sum(others), wide(grad_out).sum(others))
    for wanted, target, gradient in zip(output_mask, outputs, gradients, strict=True):
        if wanted:
            target[...] = gradient

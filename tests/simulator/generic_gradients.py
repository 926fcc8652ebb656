"""Formulas of larger gradients that npucall does not declare, as ``generic_kernels``."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from npucall.dtypes import AnyArray


def wide(array: AnyArray) -> AnyArray:
    """Half precision as float32, as kernels compute; everything else as it is."""
    half = array.dtype in (np.float16, ml_dtypes.bfloat16)
    return array.astype(np.float32) if half else array


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

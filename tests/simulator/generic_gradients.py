"""Formulas of larger gradients that npucall does not declare, as ``generic_kernels``."""

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

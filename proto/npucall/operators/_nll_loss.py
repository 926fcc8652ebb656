"""What the gradients of the negative log-likelihood have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npucall.dtypes import INT32, INT64, UINT8
from npucall.operators._numerics import MEAN

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray, Array
    from npucall.tensors import Shape

LABELS = (INT64, INT32, UINT8)
REDUCTIONS = "0 none, 1 mean, 2 sum; no other"


def gradient(  # what both have in common, and the shape (N, C, pixels) to which both reshape
    shape: Shape,
    grad_output: Array,
    target: Array,
    weight: Array,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> AnyArray:
    """-grad_output * weight[label] at each label, 0 elsewhere and where there is no such class."""
    batch, classes, pixels = shape
    labels = np.asarray(target, np.int64).reshape(batch, 1, pixels)
    counted = (labels != ignore_index) & (labels >= 0) & (labels < classes)
    labels = np.where(counted, labels, 0)
    upstream = np.asarray(grad_output)
    upstream = upstream.reshape(labels.shape if upstream.size == labels.size else (1, 1, 1))
    if reduction == MEAN:
        upstream = upstream / np.reshape(total_weight, ())
    values = np.where(counted, -upstream * np.ravel(weight)[labels], upstream.dtype.type(0))
    result = np.zeros(shape, upstream.dtype)
    np.put_along_axis(result, labels, values, axis=1)
    return result

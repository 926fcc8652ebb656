"""Containers of bytes in which MaxPool2dWithMask keeps where the largest numbers stand.

A container is INT8 of the shape (N, C, k, L), with the k cells of a window and, for V windows of a
plane, L = 32 (V / 16 + 1), V / 16 rounded up. Its first 4 N C V bytes are as many INT32, the lower
byte first: row * W + column of each window, in row-major order. What follows belongs to nobody.
"""

from __future__ import annotations

from math import prod

import numpy as np

from npucall.declare import Facts, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import AnyArray, Array
from npucall.errors import AclnnStatus, AttributeValueError
from npucall.operators._rows import numbers_of
from npucall.tensors import Shape

_BYTES = 4


def _pair(draft: Draft) -> tuple[int, int]:
    kernel = draft.attribute("kernel_size")
    return kernel[0], kernel[-1]


def shape_of(draft: Draft) -> Shape:
    """The shape of a container."""
    pooled = draft.shape("windows")
    return (*pooled[:-2], prod(_pair(draft)), 32 * (-(-prod(pooled[-2:]) // 16) + 1))


NOT_ONE_CELL = rules.with_status(
    AclnnStatus.ACLNN_ERR_INNER_NULLPTR,
    rules.requires(
        "a window of several cells: of one cell a device keeps a mask of its own, which npucall "
        "does not have",
        "kernel_size",
        holds=lambda draft: _pair(draft) != (1, 1),
        found=lambda draft: draft.attribute("kernel_size"),
        error=AttributeValueError,
    ),
)
CHECKS = (
    rules.shape_of("windows and kernel_size", into="container", make=shape_of),
    rules.same_shape("indices", "container", "that of a container"),
    rules.requires(
        "a container without gaps: a device begins at the start of its storage",
        "indices",
        holds=lambda draft: all(spec.row_major for _, spec in draft.tensors(("indices",))),
        found=lambda draft: [spec.strides for _, spec in draft.tensors(("indices",))],
    ),
)
"""Of the container, once ``windows`` is found."""


def held(facts: Facts) -> int:
    """Bytes of the numbers in a container."""
    return _BYTES * facts.count("windows")


def written(facts: Facts, name: str, places: AnyArray) -> AnyArray:
    """Writes the numbers into a container, and zeros behind them."""
    shape = facts.shapes["container"]
    out, length = facts.output(name, shape), shape[-1]
    numbers = places.reshape(-1).astype("<i4", copy=False).view(np.int8)
    lead = shape[:-1]
    for block in cut(lead, max(BLOCK // length, 1)):
        extents = [piece.stop - piece.start for piece in block]
        first = numbers_of(lead, block).start * length
        row = numbers[first : first + prod(extents) * length]
        filled = np.zeros(prod(extents) * length, np.int8)
        filled[: len(row)] = row
        out[block] = filled.reshape(*extents, length)
    return out


def read(facts: Facts, container: Array) -> AnyArray:
    """The numbers in a container, in the shape of the windows."""
    shape, length = facts.shapes["windows"], container.shape[-1]
    numbers = np.empty(_BYTES * prod(shape), np.int8)
    lead = container.shape[:-1]
    for block in cut(lead, max(BLOCK // length, 1)):
        first = numbers_of(lead, block).start * length
        if first >= len(numbers):
            break
        row = np.asarray(facts.read(container, block), np.int8).reshape(-1)
        part = numbers[first : first + len(row)]
        part[...] = row[: len(part)]
    return numbers.view("<i4").reshape(shape)

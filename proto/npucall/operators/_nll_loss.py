"""What the gradients of the negative log-likelihood have in common."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from npucall.dtypes import INT32, INT64, UINT8
from npucall.operators._numerics import MEAN, numbered

if TYPE_CHECKING:
    from npucall.declare import Facts
    from npucall.dtypes import AnyArray, Array

LABELS = (INT64, INT32, UINT8)
REDUCTIONS = "0 none, 1 mean, 2 sum; no other"


def gradient(
    facts: Facts,
    grad_output: Array,
    target: Array,
    weight: Array,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> AnyArray:
    """-grad_output * weight[label] at each label, 0 elsewhere and where there is no such class."""
    shape = facts.shapes["self"]
    axis = min(len(shape) - 1, 1)
    out = facts.output("out", shape)
    shared = prod(grad_output.shape) == 1
    divisor = np.reshape(facts.read(total_weight, ...), ()) if reduction == MEAN else None
    for *labelled, classes in facts.blocks((*shape[:axis], *shape[axis + 1 :], shape[axis])):
        places = tuple(labelled)  # of the labels, each of which belongs to a line of classes
        index = (*places[:axis], classes, *places[axis:])
        extents = [piece.stop - piece.start for piece in index]
        result = np.zeros(extents, facts.dtype)
        extents[axis] = 1
        labels = np.asarray(facts.read(target, places), np.int64).reshape(extents)
        here = (labels != ignore_index) & (labels >= classes.start) & (labels < classes.stop)
        labels = np.where(here, labels, classes.start)
        upstream = facts.read(grad_output, ... if shared else places)
        upstream = upstream.reshape((1,) * len(extents) if shared else extents)
        if divisor is not None:
            upstream = upstream / divisor
        values = np.where(here, -upstream * numbered(facts, weight, labels), facts.dtype.type(0))
        np.put_along_axis(result, labels - classes.start, values, axis)
        out[index] = result
    return out

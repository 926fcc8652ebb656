"""What the negative log-likelihood of rows and of pixels have in common, and their gradients."""

from __future__ import annotations

from math import prod

import numpy as np

from npucall.declare import Facts, Output, rules
from npucall.declare.prepare import Prepared
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT32, INT64, UINT8, AnyArray, Array
from npucall.operators import _losses
from npucall.operators._numerics import MEAN, NONE, Reduction, numbered
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

LABELS = (INT64, INT32, UINT8)
OUTPUTS = (
    Output("out", "the loss", shape="result", dtype="self"),
    Output(
        "total_weight_out",
        "the sum of the weights of the labels that count; 0 without reduction",
        shape="one",
        dtype="self",
    ),
)
"""Of the losses."""
PRODUCTS = {
    A2: FLOATS,
    A3: FLOATS,
    ASCEND_950: FLOATS,
    ASCEND_910: HALF_AND_SINGLE,
    ASCEND_310P: HALF_AND_SINGLE,
}
LEGACY = {ASCEND_310B: HALF_AND_SINGLE}
"""Those of the losses; of the gradients there are fewer in the documents."""


def filled_if_empty(*names: str) -> rules.Rule:
    """The call is done if one of them has no elements; the total weight of none is 0."""
    return _losses.filled_if_empty(*names, outputs=("out",))


def no_total(call: Prepared) -> float | None:
    """The total weight where the device does not write it: without reduction."""
    return 0.0 if call.attributes["reduction"] == NONE else None


def loss(
    facts: Facts, self: Array, target: Array, weight: Array, reduction: Reduction, ignore_index: int
) -> tuple[AnyArray, AnyArray]:
    """-weight[label] * self[label], or what a reduction makes of it, and the sum of the weights.

    Sums are taken in float64, block by block in the order of the labels.
    """
    shape = self.shape
    axis = min(len(shape) - 1, 1)
    labelled = (*shape[:axis], *shape[axis + 1 :])
    out = facts.output("out", labelled) if reduction == NONE else None
    loss = total = np.float64(0)
    for index in facts.blocks(labelled):
        labels = np.asarray(facts.read(target, index), np.int64)
        here = (labels != ignore_index) & (labels >= 0) & (labels < shape[axis])
        labels = np.where(here, labels, 0)
        places = list(np.ix_(*(np.arange(piece.start, piece.stop) for piece in index)))
        places.insert(axis, labels)
        weights = facts.read(weight, labels)
        values = np.where(here, -weights * facts.read(self, tuple(places)), facts.dtype.type(0))
        if out is not None:
            out[index] = values
            continue
        loss += np.sum(values, dtype=np.float64)
        total += np.sum(weights, where=here, dtype=np.float64)
    if out is not None:
        return out, np.zeros((), facts.dtype)
    return np.asarray(loss / total if reduction == MEAN else loss), np.asarray(total)


def gradient(
    facts: Facts,
    grad_output: Array,
    target: Array,
    weight: Array,
    reduction: Reduction,
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

"""Gradient of the cross entropy with respect to the logits, from their log-softmax."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    Values,
    at_once,
    operator,
    rules,
)
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, FLOATS, INT32, INT64, AnyArray, Array
from npucall.errors import AclnnStatus, ArgumentError, AttributeValueError
from npucall.operators._labels import check_labels
from npucall.products import A2, A3, ASCEND_950

TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
REDUCTION = '"none", "mean" or "sum"; absent means "mean"'


def without_zloss(name: str) -> rules.Rule:
    """The tensor is absent: it belongs to the z-loss."""
    return rules.requires(
        "none, since the kernels compute no z-loss",
        name,
        holds=lambda draft: draft.absent(name),
        found=lambda draft: f"a tensor of shape {draft.shape(name)}",
        error=ArgumentError,
    )


def smoothing(draft: Draft) -> object:
    """The value of label_smoothing."""
    return draft.attribute("label_smoothing")


def _labels(
    facts: Facts, target: Array, ignore_index: int, classes: int, index: tuple[slice, ...]
) -> tuple[AnyArray, AnyArray]:
    """A block of the labels, and which of them count; each that does is a class."""
    labels = np.asarray(facts.read(target, index), np.int64)
    counted = labels != ignore_index
    check_labels("target", labels[counted], classes)
    return labels, counted


def _check_classes(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    """The labels that count are classes."""
    target, classes = inputs["target"], inputs["log_prob"].shape[1]
    for index in facts.blocks(target.shape):
        _labels(facts, target, attributes["ignore_index"], classes, index)


@operator(
    "aclnnCrossEntropyLossGrad",
    Input("grad_loss", "gradient with respect to the loss"),
    Input("log_prob", "the log-softmax of the logits, (N, C)"),
    Input("target", "labels (N,)", as_is=True),
    Input(
        "weight", "weight of each class, (C,)", optional=True, as_is=True, c_name="weightOptional"
    ),
    Input("grad_zloss", "must be absent", optional=True, c_name="gradZlossOptional"),
    Input("lse_for_zloss", "must be absent", optional=True, c_name="lseForZlossOptional"),
    Attribute("reduction", Kind.STRING, REDUCTION, c_name="reductionOptional"),
    Attribute("ignore_index", Kind.INT64, "the label of rows that do not count"),
    Attribute("label_smoothing", Kind.DOUBLE, "0 to 1 on Ascend 950, 0 elsewhere"),
    Attribute("lse_square_scale_for_zloss", Kind.DOUBLE, "must be 0"),
    Output(
        "out", "gradient with respect to the logits", shape="log_prob", dtype="log_prob", const=True
    ),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS},
    checks=(
        rules.present("grad_loss", "log_prob", "target", "out"),
        rules.supported("grad_loss"),
        rules.same_dtype("log_prob", "out", as_="grad_loss"),
        rules.except_on((ASCEND_950,), rules.dtype_in("target", INT64)),
        rules.on((ASCEND_950,), rules.dtype_in("target", INT64, INT32)),
        rules.dtype_in("weight", FLOAT),
        rules.one_of("reduction", "none", "mean", "sum", status=TILING),
        rules.requires(
            "0 to 1",
            "label_smoothing",
            holds=lambda draft: 0 <= draft.attribute("label_smoothing") <= 1,
            found=smoothing,
            error=AttributeValueError,
            status=TILING,
        ),
        rules.rank_is("log_prob", 2, status=TILING),
        rules.shape_of("log_prob", into="rows", make=lambda draft: draft.shape("log_prob")[:1]),
        rules.one_for_each(
            "grad_loss",
            "rows",
            lambda draft: draft.attribute("reduction") == "none",
            'if reduction is "none"',
            status=TILING,
        ),
        rules.same_shape("target", "rows", "a label for each row of log_prob", status=TILING),
        rules.rank_is("weight", 1, status=TILING),
        rules.shape_of("log_prob", into="classes", make=lambda draft: draft.shape("log_prob")[1:]),
        rules.same_shape("weight", "classes", "a weight for each class", status=TILING),
        rules.same_shape("out", "log_prob", status=TILING),
        # What the device would pass over in silence.
        without_zloss("grad_zloss"),
        without_zloss("lse_for_zloss"),
        rules.requires(
            "0, since the kernels compute no z-loss",
            "lse_square_scale_for_zloss",
            holds=lambda draft: draft.attribute("lse_square_scale_for_zloss") == 0,
            found=lambda draft: draft.attribute("lse_square_scale_for_zloss"),
            error=AttributeValueError,
        ),
        rules.except_on(
            (ASCEND_950,),
            rules.requires(
                "0, since the kernel writes no output otherwise",
                "label_smoothing",
                holds=lambda draft: draft.attribute("label_smoothing") == 0,
                found=smoothing,
                error=AttributeValueError,
            ),
        ),
        rules.succeed_if_empty("log_prob"),
    ),
    kernel_dtype=rules.dtype_of("log_prob"),
    over=at_once(),
    values=Values(("target",), _check_classes, lambda facts: range(facts.shapes["log_prob"][-1])),
    sample=Sample(
        {"grad_loss": (), "target": (2,), "weight": (3,)},
        {"target": INT64, "weight": FLOAT},
        without=("grad_zloss", "lse_for_zloss"),
    ),
    source="CANN page aclnnCrossEntropyLossGrad; header aclnn_cross_entropy_loss_grad.h",
)
def cross_entropy_loss_grad(
    facts: Facts,
    grad_loss: Array,
    log_prob: Array,
    target: Array,
    weight: Array | None = None,
    grad_zloss: Array | None = None,
    lse_for_zloss: Array | None = None,
    reduction: str | None = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
) -> AnyArray:
    """Gradient of ``cross_entropy(x, target, weight)`` with respect to the logits ``x``.

    From ``log_prob = log_softmax(x)``. With p = e^log_prob, w the weights or ones, s =
    ``label_smoothing`` and, for the row i of (N, C), y = ``target[i]`` and G its gradient::

        out[i, j] = G * (1 - s) * w[y] * (p[i, j] - [j = y])
                  + G * s / C * (p[i, j] * sum of w - w[j])

    G is ``grad_loss[i]`` (none), ``grad_loss`` (sum), or ``grad_loss`` / D (mean), D being the sum
    of w[y] over the rows that count. Rows whose label is ``ignore_index`` do not, and are 0.

    The z-loss is not computed: its three arguments are refused, as is ``label_smoothing`` where the
    device writes nothing for it. A label that is neither a class nor ``ignore_index`` is refused
    (161002) when values are seen, which is at run. ``weight`` is FLOAT and is not rounded.

    As autograd of torch's ``cross_entropy``, which takes labels of INT64 only. On the device a
    negative ``ignore_index`` counts for nothing on Ascend 950, and if all rows are ignored mean
    gives NaN on Atlas A2 and A3; here, as in torch, it counts and gives 0.
    """
    count, classes = log_prob.shape
    out = facts.output("out", log_prob.shape)
    some = _Rows(facts, target, weight, ignore_index, classes)
    divisor = facts.dtype.type(some.sum_of_own(count) if reduction in ("mean", None) else 1)
    total = facts.dtype.type(some.sum_of_all() if label_smoothing else 0)
    for rows, columns in facts.blocks((count, classes)):
        labels, counted = some.labels(rows)
        loss = facts.read(grad_loss, rows if reduction == "none" else ...)
        gradient = np.where(counted, loss / divisor, facts.dtype.type(0))
        probability = np.exp(facts.read(log_prob, (rows, columns)))
        distance = probability.copy() if label_smoothing else probability
        (here,) = np.nonzero((labels >= columns.start) & (labels < columns.stop))
        distance[here, labels[here] - columns.start] -= 1
        result = (gradient * (1 - label_smoothing) * some.weights(labels))[:, np.newaxis] * distance
        if label_smoothing:
            smooth = gradient * (label_smoothing / classes)
            result += smooth[:, np.newaxis] * (probability * total - some.weights(columns))
        out[rows, columns] = result
    return out


class _Rows(NamedTuple):
    """Labels and weights of a call, a block at a time."""

    facts: Facts
    target: Array
    weight: Array | None
    ignore_index: int
    classes: int

    def labels(self, rows: slice) -> tuple[AnyArray, AnyArray]:
        """The label of each row, 0 if it does not count, and whether it does."""
        labels, counted = _labels(self.facts, self.target, self.ignore_index, self.classes, (rows,))
        return np.where(counted, labels, 0), counted

    def weights(self, classes: AnyArray | slice) -> AnyArray:
        """The weight of each of some classes, or a one for all of them."""
        if self.weight is None:
            return np.ones(1, self.facts.dtype)
        return np.asarray(self.facts.read(self.weight, classes), self.facts.dtype)

    def sum_of_own(self, count: int) -> float:
        """The sum of the weights of the labels that count."""
        total = 0.0
        for (rows,) in self.facts.blocks((count,)):
            labels, counted = self.labels(rows)
            own = np.broadcast_to(self.weights(labels), labels.shape)
            total += float(np.sum(own[counted], dtype=np.float64))
        return total

    def sum_of_all(self) -> float:
        """The sum of the weights of all classes."""
        if self.weight is None:
            return self.classes
        blocks = self.facts.blocks((self.classes,))
        return sum(float(np.sum(self.weights(part), dtype=np.float64)) for (part,) in blocks)

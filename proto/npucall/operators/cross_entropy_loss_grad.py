"""Gradient of the cross entropy with respect to the logits, from their log-softmax."""

from collections.abc import Mapping
from typing import Any

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
from npucall.dtypes import FLOAT, FLOATS, INT32, INT64, AnyArray, Array
from npucall.errors import TILING_ERROR, ArgumentError, AttributeValueError
from npucall.operators import _cross_entropy as shared
from npucall.products import A2, A3, ASCEND_950


def absent(name: str) -> rules.Rule:
    """The tensor is absent: it belongs to the z-loss."""
    return rules.requires(
        "none, since the kernels compute no z-loss",
        name,
        holds=lambda draft: draft.absent(name),
        found=lambda draft: f"a tensor of shape {draft.shape(name)}",
        error=ArgumentError,
    )


def _check_classes(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    classes = inputs["log_prob"].shape[1]
    shared.check_labels_of_rows(facts, inputs["target"], attributes["ignore_index"], classes)


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
    Attribute("reduction", Kind.STRING, shared.REDUCTION, c_name="reductionOptional"),
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
        *shared.reduction_and_smoothing(),
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("log_prob", 2),
            rules.shape_of("log_prob", into="rows", make=lambda draft: draft.shape("log_prob")[:1]),
            rules.one_for_each(
                "grad_loss",
                "rows",
                lambda draft: draft.attribute("reduction") == "none",
                'if reduction is "none"',
            ),
            rules.same_shape("target", "rows", "a label for each row of log_prob"),
            rules.rank_is("weight", 1),
            rules.shape_of(
                "log_prob", into="classes", make=lambda draft: draft.shape("log_prob")[1:]
            ),
            rules.same_shape("weight", "classes", "a weight for each class"),
            rules.same_shape("out", "log_prob"),
        ),
        # What the device would pass over in silence.
        absent("grad_zloss"),
        absent("lse_for_zloss"),
        shared.without_zloss("lse_square_scale_for_zloss", 0),
        rules.except_on(
            (ASCEND_950,),
            rules.requires(
                "0, since the kernel writes no output otherwise",
                "label_smoothing",
                holds=lambda draft: draft.attribute("label_smoothing") == 0,
                found=shared.smoothing,
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
    area="losses",
    torch="nn.functional.cross_entropy",
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
    (161002) when the call runs. ``weight`` is FLOAT and is not rounded.

    As torch's autograd of ``cross_entropy``, except that torch takes INT64 labels only. On the
    device, Ascend 950 does not mask a negative ``ignore_index``, and Atlas A2 and A3 give NaN for
    the mean if all rows are ignored; here, as in torch, it masks and the mean is 0.
    """
    count, classes = log_prob.shape
    out = facts.output("out", log_prob.shape)
    some = shared.LabelledRows(facts, target, weight, ignore_index, classes)
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

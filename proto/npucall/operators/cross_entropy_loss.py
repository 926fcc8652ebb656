"""Cross entropy of logits."""

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
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, FLOATS, INT32, INT64, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _cross_entropy as shared
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

OUTPUTS = ("loss_out", "log_prob_out", "zloss_out", "lse_for_zloss_out")


def result(draft: Draft) -> Shape:
    """The shape of the loss."""
    return draft.shape("input")[:1] if draft.attribute("reduction") == "none" else (1,)


def of_nothing(draft: Draft) -> float | None:
    """What the loss of no rows is."""
    return {"none": None, "sum": 0.0}.get(draft.attribute("reduction"), np.nan)


def _check_classes(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    classes = inputs["input"].shape[1]
    shared.check_labels_of_rows(facts, inputs["target"], attributes["ignore_index"], classes)


@operator(
    "aclnnCrossEntropyLoss",
    Input("input", "logits, (N, C)"),
    Input("target", "labels (N,)", as_is=True),
    Input(
        "weight", "weight of each class, (C,)", optional=True, as_is=True, c_name="weightOptional"
    ),
    Attribute("reduction", Kind.STRING, shared.REDUCTION, c_name="reductionOptional"),
    Attribute("ignore_index", Kind.INT64, "the label of rows that do not count"),
    Attribute("label_smoothing", Kind.DOUBLE, "0 to 1"),
    Attribute("lse_square_scale_for_zloss", Kind.DOUBLE, "must be 0"),
    Attribute("return_zloss", Kind.BOOL, "must be false"),
    Output("loss_out", "the loss, (N,) or (1,)", shape="loss", dtype="input", const=True),
    Output("log_prob_out", "the log-softmax, (N, C)", shape="input", dtype="input", const=True),
    Output("zloss_out", "zeros", shape="nothing", dtype="input", const=True),
    Output("lse_for_zloss_out", "zeros", shape="nothing", dtype="input", const=True),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS},
    checks=(
        rules.present("input", "target", *OUTPUTS),
        rules.supported("input"),
        rules.same_dtype(*OUTPUTS, as_="input"),
        rules.except_on((ASCEND_950,), rules.dtype_in("target", INT64)),
        rules.on((ASCEND_950,), rules.dtype_in("target", INT64, INT32)),
        rules.dtype_in("weight", FLOAT),
        *shared.reduction_and_smoothing(),
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("input", 2),
            rules.requires(
                "classes",
                "input",
                holds=lambda draft: draft.shape("input")[1] > 0,
                found=lambda draft: f"shape {draft.shape('input')}",
            ),
            rules.shape_of("input", into="rows", make=lambda draft: draft.shape("input")[:1]),
            rules.same_shape("target", "rows", "a label for each row of input"),
            rules.shape_of("input", into="classes", make=lambda draft: draft.shape("input")[1:]),
            rules.same_shape("weight", "classes", "a weight for each class"),
        ),
        rules.shape_of("input", into="loss", make=result),
        rules.shape_of("input", into="nothing", make=lambda _: (0,)),
        rules.same_shape("loss_out", "loss", "a loss for each row, or one if reduced"),
        rules.same_shape("log_prob_out", "input"),
        # What the device would pass over in silence.
        shared.without_zloss("lse_square_scale_for_zloss", 0),
        shared.without_zloss("return_zloss", value=False),
        rules.fill_if_empty(
            "input", fill=of_nothing, meaning="NaN for a mean, 0 for a sum", outputs=("loss_out",)
        ),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(),
    values=Values(("target",), _check_classes, lambda facts: range(facts.shapes["input"][-1])),
    unwritten=dict.fromkeys(OUTPUTS[2:], lambda _: 0.0),
    sample=Sample({"target": (2,), "weight": (3,)}, {"target": INT64, "weight": FLOAT}),
    area="losses",
    torch="nn.functional.cross_entropy",
    source="CANN page aclnnCrossEntropyLoss; header aclnn_cross_entropy_loss.h",
)
def cross_entropy_loss(
    facts: Facts,
    input: Array,  # noqa: A002  # the operator's own name for it
    target: Array,
    weight: Array | None = None,
    reduction: str | None = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Cross entropy of the logits ``input`` and the classes ``target``.

    With p = log_softmax(input), which is ``log_prob_out`` (also for ignored rows), w the weights or
    ones, s = ``label_smoothing`` and, for the row i of (N, C), y = ``target[i]``::

        loss[i] = -(1 - s) * w[y] * p[i, y] - s / C * sum over j of w[j] * p[i, j]

    and 0 if y is ``ignore_index``. ``loss_out`` is that, its sum, or its mean, which is the sum
    divided by the sum of w[y] over the rows that count: NaN if no row counts. Without rows the mean
    is NaN and the sum is 0. The loss is of p before it is rounded; sums are taken in float64.

    The z-loss is not computed: its arguments are refused, and its outputs, which the device does
    not write, are zeros of any shape, by default without elements. A label that is neither a class
    nor ``ignore_index`` is refused (161002) when the call runs. ``weight`` is FLOAT and is not
    rounded. Only Ascend 950 takes INT32 labels.

    As ``cross_entropy`` in torch. On the device, Ascend 950 cuts ``ignore_index`` to 32 bits, or
    with many classes does not mask a negative one; here every value works. All products smooth
    labels, although the backward operator takes no smoothing on Atlas A2 and A3.
    """
    del lse_square_scale_for_zloss, return_zloss
    count, classes = input.shape
    log_prob = facts.output("log_prob_out", (count, classes))
    out = facts.output("loss_out", (count,)) if reduction == "none" else None
    labelled = shared.LabelledRows(facts, target, weight, ignore_index, classes)
    loss = divisor = np.float64(0)
    for rows in shared.groups_of_rows(count, classes):
        labels, counted = labelled.labels(rows)
        own, smooth = np.zeros(labels.shape, facts.dtype), np.zeros(labels.shape)
        for columns, part in shared.log_softmax(facts, input, rows):
            log_prob[rows, columns] = part
            (here,) = np.nonzero((labels >= columns.start) & (labels < columns.stop))
            own[here] = part[here, labels[here] - columns.start]
            if label_smoothing:
                smooth += (part * labelled.weights(columns)).sum(1, np.float64)
        weights = np.broadcast_to(labelled.weights(labels), labels.shape)
        losses = -(1 - label_smoothing) * weights * own
        if label_smoothing:
            losses = losses - label_smoothing / classes * smooth
        losses = np.where(counted, losses, 0)
        if out is not None:
            out[rows] = losses
        loss += losses.sum(dtype=np.float64)
        divisor += weights.sum(where=counted, dtype=np.float64)
    zero = np.zeros((), facts.dtype)
    if out is not None:
        return out, log_prob, zero, zero
    return np.reshape(loss / divisor if reduction != "sum" else loss, 1), log_prob, zero, zero

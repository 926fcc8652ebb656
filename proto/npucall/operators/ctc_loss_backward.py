"""Gradient of the connectionist temporal classification loss with respect to log-probabilities."""

from collections.abc import Mapping, Sequence
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
from npucall.declare.cuts import BLOCK
from npucall.declare.draft import Draft
from npucall.dtypes import (
    BF16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
    AnyArray,
    Array,
)
from npucall.errors import AttributeValueError, DTypeError
from npucall.operators._ctc import MATRIX, Losses, go_back, states_of
from npucall.operators._labels import check_labels
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_out", "log_probs", "targets", "input_lengths", "target_lengths")
WITH_SHORT, WITHOUT_SHORT = (FLOAT, DOUBLE, FLOAT16, BF16), (FLOAT, DOUBLE)


def longest(draft: Draft, lengths: str) -> int:
    """The longest of some lengths; 0 if there are none."""
    return max(draft.attribute(lengths), default=0)


def matrix(draft: Draft) -> bool:
    """Whether the targets have a row for each item, rather than one item behind the other."""
    return len(draft.shape("targets")) == MATRIX


def one_for_each_item(lengths: str) -> rules.Rule:
    """There are as many lengths as items."""
    return rules.requires(
        "a length for each item of log_probs",
        lengths,
        holds=lambda draft: len(draft.attribute(lengths)) == draft.shape("log_probs")[1],
        found=lambda draft: f"{len(draft.attribute(lengths))} for {draft.shape('log_probs')[1]}",
        error=AttributeValueError,
    )


def lengths_not_negative(lengths: str) -> rules.Rule:
    """No length is below 0."""
    return rules.requires(
        "lengths of 0 or more",
        lengths,
        holds=lambda draft: min(draft.attribute(lengths), default=0) >= 0,
        found=lambda draft: min(draft.attribute(lengths)),
        error=AttributeValueError,
    )


def small_enough_for_short_floats(draft: Draft) -> bool:
    """Whether the kernels of Atlas A2 and A3 have room, if log_probs are FLOAT16 or BF16."""
    _, items, classes = draft.shape("log_probs")
    states = draft.shape("log_alpha")[2]
    roomy = classes <= 200_000 and items <= 8180 and (states - 1) // 2 <= 1000  # noqa: PLR2004
    return roomy or draft.dtype("log_probs") not in (FLOAT16, BF16)


def _holds(facts: Facts, attributes: Mapping[str, Any]) -> int:
    """A number for each length; and of an item that is longer than a block a state and a class."""
    _, items, classes = facts.shapes["log_probs"]
    width = states_of(attributes["target_lengths"])
    long = width + classes if max(width, classes) > BLOCK else 0
    return (4 * items + long) * DOUBLE.itemsize


def _computes(facts: Facts, attributes: Mapping[str, Any]) -> int:
    """At each step the states and classes of each item."""
    _, items, classes = facts.shapes["log_probs"]
    steps = max(attributes["input_lengths"], default=0)
    return steps * items * (states_of(attributes["target_lengths"]) + classes)


def _check_classes(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    """The labels within the items' lengths are classes."""
    targets, classes = inputs["targets"], inputs["log_probs"].shape[2]
    _check_targets(facts, targets, attributes["target_lengths"], classes)


def _check_targets(facts: Facts, targets: Array, lengths: Sequence[int], classes: int) -> None:
    counts = np.array(lengths, np.int64)
    for index in facts.blocks(targets.shape):
        labels = np.asarray(facts.read(targets, index), np.int64)
        if len(index) == MATRIX:
            rows, places = index
            labels = labels[np.arange(places.start, places.stop) < counts[rows, np.newaxis]]
        check_labels("targets", labels, classes)


@operator(
    "aclnnCtcLossBackward",
    Input("grad_out", "gradient with respect to the loss of each item, (N,)"),
    Input("log_probs", "log-probabilities of the classes at each time step, (T, N, C)"),
    Input("targets", "labels, (N, S), or those of all items one behind the other", as_is=True),
    Attribute("input_lengths", Kind.INT_ARRAY, "time steps of each item"),
    Attribute("target_lengths", Kind.INT_ARRAY, "labels of each item"),
    Input("neg_log_likelihood", "the loss of each item, (N,)"),
    Input("log_alpha", "logarithms of the forward variables, (N, T, A)"),
    Attribute("blank", Kind.INT64, "the class between labels"),
    Attribute("zero_infinity", Kind.BOOL, "items whose loss is infinite have no gradient"),
    Output("out", "gradient with respect to log_probs", shape="log_probs", dtype="log_probs"),
    products={
        A2: WITH_SHORT,
        A3: WITH_SHORT,
        ASCEND_950: WITH_SHORT,
        ASCEND_910: WITHOUT_SHORT,
        ASCEND_310P: WITHOUT_SHORT,
    },
    legacy={ASCEND_310B: WITHOUT_SHORT},
    checks=(
        rules.present(*INPUTS, "neg_log_likelihood", "log_alpha", "out"),
        rules.requires(
            "a first dimension, the time steps, of 1 or more",
            "log_probs",
            holds=lambda draft: draft.shape("log_probs")[:1] not in ((), (0,)),
            found=lambda draft: f"shape {draft.shape('log_probs')}",
        ),
        rules.rank_is("grad_out", 1),
        rules.rank_is("neg_log_likelihood", 1),
        rules.rank_is("log_probs", 3),
        rules.rank_is("log_alpha", 3),
        rules.rank_is("targets", 1, 2),
        rules.rank_is("out", 3),
        rules.requires(
            "a class of log_probs",
            "blank",
            holds=lambda draft: 0 <= draft.attribute("blank") < draft.shape("log_probs")[2],
            found=lambda draft: f"{draft.attribute('blank')} of {draft.shape('log_probs')[2]}",
            error=AttributeValueError,
        ),
        rules.requires(
            "lengths of at most (A - 1) / 2, A being the last extent of log_alpha",
            "target_lengths",
            "log_alpha",
            holds=lambda draft: (
                longest(draft, "target_lengths") <= (draft.shape("log_alpha")[2] - 1) // 2
            ),
            found=lambda draft: (
                f"{longest(draft, 'target_lengths')} beside A = {draft.shape('log_alpha')[2]}"
            ),
            error=AttributeValueError,
        ),
        rules.when(
            matrix,
            rules.requires(
                "a second extent of at least the longest of target_lengths",
                "targets",
                "target_lengths",
                holds=lambda draft: draft.shape("targets")[1] >= longest(draft, "target_lengths"),
                found=lambda draft: (
                    f"shape {draft.shape('targets')} beside {longest(draft, 'target_lengths')}"
                ),
            ),
            "if targets have 2 dimensions",
        ),
        rules.same_extent(
            "log_probs", 1, "batch size", grad_out=0, out=1, neg_log_likelihood=0, log_alpha=0
        ),
        one_for_each_item("input_lengths"),
        one_for_each_item("target_lengths"),
        rules.when(
            matrix,
            rules.same_extent("log_probs", 1, "batch size", targets=0),
            "if targets have 2 dimensions",
        ),
        rules.same_extent("log_probs", 0, "number of time steps", out=0, log_alpha=1),
        rules.requires(
            "lengths of at most the time steps of log_probs",
            "input_lengths",
            "log_probs",
            holds=lambda draft: longest(draft, "input_lengths") <= draft.shape("log_probs")[0],
            found=lambda draft: (
                f"{longest(draft, 'input_lengths')} of {draft.shape('log_probs')[0]}"
            ),
            error=AttributeValueError,
        ),
        rules.same_extent("log_probs", 2, "number of classes", out=2),
        rules.requires(
            "as many labels as target_lengths say, if it has 1 dimension",
            "targets",
            "target_lengths",
            holds=lambda draft: (
                matrix(draft) or draft.shape("targets") == (sum(draft.attribute("target_lengths")),)
            ),
            found=lambda draft: (
                f"shape {draft.shape('targets')} beside {sum(draft.attribute('target_lengths'))}"
            ),
        ),
        rules.supported("log_probs"),
        rules.on(
            (A2, A3),
            rules.requires(
                "FLOAT or DOUBLE, since for FLOAT16 and BF16 there may be at most 200000 classes, "
                "8180 items and log_alpha for 1000 labels",
                "log_probs",
                holds=small_enough_for_short_floats,
                found=lambda draft: draft.dtype("log_probs"),
                error=DTypeError,
            ),
        ),
        rules.same_dtype("grad_out", "neg_log_likelihood", "log_alpha", "out", as_="log_probs"),
        rules.dtype_in("targets", INT32, INT64, BOOL, FLOAT, FLOAT16),
        # What the software does not check.
        lengths_not_negative("input_lengths"),
        lengths_not_negative("target_lengths"),
        rules.succeed_if_empty("log_probs"),
    ),
    kernel_dtype=rules.dtype_of("log_probs"),
    over=at_once(holds=_holds, computes=_computes),
    values=Values(("targets",), _check_classes, lambda facts: range(facts.shapes["log_probs"][-1])),
    sample=Sample(
        {
            "grad_out": (2,),
            "log_probs": (4, 2, 3),
            "targets": (2, 1),
            "neg_log_likelihood": (2,),
            "log_alpha": (2, 4, 3),
        },
        {"targets": INT64},
        {"input_lengths": [4, 3], "target_lengths": [1, 1]},
    ),
    source="ops-nn page aclnnCtcLossBackward",
)
def ctc_loss_backward(
    facts: Facts,
    grad_out: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    neg_log_likelihood: Array,
    log_alpha: Array,
    blank: int = 0,
    zero_infinity: bool = False,
) -> AnyArray:
    """Gradient of ``ctc_loss(log_probs, targets)`` with respect to ``log_probs``.

    An item n has T = ``input_lengths[n]`` steps and the K = 2 * ``target_lengths[n]`` + 1 states
    l = blank, y1, blank, y2, ..., blank. With lp = ``log_probs[:, n]``, a = ``log_alpha[n]`` and
    L = ``neg_log_likelihood[n]`` as the forward operator gave them::

        b[T - 1, s] = lp[T - 1, l[s]]  for the last two states, -inf for the others
        b[t, s] = lp[t, l[s]] + log of the sum of e^b[t + 1, s], e^b[t + 1, s + 1] and, where l[s]
                  is neither blank nor l[s + 2], e^b[t + 1, s + 2]
        out[t, n, c] = grad_out[n] * (e^lp[t, c] - e^(q - lp[t, c] + L))  for t < T, else 0
                  q = log of the sum of e^(a[t, s] + b[t, s]) over the states s whose l[s] is c

    An infinite L makes NaN, or with ``zero_infinity`` 0. Targets of BOOL, FLOAT or FLOAT16 are
    converted to integers. Sums are taken in float64 and rounded once. A label that is no class is
    refused (161002) when values are seen, which is at run; what stands behind an item's labels, and
    in ``log_alpha`` behind its states and steps, is not looked at.

    As torch's, which computes in the tensors' own dtype and takes no short floats.
    """
    _check_targets(facts, targets, target_lengths, log_probs.shape[2])
    out = facts.output("out", log_probs.shape)
    losses = Losses(
        facts, grad_out, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood,
        log_alpha, blank, zero_infinity,
    )  # fmt: skip
    go_back(losses, out)
    return out

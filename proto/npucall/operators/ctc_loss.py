"""Connectionist temporal classification loss."""

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
from npucall.declare.prepare import Prepared
from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, AnyArray, Array
from npucall.operators import _ctc_checks as shared
from npucall.operators._ctc_forward import Losses, go_forward
from npucall.operators._ctc_states import Labels
from npucall.products import ASCEND_950
from npucall.tensors import Shape

INPUTS = ("log_probs", "targets", "input_lengths", "target_lengths")
OUTPUTS = ("neg_log_likelihood_out", "log_alpha_out")
_PADDED_TO = 8


def losses(draft: Draft) -> Shape:
    """The shape of the losses: one for each item, or a single one for log_probs of rank 2."""
    return draft.shape("log_probs")[1:-1]


def alpha(draft: Draft) -> Shape:
    """The shape of the forward variables; its width depends on the product."""
    states = 2 * max(shared.longest(draft, "target_lengths"), 0) + 1
    if draft.product is not ASCEND_950:
        states += -states % _PADDED_TO
    return (shared.items(draft), draft.shape("log_probs")[0], states)


def _holds(facts: Facts, attributes: Mapping[str, Any]) -> int:
    """A few numbers for each item; and of an item longer than a block each state's."""
    del attributes
    items, _, width = facts.shapes["alpha"]
    return (4 * items + (width if width > BLOCK else 0)) * DOUBLE.itemsize


def _computes(facts: Facts, attributes: Mapping[str, Any]) -> int:
    """At each step the states of each item."""
    items, _, width = facts.shapes["alpha"]
    return int(max(attributes["input_lengths"], default=0)) * items * width


def _check_classes(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    targets, classes = inputs["targets"], inputs["log_probs"].shape[-1]
    shared.check_labels_of_items(facts, targets, attributes["target_lengths"], classes)


def _without_steps(call: Prepared) -> AnyArray | None:
    """The losses of items without steps, which a device leaves as they were."""
    steps, counts = (call.attributes[name] for name in ("input_lengths", "target_lengths"))
    if call.product is ASCEND_950 or all(steps):
        return None
    infinite = 0.0 if call.attributes["zero_infinity"] else np.inf
    values = [0.0 if s or not c else infinite for s, c in zip(steps, counts, strict=True)]
    return np.reshape(values, call.outputs[OUTPUTS[0]].shape)


def _behind_the_steps(call: Prepared) -> float | None:
    """The forward variables after the steps of an item, in the same way."""
    _, steps, _ = call.facts.shapes["alpha"]
    whole = all(length == steps for length in call.attributes["input_lengths"])
    return None if call.product is ASCEND_950 or whole else -np.inf


@operator(
    "aclnnCtcLoss",
    Input("log_probs", "log-probabilities of the classes at each time step, (T, N, C) or (T, C)"),
    Input("targets", "labels, (N, S), or those of all items one after the other", as_is=True),
    Attribute("input_lengths", Kind.INT_ARRAY, "time steps of each item"),
    # As the header spells it; the page has targetLengths.
    Attribute("target_lengths", Kind.INT_ARRAY, "labels of each item", c_name="targetlengths"),
    Attribute("blank", Kind.INT64, "the class between labels"),
    Attribute("zero_infinity", Kind.BOOL, "infinite losses are 0, but not on Ascend 950"),
    Output(
        "neg_log_likelihood_out",
        "the loss of each item, (N,), or () for log_probs of rank 2",
        shape="losses",
        dtype="log_probs",
    ),
    Output(
        "log_alpha_out",
        "logarithms of the forward variables, (N, T, A)",
        shape="alpha",
        dtype="log_probs",
    ),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present(*INPUTS, *OUTPUTS),
        shared.time_steps(),
        rules.rank_is("log_probs", 2, 3),
        shared.blank_is_a_class(),
        shared.one_for_each_item("input_lengths"),
        shared.steps_within_log_probs(),
        shared.one_for_each_item("target_lengths"),
        rules.rank_is("targets", 1, 2),
        rules.when(
            shared.matrix,
            rules.requires(
                "a row for each item of log_probs",
                "targets",
                holds=lambda draft: draft.shape("targets")[0] == shared.items(draft),
                found=lambda draft: f"shape {draft.shape('targets')}",
            ),
            "if targets have 2 dimensions",
        ),
        shared.rows_for_the_longest(),
        shared.labels_one_behind_the_other(),
        rules.shape_of("log_probs", into="losses", make=losses),
        rules.same_shape("neg_log_likelihood_out", "losses", "a loss for each item of log_probs"),
        rules.shape_of("log_probs", into="alpha", make=alpha),
        rules.same_shape(
            "log_alpha_out",
            "alpha",
            "(N, T, A) with A = 2 * the longest of target_lengths + 1, not on Ascend 950 rounded "
            "up to a multiple of 8",
        ),
        rules.supported("log_probs"),
        shared.room_for_short_floats(lambda draft: draft.shape("alpha")[2]),
        rules.dtype_in("targets", INT32, INT64, BOOL, FLOAT, FLOAT16),
        rules.same_dtype(*OUTPUTS, as_="log_probs"),
        # What the software does not check.
        shared.lengths_not_negative("input_lengths"),
        shared.lengths_not_negative("target_lengths"),
        rules.succeed_if_empty("log_probs"),
    ),
    kernel_dtype=rules.dtype_of("log_probs"),
    over=at_once(holds=_holds, computes=_computes),
    values=Values(("targets",), _check_classes, lambda facts: range(facts.shapes["log_probs"][-1])),
    unwritten={OUTPUTS[0]: _without_steps, OUTPUTS[1]: _behind_the_steps},
    sample=Sample(
        {"log_probs": (4, 2, 3), "targets": (2, 1)},
        {"targets": INT64},
        {"input_lengths": [4, 4], "target_lengths": [1, 1]},
    ),
    area="losses",
    torch="nn.functional.ctc_loss",
    source="ops-nn page aclnnCtcLoss",
)
def ctc_loss(
    facts: Facts,
    log_probs: Array,
    targets: Array,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """Connectionist temporal classification loss, and the forward variables for its gradient.

    An item n has T = ``input_lengths[n]`` steps and the K = 2 * ``target_lengths[n]`` + 1 states
    l = blank, y1, blank, y2, ..., blank. With lp = ``log_probs[:, n]``::

        a[0, s] = lp[0, l[s]]  for the first two states, -inf for the others
        a[t, s] = lp[t, l[s]] + log of the sum of e^a[t - 1, s], e^a[t - 1, s - 1] and, where l[s]
                  is not l[s - 2], e^a[t - 1, s - 2]
        neg_log_likelihood_out[n] = -log of the sum of e^a[T - 1, K - 1] and e^a[T - 1, K - 2]

    ``log_alpha_out[n]`` is a, and -inf after the item's states and steps: A = 2 * S + 1 for the
    most labels S of an item, rounded up to a multiple of 8 except on Ascend 950. Without steps the
    loss is 0 if there are no labels either, else infinite. Sums are taken in float64 and each
    result is rounded once. Targets of BOOL, FLOAT or FLOAT16 are converted to integers. A label
    that is not a class is refused (161002) when the call runs.

    A trap: ``zero_infinity`` sets infinite losses to 0 here, but not on Ascend 950. The backward
    operator knows an impossible item by its infinite loss, so a loss of 0 gives a wrong gradient.
    Leave ``zero_infinity`` off here, pass the loss as it is to the backward operator with
    ``zero_infinity`` on, and replace infinite losses by 0 yourself.

    As ``aten._ctc_loss`` in torch, except that torch never sets a loss to 0 and does not pad.
    Devices other than Ascend 950 do not write the rows after the last step of an item; Ascend 910
    writes 3.4e38 for infinity.
    """
    shared.check_labels_of_items(facts, targets, target_lengths, log_probs.shape[-1])
    loss = facts.output(OUTPUTS[0], facts.shapes["losses"])
    log_alpha = facts.output(OUTPUTS[1], facts.shapes["alpha"])
    labels = Labels.of(facts, targets, target_lengths, blank)
    zeroes = zero_infinity and facts.product is not ASCEND_950
    go_forward(Losses(facts, log_probs, input_lengths, labels, zeroes, loss, log_alpha))
    return loss, log_alpha

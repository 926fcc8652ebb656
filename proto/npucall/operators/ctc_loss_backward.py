"""Gradient of the connectionist temporal classification loss with respect to log-probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

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
from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, AnyArray, Array
from npucall.errors import AttributeValueError
from npucall.operators import _ctc_checks as shared
from npucall.operators._ctc_backward import BackwardArguments, go_back
from npucall.operators._ctc_states import states_of

INPUTS = ("grad_out", "log_probs", "targets", "input_lengths", "target_lengths")


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
    targets, classes = inputs["targets"], inputs["log_probs"].shape[2]
    shared.check_labels_of_items(facts, targets, attributes["target_lengths"], classes)


@operator(
    "aclnnCtcLossBackward",
    Input("grad_out", "gradient with respect to the loss of each item, (N,)"),
    Input("log_probs", "log-probabilities of the classes at each time step, (T, N, C)"),
    Input("targets", "labels, (N, S), or those of all items one after the other", as_is=True),
    Attribute("input_lengths", Kind.INT_ARRAY, "time steps of each item"),
    Attribute("target_lengths", Kind.INT_ARRAY, "labels of each item"),
    Input("neg_log_likelihood", "the loss of each item, (N,)"),
    Input("log_alpha", "logarithms of the forward variables, (N, T, A)"),
    Attribute("blank", Kind.INT64, "the class between labels"),
    Attribute("zero_infinity", Kind.BOOL, "items whose loss is infinite have no gradient"),
    Output("out", "gradient with respect to log_probs", shape="log_probs", dtype="log_probs"),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present(*INPUTS, "neg_log_likelihood", "log_alpha", "out"),
        shared.time_steps(),
        rules.rank_is("grad_out", 1),
        rules.rank_is("neg_log_likelihood", 1),
        rules.rank_is("log_probs", 3),
        rules.rank_is("log_alpha", 3),
        rules.rank_is("targets", 1, 2),
        rules.rank_is("out", 3),
        shared.blank_is_a_class(),
        rules.requires(
            "lengths of at most (A - 1) / 2, A being the last extent of log_alpha",
            "target_lengths",
            "log_alpha",
            holds=lambda draft: (
                shared.longest(draft, "target_lengths") <= (draft.shape("log_alpha")[2] - 1) // 2
            ),
            found=lambda draft: (
                f"{shared.longest(draft, 'target_lengths')} with A = {draft.shape('log_alpha')[2]}"
            ),
            error=AttributeValueError,
        ),
        shared.rows_for_the_longest(),
        rules.same_extent(
            "log_probs", 1, "batch size", grad_out=0, out=1, neg_log_likelihood=0, log_alpha=0
        ),
        shared.one_for_each_item("input_lengths"),
        shared.one_for_each_item("target_lengths"),
        rules.when(
            shared.matrix,
            rules.same_extent("log_probs", 1, "batch size", targets=0),
            "if targets have 2 dimensions",
        ),
        rules.same_extent("log_probs", 0, "number of time steps", out=0, log_alpha=1),
        shared.steps_within_log_probs(),
        rules.same_extent("log_probs", 2, "number of classes", out=2),
        shared.labels_one_behind_the_other(),
        rules.supported("log_probs"),
        shared.room_for_short_floats(lambda draft: draft.shape("log_alpha")[2]),
        rules.same_dtype("grad_out", "neg_log_likelihood", "log_alpha", "out", as_="log_probs"),
        rules.dtype_in("targets", INT32, INT64, BOOL, FLOAT, FLOAT16),
        # What the software does not check.
        shared.lengths_not_negative("input_lengths"),
        shared.lengths_not_negative("target_lengths"),
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
    area="losses",
    torch="nn.functional.ctc_loss",
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

    An item n has T = ``input_lengths[n]`` steps and the K = 2 * ``target_lengths[n]`` + 1 states l
    = blank, y1, blank, y2, ..., blank. With lp = ``log_probs[:, n]``, a = ``log_alpha[n]`` and L =
    ``neg_log_likelihood[n]`` from the forward operator::

        b[T - 1, s] = lp[T - 1, l[s]]  for the last two states, -inf for the others
        b[t, s] = lp[t, l[s]] + log of the sum of e^b[t + 1, s], e^b[t + 1, s + 1] and, where l[s]
                  is neither blank nor l[s + 2], e^b[t + 1, s + 2]
        out[t, n, c] = grad_out[n] * (e^lp[t, c] - e^(q - lp[t, c] + L))  for t < T, else 0
                  q = log of the sum of e^(a[t, s] + b[t, s]) over the states s whose l[s] is c

    An infinite L gives NaN, or 0 with ``zero_infinity``. Targets of BOOL, FLOAT or FLOAT16 are
    converted to integers. Sums are taken in float64 and rounded once. A label that is not a class
    is refused (161002) when the call runs; the operator ignores what comes after an item's labels,
    and what ``log_alpha`` has after its states and steps.

    As in torch, except that torch computes in the tensors' own dtype and takes no short floats.
    """
    shared.check_labels_of_items(facts, targets, target_lengths, log_probs.shape[2])
    out = facts.output("out", log_probs.shape)
    given = BackwardArguments(
        facts, grad_out, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood,
        log_alpha, blank, zero_infinity,
    )  # fmt: skip
    go_back(given, out)
    return out

"""Gradients of a linear layer and the cross entropy of its logits, of one part of a vocabulary."""

from collections.abc import Mapping
from math import prod
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
from npucall.dtypes import BF16, BOOL, FLOAT, FLOAT16, INT32, INT64, UINT8, AnyArray, Array
from npucall.operators._labels import check_labels
from npucall.operators.matmul import pieces
from npucall.products import A2, A3
from npucall.tensors import Format

STATISTICS = ("logits_max", "sum_exp_logits")
OUTPUTS = ("input_grad_out", "weight_grad_out")
OF_TOKENS = ("grad", "target_mask", "masked_target")
LEAST = 128
"""Words of a part whose probabilities are given."""
STEP = 512
"""Tokens, and words, of a block of gradients of logits."""


def _whole(draft: Draft) -> bool:
    """Whether the probabilities are given, and nothing looks at the statistics."""
    return not draft.absent("softmax")


def _unless_whole(rule: rules.Rule) -> rules.Rule:
    return rules.when(lambda draft: not _whole(draft), rule, "without softmax")


def _mask_fits(draft: Draft) -> bool:
    (given,), (tokens,) = draft.shape("target_mask"), draft.shape("grad")
    return given == tokens if draft.dtype("target_mask") is BOOL else 8 * given >= tokens


def _checks_of_shapes() -> tuple[rules.Rule, ...]:
    """Numbers of dimensions, then extents."""

    def found(name: str) -> Any:
        return lambda draft: f"shape {draft.shape(name)}"

    return (
        *(rules.rank_is(n, r) for n, r in (("grad", 1), ("input", 2), ("weight", 2))),
        *(rules.rank_is(name, 1) for name in OF_TOKENS[1:]),
        rules.rank_is("softmax", 2),
        *(_unless_whole(rules.rank_is(name, 1)) for name in STATISTICS),
        *(rules.rank_is(name, 2) for name in OUTPUTS),
        rules.same_extent("grad", 0, "tokens", input=0),
        rules.requires(
            f"{LEAST} words or more, if softmax is given",
            "weight",
            holds=lambda draft: not _whole(draft) or draft.shape("weight")[0] >= LEAST,
            found=found("weight"),
        ),
        rules.same_extent("input", 1, "width", weight=1),
        rules.requires(
            "a bit for each token, of BOOL an element",
            "target_mask",
            holds=_mask_fits,
            found=found("target_mask"),
        ),
        rules.same_shape("masked_target", "grad"),
        rules.shape_of(
            "grad", into="logits", make=lambda d: (*d.shape("grad"), d.shape("weight")[0])
        ),
        rules.same_shape("softmax", "logits", "(tokens, words)"),
        *(_unless_whole(rules.same_shape(name, "grad")) for name in STATISTICS),
        rules.same_shape("input_grad_out", "input"),
        rules.same_shape("weight_grad_out", "weight"),
    )


def _check(facts: Facts, inputs: Mapping[str, Any], _: Mapping[str, Any]) -> None:
    labels = facts.read(inputs["masked_target"], ...)
    check_labels("masked_target", labels, facts.first("weight"))


def _held(facts: Facts, _: Mapping[str, Any]) -> int:
    """Bytes of a block of logits, of what it is multiplied with, and of all labels."""
    tokens, width = facts.shapes["input"]
    side = min(max(tokens, facts.first("weight")), STEP)
    return FLOAT.itemsize * side * (4 * STEP + 5 * width) + 2 * INT64.itemsize * tokens


@operator(
    "aclnnFusedLinearCrossEntropyLossGrad",
    Input("grad", "gradient of the loss of each token, (T,)", as_is=True),
    Input("input", "what went into the layer, (T, H)"),
    Input("weight", "the layer's rows for the words of this part, (V, H)"),
    Input("target_mask", "bits, or truths: tokens whose target is of another part", as_is=True),
    Input("masked_target", "the target's place in this part, (T,)", as_is=True),
    Attribute("label_smoothing", Kind.FLOAT, "must be 0"),
    Input("logits_max", "the largest logit of each token, of all parts, (T,)", as_is=True,
          optional=True, c_name="logitsMaxOptional"),
    Input("sum_exp_logits", "the sum of e^(logit - logits_max), of all parts, (T,)", as_is=True,
          optional=True, c_name="sumExpLogitsOptional"),
    Input("softmax", "probabilities of the words, (T, V); none: they are computed", as_is=True,
          optional=True, c_name="softmaxOptional"),
    Output(OUTPUTS[0], "gradient of input, (T, H)", "input", "input"),
    Output(OUTPUTS[1], "gradient of weight, (V, H)", "weight", "input"),
    products=dict.fromkeys((A2, A3), (FLOAT16, BF16)),
    checks=(
        _unless_whole(rules.present(*STATISTICS)),
        rules.present("grad", "input", "weight", *OF_TOKENS[1:], *OUTPUTS),
        rules.dtype_in("grad", FLOAT),
        rules.supported("input", "weight"),
        rules.dtype_in("target_mask", BOOL, UINT8),
        rules.dtype_in("masked_target", INT32, INT64),
        rules.dtype_in("softmax", FLOAT),
        *(_unless_whole(rules.dtype_in(name, FLOAT)) for name in STATISTICS),
        rules.same_dtype("weight", *OUTPUTS, as_="input"),
        *(rules.format_in(n, Format.ND) for n in ("grad", "input", "weight", *OF_TOKENS[1:])),
        rules.format_in("softmax", Format.ND),
        *(_unless_whole(rules.format_in(name, Format.ND)) for name in STATISTICS),
        *(rules.format_in(name, Format.ND) for name in OUTPUTS),
        rules.value_fits("0", "label_smoothing", lambda value: value == 0),
        *_checks_of_shapes(),
        rules.succeed_if_empty("input", "weight"),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(
        holds=_held,
        computes=lambda facts, _: 4 * prod(facts.shapes["input"]) * facts.first("weight"),
    ),
    values=Values(("masked_target",), _check, lambda facts: range(facts.first("weight"))),
    sample=Sample(
        {"input": (2, 3), "weight": (LEAST, 3), "target_mask": (1,), "softmax": (2, LEAST),
         **dict.fromkeys(("grad", "masked_target", *STATISTICS), (2,))},
        {"target_mask": UINT8, "masked_target": INT64,
         **dict.fromkeys(("grad", "softmax", *STATISTICS), FLOAT)},
        {"label_smoothing": 0.0},
        kept=STATISTICS,
    ),
    area="losses",
    source="ops-nn matmul/fused_linear_cross_entropy_loss_grad: page "
    "aclnnFusedLinearCrossEntropyLossGrad, its checks [src:fused-linear-cross-entropy]",
)  # fmt: skip
def fused_linear_cross_entropy_loss_grad(
    facts: Facts,
    grad: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    weight: Array,
    target_mask: Array,
    masked_target: Array,
    label_smoothing: float = 0.0,
    logits_max: Array | None = None,
    sum_exp_logits: Array | None = None,
    softmax: Array | None = None,
) -> tuple[AnyArray, AnyArray]:
    """Gradients of ``cross_entropy(input @ weight.T, target)`` for one part of a vocabulary.

    For token t and word v of this part, where y is ``masked_target``::

        p[t, v] = softmax[t, v], or without it
                  e^(sum of input[t] * weight[v] - logits_max[t]) / sum_exp_logits[t]
        g[t, v] = (p[t, v] - [v = y[t]] * (1 - target_mask[t])) * grad[t]
        input_grad_out  = g @ weight           weight_grad_out = g.T @ input

    ``target_mask`` is 1 for a token whose target is of another part; of UINT8 it has a bit for each
    token, the lowest first. Computed in float32, but g is rounded to the dtype of ``input`` before
    it is multiplied; sums are rounded once. With ``softmax`` nothing looks at the two statistics,
    and there must be 128 words; a device takes 65280 words and about 65536 tokens at most then
    (561002), the reference any number. A ``masked_target`` that is no word of this part is refused
    when the call runs (161002), also where it is masked: a device would access foreign memory.

    As torch's autograd of the expression, where one part is the whole vocabulary.
    """
    del label_smoothing
    statistics: Any = logits_max, sum_exp_logits  # given without softmax
    (tokens, width), words = input.shape, weight.shape[0]
    labels = np.asarray(facts.read(masked_target, ...), np.int64)
    check_labels("masked_target", labels, words)
    every, outs = slice(0, width), [facts.output(n, facts.shapes[s]) for n, s in
                                    zip(OUTPUTS, ("input", "weight"), strict=True)]  # fmt: skip

    def factors(some: slice, part: slice) -> AnyArray:
        """The gradients of logits, of some tokens and words."""
        facts.pause()
        if softmax is not None:
            found = np.array(facts.read(softmax, (some, part)), facts.dtype)
        else:
            found = facts.read(input, (some, every)) @ facts.read(weight, (part, every)).T
            found -= facts.read(statistics[0], some)[:, np.newaxis]
            np.exp(found, out=found)
            found /= facts.read(statistics[1], some)[:, np.newaxis]
        places = labels[some] - part.start
        (here,) = np.nonzero((places >= 0) & (places < part.stop - part.start))
        found[here, places[here]] -= ~masked(facts, target_mask, some)[here]
        found *= facts.read(grad, some)[:, np.newaxis]
        return facts.rounded(found)

    for some in pieces(tokens, STEP):
        total = np.zeros((some.stop - some.start, width), facts.dtype)
        for part in pieces(words, STEP):
            total += factors(some, part) @ facts.read(weight, (part, every))
        outs[0][some, every] = total
    for part in pieces(words, STEP):
        total = np.zeros((part.stop - part.start, width), facts.dtype)
        for some in pieces(tokens, STEP):
            total += factors(some, part).T @ facts.read(input, (some, every))
        outs[1][part, every] = total
    return outs[0], outs[1]


def masked(facts: Facts, mask: Array, some: slice) -> AnyArray:
    """Whether each of some tokens has its target in another part; ``some`` begins with a byte."""
    if mask.dtype == np.bool_:
        return np.asarray(facts.read(mask, some), np.bool_)
    data = np.asarray(facts.read(mask, slice(some.start // 8, -(-some.stop // 8))), np.uint8)
    bits: AnyArray = np.unpackbits(data, count=some.stop - some.start, bitorder="little")
    return bits.astype(np.bool_)

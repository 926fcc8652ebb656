"""Layer normalisation that is scaled and shifted by each sequence's own numbers; its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import DOUBLE, FLOAT, FLOATS, AnyArray, Array, DType
from npucall.errors import AttributeValueError, DTypeError
from npucall.operators import _norms as norms
from npucall.operators._numerics import row_sums
from npucall.operators._rows import each_rows, flat, gradient, held, one_a_row
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

PAIR, WEIGHTS = ("scale", "shift"), ("weight", "bias")
STATISTICS = ("mean_out", "rstd_out")
GRADIENTS = (
    "grad_input_out", "grad_scale_out", "grad_shift_out", "grad_weight_out", "grad_bias_out"
)  # fmt: skip
GIVEN = ("grad_out", "input", "rstd", "mean", *PAIR)
OF_SEQUENCE = (
    Input("scale", "a factor less 1 for each sequence, (B..., H) or (B..., 1, H)"),
    Input("shift", "an addend for each of them"),
    Input("weight", "factors of the normal form, (H,)", optional=True, as_is=True,
          c_name="weightOptional"),
    Input("bias", "addends of it", optional=True, as_is=True, c_name="biasOptional"),
)  # fmt: skip
FORWARD = (
    Input("x", "tokens, (B..., S, H)"),
    *OF_SEQUENCE,
    Attribute("epsilon", Kind.DOUBLE, "is added to the variance"),
    Output("out", "the normal form, scaled and shifted", "x", "x"),
)
SHAPES: dict[str, Shape] = {**dict.fromkeys(PAIR, (2, 3)), **dict.fromkeys(WEIGHTS, (3,))}
OF_TOKENS: dict[str, Shape] = {
    **dict.fromkeys(("grad_out", "input"), (2, 4, 3)),
    **dict.fromkeys(("rstd", "mean"), (2, 4, 1)),
}


def _found(x: str) -> tuple[rules.Rule, ...]:
    """Finds the rows of tokens, what there is one of for each, and the shape of their batch."""
    return (
        rules.shape_of(x, into="row", make=lambda draft: draft.shape(x)[-1:]),
        rules.shape_of(x, into="rows", make=lambda draft: draft.shape(x)[:-1]),
        rules.shape_of(x, into="ones", make=lambda draft: (*draft.shape(x)[:-1], 1)),
        rules.shape_of(
            x, into="batch", make=lambda draft: (*draft.shape(x)[:-2], draft.shape(x)[-1])
        ),
    )


def _of_sequences(*names: str) -> tuple[rules.Rule, ...]:
    """Each has the shape of the batch, or has one token more in front of H."""

    def fits(draft: Draft, name: str) -> bool:
        *batch, width = draft.shape("batch")
        return draft.shape(name) in ((*batch, width), (*batch, 1, width))

    return tuple(
        rules.requires(
            "(B..., H) or (B..., 1, H) of the tokens",
            name,
            holds=lambda draft, name=name: fits(draft, name),  # type: ignore[misc]
            found=lambda draft, name=name: f"shape {draft.shape(name)}",  # type: ignore[misc]
        )
        for name in names
    )


def _forward_checks(second: bool) -> tuple[rules.Rule, ...]:
    """The second version looks at shift before scale, and takes weights of FLOAT."""
    pair, weights = (PAIR[::-1], WEIGHTS[::-1]) if second else (PAIR, WEIGHTS)
    of_weights = norms.float_or("x", *weights) if second else (rules.same_dtype(*weights, as_="x"),)
    outputs = ("out", *STATISTICS[::-1]) if second else ("out",)
    return (
        rules.present("x", *PAIR, "out"),
        rules.supported("x"),
        rules.same_dtype(*pair, as_="x"),
        rules.same_dtype("weight", as_="bias"),
        *of_weights,
        rules.same_dtype(*outputs, as_="x"),
        rules.rank_is("x", *range(2, 9)),
        *norms.no_zero("x"),
        *_found("x"),
        *_of_sequences(*pair),
        *(rules.same_shape(name, "row", "(H,)") for name in weights),
        rules.same_shape("out", "x"),
        *(rules.same_shape(name, "ones", "one for each token") for name in outputs[1:]),
    )


def shared_of(facts: Facts, array: Array, index: tuple[slice, ...]) -> AnyArray:
    """What the tokens of a block share, (B..., 1, H)."""
    batch, width = index[:-1], facts.count("row")
    more = (slice(0, 1),) * (len(array.shape) - 1 - len(batch))
    found = facts.read(array, (*batch, *more))
    return found.reshape(*(piece.stop - piece.start for piece in batch), 1, width)


def modulated(facts: Facts, scale: Array, shift: Array) -> Callable[..., None]:
    """The step behind the normal form."""

    def then(index: tuple[slice, ...], normal: AnyArray) -> None:
        normal *= 1 + shared_of(facts, scale, index)
        normal += shared_of(facts, shift, index)

    return then


COMMON: dict[str, Any] = {"area": "normalisation", "torch": "nn.functional.layer_norm"}


@operator(
    "aclnnAdaLayerNorm",
    *FORWARD,
    products=dict.fromkeys((A2, A3), FLOATS),
    checks=_forward_checks(second=False),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=False)),
    sample=Sample({"x": (2, 4, 3), **SHAPES}),
    source="ops-nn norm/ada_layer_norm: page aclnnAdaLayerNorm, its checks [src:ada-layer-norm]",
    **COMMON,
)
def ada_layer_norm(
    facts: Facts,
    x: Array,
    scale: Array,
    shift: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
) -> AnyArray | None:
    """Normal form of each token, scaled and shifted by the numbers of its sequence.

    ::

        normal = (x - mean) / sqrt(variance + epsilon) * weight + bias
        out    = normal * (1 + scale) + shift

    Mean and variance are those of the H numbers of a token. All is computed in float32 and rounded
    once. ``weight`` and ``bias`` have the dtype of ``x``. Tensors without elements are refused.

    As ``layer_norm(x, (H,), weight, bias) * (1 + scale) + shift`` in torch.
    """
    then = modulated(facts, scale, shift)
    return norms.forward(facts, x, weight, bias, epsilon, then=then)[0]


@operator(
    "aclnnAdaLayerNormV2",
    *FORWARD,
    Output("mean_out", "the mean of each token", "ones", "x", optional=True,
           c_name="meanOutOptional"),
    Output("rstd_out", "1 / its deviation", "ones", "x", optional=True,
           c_name="rstdOutOptional"),
    products=dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    checks=_forward_checks(second=True),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=False)),
    sample=Sample({"x": (2, 4, 3), **SHAPES}),
    source="ops-nn norm/ada_layer_norm_v2: page aclnnAdaLayerNormV2, its checks "
    "[src:ada-layer-norm]",
    **COMMON,
)  # fmt: skip
def ada_layer_norm_v2(
    facts: Facts,
    x: Array,
    scale: Array,
    shift: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
) -> tuple[AnyArray | None, ...]:
    """``ada_layer_norm``, which gives the mean and 1 / the deviation of each token, too.

    ::

        mean = sum(x) / H        rstd = 1 / sqrt(sum((x - mean)^2) / H + epsilon)

    ``weight`` and ``bias`` may also be FLOAT, both of them; ``mean_out`` and ``rstd_out`` have the
    dtype of ``x``. All else is as there.
    """
    return norms.forward(facts, x, weight, bias, epsilon, then=modulated(facts, scale, shift))


def _of_weights(draft: Draft) -> DType:
    """The dtype of the gradients of weight and bias, if the call leaves them out."""
    given = next((name for name in WEIGHTS if draft.tensor(name)), "input")
    return draft.dtype(given)


def _dtype_of_sums(name: str) -> rules.Rule:
    def holds(draft: Draft) -> bool:
        free = all(draft.tensor(each) is None for each in WEIGHTS)
        allowed = (draft.dtype("of_weights"), *(FLOAT,) * free)
        return draft.tensor(name) is None or draft.dtype(name) in allowed

    return rules.requires(
        "the dtype of weight, else of bias; without both FLOAT or that of input",
        name,
        holds=holds,
        found=lambda draft: draft.dtype(name),
        error=DTypeError,
    )


def _one_extent() -> tuple[rules.Rule, ...]:
    return (
        rules.value_fits("one extent", "normalized_shape", lambda value: len(value) == 1),
        rules.rank_is("input", *range(2, 9)),
        rules.requires(
            "the last extent of input",
            "normalized_shape",
            holds=lambda draft: draft.attribute("normalized_shape") == draft.shape("input")[-1:],
            found=lambda draft: draft.attribute("normalized_shape"),
            error=AttributeValueError,
        ),
    )


def _held(facts: Facts, given: Mapping[str, Any]) -> int:
    sums = facts.count("batch") + 2 * facts.count("row")
    return held(backward=True)(facts, given) + 2 * DOUBLE.itemsize * sums


@operator(
    "aclnnAdaLayerNormBackward",
    Input("grad_out", "gradient of the result"),
    Input("input", "tokens, (B..., S, H)"),
    Attribute("normalized_shape", Kind.INT_ARRAY, "(H,)"),
    Input("rstd", "1 / the deviation of each token, (B..., S, 1)"),
    Input("mean", "its mean"),
    OF_SEQUENCE[0],
    replace(OF_SEQUENCE[1], read=False),
    *OF_SEQUENCE[2:],
    Output(GRADIENTS[0], "of the tokens", "input", "input", optional=True),
    Output(GRADIENTS[1], "of scale", "scale", "scale", optional=True),
    Output(GRADIENTS[2], "of shift", "shift", "shift", optional=True),
    Output(GRADIENTS[3], "of weight", "row", "of_weights", optional=True, as_is=True),
    Output(GRADIENTS[4], "of bias", "row", "of_weights", optional=True, as_is=True),
    products=dict.fromkeys((A2, A3), FLOATS),
    checks=(
        rules.present("grad_out", "input", "normalized_shape", "mean", "rstd", *PAIR),
        rules.supported("grad_out"),
        rules.same_dtype(*GIVEN[1:], as_="grad_out"),
        *norms.float_or("input", *WEIGHTS),
        rules.same_dtype("weight", as_="bias"),
        rules.same_dtype(*GRADIENTS[:3], as_="input"),
        rules.dtype_from("weight", into="of_weights", make=_of_weights),
        *map(_dtype_of_sums, GRADIENTS[3:]),
        rules.rank_at_most(8, "grad_out", "input", "mean", "rstd", *PAIR, *GRADIENTS),
        rules.same_shape("grad_out", "input"),
        rules.same_shape("mean", "rstd"),
        *_one_extent(),
        *_found("input"),
        *(rules.same_shape(name, "row", "(H,)") for name in WEIGHTS),
        *norms.no_zero("input"),
        *_of_sequences(*PAIR),
        rules.same_shape("mean", "ones", "one for each token"),
        rules.same_shape(GRADIENTS[0], "input"),
        *(rules.same_shape(f"grad_{name}_out", name) for name in PAIR),
        *(rules.same_shape(name, "row", "(H,)") for name in GRADIENTS[3:]),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(holds=_held),
    sample=Sample({**OF_TOKENS, **SHAPES}, attributes={"normalized_shape": (3,)}),
    source="ops-nn norm/ada_layer_norm_grad: page aclnnAdaLayerNormBackward, its checks "
    "[src:ada-layer-norm]",
    **COMMON,
)
def ada_layer_norm_backward(  # in the order of C
    facts: Facts,
    grad_out: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    normalized_shape: tuple[int, ...],
    rstd: Array,
    mean: Array,
    scale: Array,
    shift: Array,
    weight: Array | None = None,
    bias: Array | None = None,
) -> tuple[AnyArray | None, ...]:
    """Gradients of ``ada_layer_norm``, from the mean and rstd that its second version gives.

    With normal = (input - mean) * rstd and d = grad_out * (1 + scale) * weight, over each token::

        grad_input  = rstd * (d - sum(d) / H - normal * sum(d * normal) / H)
        grad_scale  = sum of grad_out * (normal * weight + bias) over the tokens of a sequence
        grad_shift  = sum of grad_out over them
        grad_weight = sum of grad_out * (1 + scale) * normal over all tokens
        grad_bias   = sum of grad_out * (1 + scale) over them

    Tokens are computed in float32, sums over them in float64, and rounded once. An output that is
    null is not computed. ``rstd`` comes before ``mean``, and both have the dtype of ``input``.
    Tensors without elements are refused.

    As the gradient of ``layer_norm(...) * (1 + scale) + shift`` in torch.
    """
    del normalized_shape, shift
    factor, addend = (flat(facts, each) for each in (weight, bias))
    width, lead = facts.count("row"), facts.shapes["rows"]
    out = facts.output(GRADIENTS[0], input.shape)
    totals = [np.zeros(facts.shapes["batch"]) for _ in PAIR] + [np.zeros(width) for _ in WEIGHTS]

    def compute(index: tuple[slice, ...]) -> list[AnyArray]:
        upstream, block = facts.read(grad_out, index), facts.read(input, index)
        deviation = one_a_row(facts, rstd, lead, index)
        normal = block.reshape(-1, width) - one_a_row(facts, mean, lead, index)
        normal *= deviation
        form = normal.reshape(block.shape)
        if factor is not None:
            form = form * factor
        if addend is not None:
            form = form + addend
        d = upstream * (1 + shared_of(facts, scale, index))
        of_pair = [np.add.reduce(each, -2, np.float64) for each in (upstream * form, upstream)]
        d = d.reshape(-1, width)
        of_rows = [np.add.reduce(each, 0, np.float64) for each in (d * normal, d)]
        if GRADIENTS[0] in facts.asked:
            if factor is not None:
                d *= factor
            found = gradient(d, normal, deviation, (row_sums(d, normal), row_sums(d)))
            out[index] = found.reshape(block.shape)
        return of_pair + of_rows

    def add(index: tuple[slice, ...], parts: list[AnyArray]) -> None:
        for place, (total, part) in enumerate(zip(totals, parts, strict=True)):
            total[index[:-1] if place < len(PAIR) else ...] += part

    each_rows(facts, lead, width, compute, add)
    of_pair = (total.reshape(facts.shapes[name]) for total, name in zip(totals, PAIR, strict=False))
    return out, *of_pair, *totals[len(PAIR) :]

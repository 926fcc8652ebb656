"""Gradient of group normalisation."""

from collections.abc import Callable
from math import prod

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import PARAM_INVALID, AttributeValueError
from npucall.operators import _groups as groups
from npucall.operators._masks import mask_of, masked
from npucall.operators._norms import float_or, one_for_each_row
from npucall.operators._numerics import row_sums
from npucall.operators._rows import each_rows, flat, gradient, held, one_a_row, place_of
from npucall.products import A2, A3, ASCEND_910, ASCEND_950
from npucall.tensors import Shape

OUTPUTS = ("grad_input", "grad_gamma_out", "grad_beta_out")
OF_CHANNELS = ("mean", "rstd", "gamma", *OUTPUTS[1:])
MOST, MOST_OF_GROUP = 240_000, 8_000
"""Channels on Atlas A2 and A3, and of a group there."""


def fits(draft: Draft) -> bool:
    """Whether there are no more channels than the device takes."""
    return draft.attribute("c") <= MOST and groups.row(draft)[0] <= MOST_OF_GROUP


def of_gamma(draft: Draft) -> Shape:
    """The shape of the gradients of gamma and beta."""
    return (draft.attribute("c"),) if draft.absent("gamma") else draft.shape("gamma")


@operator(
    "aclnnGroupNormBackward",
    Input("grad_out", "gradient of the normal form"),
    Input("input", "(N, C, ...)"),
    Input("mean", "the mean of each group, as GroupNorm gives it", as_is=True),
    Input("rstd", "1 / its deviation", as_is=True),
    Input("gamma", "a factor for each channel", optional=True, as_is=True),
    *groups.EXTENTS,
    Attribute("output_mask", Kind.BOOL_ARRAY, "which of the three outputs are asked for"),
    Output(OUTPUTS[0], "of input", "input", "input", asked=masked(0)),
    Output(OUTPUTS[1], "of gamma", "of_gamma", "mean", as_is=True, asked=masked(1)),
    Output(OUTPUTS[2], "of beta", "of_gamma", "mean", as_is=True, asked=masked(2)),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_910: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_out", "input", "mean", "rstd"),
        *rules.with_status(PARAM_INVALID, rules.present("output_mask")),
        mask_of(3),
        *rules.with_status(PARAM_INVALID, rules.present(*OUTPUTS)),
        rules.supported("grad_out"),
        rules.same_dtype("input", as_="grad_out"),
        rules.on((ASCEND_950,), float_or("grad_out", "mean")[0]),
        rules.except_on((ASCEND_950,), rules.same_dtype("mean", as_="grad_out")),
        rules.same_dtype("rstd", "gamma", as_="mean"),
        rules.same_dtype("grad_input", as_="grad_out"),
        rules.same_dtype(*OUTPUTS[1:], as_="mean"),
        *groups.DIVIDED,
        rules.on(
            (A2, A3),
            rules.requires(
                f"at most {MOST} channels, and {MOST_OF_GROUP} of a group",
                "c",
                holds=fits,
                found=lambda draft: draft.attribute("c"),
                error=AttributeValueError,
            ),
        ),
        rules.rank_at_most(8, "grad_out"),
        groups.extents_of("grad_out"),
        groups.extents_of("input"),
        groups.ROWS,
        groups.ROW,
        *one_for_each_row("mean", "rstd"),
        rules.shape_of("gamma", into="of_gamma", make=of_gamma),
        rules.requires(
            "one element for each channel",
            "gamma",
            holds=lambda d: d.absent("gamma") or prod(d.shape("gamma")) == d.attribute("c"),
            found=lambda draft: f"shape {draft.shape('gamma')}",
        ),
        rules.same_shape("grad_input", "input"),
        *(rules.same_shape(name, "of_gamma", "that of gamma") for name in OUTPUTS[1:]),
        rules.fill_if_empty("grad_out", fill=lambda _: 0.0, meaning="0", outputs=OUTPUTS[1:]),
    ),
    kernel_dtype=rules.dtype_of("grad_out"),
    over=at_once(holds=held(backward=False)),  # no sums over elements of rows
    sample=Sample(
        {**dict.fromkeys(("grad_out", "input"), (2, 4, 3)), "gamma": (4,)}
        | dict.fromkeys(("mean", "rstd"), (2, 2)),
        attributes={"n": 2, "c": 4, "hxw": 3, "group": 2, "output_mask": [True] * 3},
    ),
    area="normalisation",
    torch="nn.functional.group_norm",
    source="ops-nn norm/group_norm_grad: page aclnnGroupNormBackward, its checks",
)
def group_norm_backward(
    facts: Facts,
    grad_out: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    mean: Array,
    rstd: Array,
    gamma: Array | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    output_mask: tuple[bool, ...] = (True, True, True),
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None]:
    """Gradients of group normalisation.

    With the M numbers of each group, normal = (input - mean) * rstd, and d = grad_out * gamma of
    the channel (without a gamma grad_out itself)::

        grad_input = rstd * (d - sum(d) / M - normal * sum(d * normal) / M)

    ``grad_gamma_out`` is the sum of grad_out * normal over each channel of all items,
    ``grad_beta_out`` that of grad_out. ``mean`` and ``rstd`` have one number for each group, in
    any shape. All is computed in float32 and rounded once; the sums over items are taken in
    float64. What ``output_mask`` switches off may be null, and is not computed.

    As ``aten.native_group_norm_backward`` in torch. The page's formula, which has gamma outside of
    the sums, is another one.
    """
    del output_mask
    given = (grad_out, input, mean, rstd)
    out, *sums = gradients(facts, given, (gamma, None), (n, c, hxw, group), OUTPUTS)
    of_factor, of_addend = (each.reshape(facts.shapes["of_gamma"]) for each in sums)
    return out, of_factor, of_addend


def gradients(
    facts: Facts,
    given: tuple[Array, Array, Array, Array],
    of_channels: tuple[Array | None, Array | None],
    extents: tuple[int, int, int, int],
    outputs: tuple[str, str, str],
    through: Callable[[AnyArray, AnyArray], AnyArray] | None = None,
) -> tuple[AnyArray | None, AnyArray, AnyArray]:
    """The gradients of groups, of factors and of addends of channels.

    ``given``: the gradient, the numbers, mean and rstd. ``through``: the gradient behind a step
    that follows, from the one before it and what the step gets.
    """
    (grad_out, x, mean, rstd), (n, c, hxw, group) = given, extents
    rows, length = (n, group), facts.count("row")
    out = facts.output(outputs[0], x.shape) if outputs[0] in facts.asked else None
    factor, addend = (flat(facts, each) for each in of_channels)
    totals = np.zeros((2, c))

    def compute(index: tuple[slice, ...]) -> list[AnyArray]:
        some = groups.channels_of(index, c // group)
        block, grad = facts.read(x, some), facts.read(grad_out, some).reshape(-1, length)
        scale = one_a_row(facts, rstd, rows, index)
        normal = block.reshape(-1, length) - one_a_row(facts, mean, rows, index)
        normal *= scale
        if through and factor is not None and addend is not None:
            y = groups.by_channel(normal, some, hxw) * factor[some[1], np.newaxis]
            y += addend[some[1], np.newaxis]
            grad = through(grad, y.reshape(-1, length)).astype(grad.dtype, copy=False)
        grads, normals = (groups.by_channel(each, some, hxw) for each in (grad, normal))
        sums = [row_sums(grads, normals)[..., 0], row_sums(grads)[..., 0]]
        if out is not None:
            weights = np.ones(c, grad.dtype)[some[1]] if factor is None else factor[some[1]]
            d = grad if factor is None else (grads * weights[:, np.newaxis]).reshape(-1, length)
            if np.isfinite(weights).all():
                products, total = (row_sums((each * weights).reshape(len(d), -1)) for each in sums)
            else:  # of both signs, which an infinite factor of their sum would hide
                products, total = row_sums(d, normal), row_sums(d)
            place = place_of(facts, outputs[0], some, d.shape)
            found = gradient(d, normal, scale, (products, total), place)
            if place is None:
                out[some] = found.reshape(block.shape)
        return [each.sum(0, np.float64) for each in sums]

    def add(index: tuple[slice, ...], sums: list[AnyArray]) -> None:
        totals[:, groups.channels_of(index, c // group)[1]] += sums

    each_rows(facts, rows, length, compute, add, 1 if through else 4)
    return out, totals[0], totals[1]

"""Gradient of batch normalisation."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import PARAM_NULLPTR
from npucall.operators import _channels as channels
from npucall.operators._masks import mask_of, masked
from npucall.operators._norms import float_or, of_weight
from npucall.operators._numerics import row_sums
from npucall.operators._rows import gradient
from npucall.products import A2, A3, ASCEND_910, ASCEND_950

OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
OF_CHANNELS = ("weight", "running_mean", "running_var", "save_mean", "save_invstd")


@operator(
    "aclnnBatchNormBackward",
    Input("grad_out", "gradient of the normal form"),
    Input("input", "(N, C, ...)"),
    Input("weight", "a factor for each channel, (C,)", optional=True, as_is=True),
    Input("running_mean", "the mean, if not in training", optional=True, as_is=True),
    Input("running_var", "the variance then", optional=True, as_is=True),
    Input("save_mean", "the mean, in training", optional=True, as_is=True),
    Input(
        "save_invstd",
        "the variance then; on Ascend 950 1 / the deviation",
        optional=True,
        as_is=True,
    ),
    Attribute("training", Kind.BOOL, "whether mean and variance are those of input"),
    Attribute("eps", Kind.DOUBLE, "is added to the variance"),
    Attribute("output_mask", Kind.BOOL_ARRAY, "which of the three outputs are asked for"),
    Output(OUTPUTS[0], "of input", "input", "input", format="input", asked=masked(0)),
    Output(OUTPUTS[1], "of the weight", "channels", "of_weight", as_is=True, asked=masked(1)),
    Output(OUTPUTS[2], "of the bias", "channels", "of_weight", as_is=True, asked=masked(2)),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_910: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_out", "input"),
        rules.succeed_if_empty("input", "grad_out"),
        rules.present("output_mask"),
        *rules.with_status(PARAM_NULLPTR, mask_of(3)),
        rules.present(*OUTPUTS),
        rules.supported("grad_out", "input"),
        rules.same_dtype("input", as_="grad_out"),
        rules.supported(*OUTPUTS),
        rules.supported(*OF_CHANNELS),
        *(
            rules.on((ASCEND_950,), rule)
            for rule in (
                *float_or("grad_out", *OF_CHANNELS),
                rules.same_dtype("running_var", as_="running_mean"),
                rules.same_dtype("save_invstd", as_="save_mean"),
                rules.same_dtype("grad_input", as_="grad_out"),
                rules.same_dtype("grad_bias", as_="grad_weight"),
            )
        ),
        rules.same_format("input", "grad_out"),
        rules.same_format("grad_input", "grad_out"),
        rules.format_in("grad_out", *channels.FIRST),
        rules.rank_is("grad_out", *range(2, 9)),
        rules.same_shape("input", "grad_out"),
        rules.same_shape("grad_input", "grad_out"),
        channels.CHANNELS,
        *channels.of_channels(*OF_CHANNELS, *OUTPUTS[1:]),
        of_weight,
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(holds=channels.held(backward=True)),
    sample=Sample(
        dict.fromkeys(OF_CHANNELS, (3,)),
        attributes={"training": True, "output_mask": [True] * 3},
    ),
    formats_by_rank=True,
    area="normalisation",
    torch="nn.functional.batch_norm",
    source="ops-nn norm/batch_norm_grad_v3: page aclnnBatchNormBackward, its checks",
)
def batch_norm_backward(
    facts: Facts,
    grad_out: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    weight: Array | None = None,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    save_mean: Array | None = None,
    save_invstd: Array | None = None,
    training: bool = False,
    eps: float = 1e-5,
    output_mask: tuple[bool, ...] = (True, True, True),
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None]:
    """Gradients of batch normalisation.

    With n the elements of a channel, s = 1 / sqrt(var + eps) and normal = (input - mean) * s, over
    each channel::

        grad_bias   = sum(grad_out)
        grad_weight = sum(grad_out * normal)
        grad_input  = weight * s * (grad_out - grad_bias / n - normal * grad_weight / n)

    In training mean is ``save_mean``, or 0; ``save_invstd`` is var, but on Ascend 950 s itself, as
    the forward operator of each product gives it. Else mean and var are the running ones, or 0 and
    1, and the last two terms of grad_input are 0. All is computed in float32 and rounded once, the
    sums to their own dtype alone. What ``output_mask`` switches off may be null, and is not
    computed. Without elements the outputs are 0.

    As ``aten.native_batch_norm_backward`` in torch, which takes s on every product.
    """
    del output_mask
    shape = input.shape
    out = facts.output(OUTPUTS[0], shape) if OUTPUTS[0] in facts.asked else None
    sums = [np.empty(shape[1], facts.dtype) for _ in range(2)]

    def compute(some: slice) -> None:
        used = (
            ((save_mean, 0), (save_invstd, 1))
            if training
            else ((running_mean, 0), (running_var, 1))
        )
        factor, mean, var = channels.numbers(facts, ((weight, 1), *used), some)
        scale = channels.inverse(facts, var, eps, saved=training)
        grad, normal = (channels.read(facts, each, some) for each in (grad_out, input))
        normal -= mean
        normal *= scale
        of_rows = row_sums(grad, normal), row_sums(grad)
        sums[0][some], sums[1][some] = (each[:, 0] for each in of_rows)
        if out is not None:
            grad *= factor
            products, total = (each * factor for each in of_rows)
            if training:
                grad = gradient(grad, normal, scale, (products, total))
            else:
                grad *= scale
            channels.write(out, grad, some, shape)

    facts.each(channels.blocks(shape), compute)
    return out, sums[0], sums[1]

"""Batch normalisation."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _channels as channels
from npucall.operators._norms import single
from npucall.operators._rows import moments
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950

SAVED = ("save_mean", "save_invstd")
OF_CHANNELS = ("weight", "bias", "running_mean", "running_var")


@operator(
    "aclnnBatchNorm",
    Input("input", "(N, C, ...)"),
    Input("weight", "a factor for each channel, (C,)", optional=True, as_is=True),
    Input("bias", "an addend for each of them", optional=True, as_is=True),
    Output("running_mean", "the mean so far", in_place=True, optional=True, as_is=True),
    Output("running_var", "the variance so far", in_place=True, optional=True, as_is=True),
    Attribute("training", Kind.BOOL, "whether mean and variance are those of input"),
    Attribute("momentum", Kind.DOUBLE, "how much of them goes into those so far"),
    Attribute("eps", Kind.DOUBLE, "is added to the variance"),
    Output("output", "the normal form", "input", "input", format="input"),
    Output("save_mean", "the mean", "channels", "single", as_is=True, asked=channels.training),
    Output(
        "save_invstd",
        "the variance; on Ascend 950 1 / the deviation",
        "channels",
        "single",
        as_is=True,
        asked=channels.training,
    ),
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
        **dict.fromkeys((ASCEND_910, ASCEND_310P), HALF_AND_SINGLE),
    },
    checks=(
        rules.present("input", "output", *SAVED),
        rules.fill_if_empty("input", fill=lambda _: np.nan, meaning="NaN", outputs=SAVED[1:]),
        rules.supported("input", "output", *SAVED),
        rules.supported(*OF_CHANNELS),
        rules.same_format("output", "input"),
        rules.format_in("input", *channels.FIRST),
        rules.rank_is("input", *range(2, 9)),
        rules.same_shape("output", "input"),
        channels.CHANNELS,
        *channels.of_channels(*OF_CHANNELS, *SAVED),
        single,
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(holds=channels.held(backward=False)),
    sample=Sample(dict.fromkeys(OF_CHANNELS, (3,)), attributes={"training": True}),
    formats_by_rank=True,
    area="normalisation",
    torch="nn.functional.batch_norm",
    source="ops-nn norm/batch_norm_v3: page aclnnBatchNorm, order of checks in its source",
)
def batch_norm(
    facts: Facts,
    input: Array,  # noqa: A002  # the operator's own name for it
    weight: Array | None = None,
    bias: Array | None = None,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[AnyArray | None, ...]:
    """Normal form of each channel of ``input``: mean 0 and variance 1.

    With n the elements of a channel, over all of them::

        output = (input - mean) / sqrt(var + eps) * weight + bias

    In training mean and var are those of the channel, var = sum((x - mean)^2) / n. ``save_mean``
    and ``save_invstd`` have mean and **var**; on Ascend 950 the latter is 1 / sqrt(var + eps). The
    running ones, where there are any, become (1 - momentum) * running + momentum * batch, with
    var * n / (n - 1), which is NaN for n = 1. Else mean and var are the running ones, or 0 and 1,
    which stay as they are, and nothing is saved. All is computed in float32, and rounded once.

    As ``aten.native_batch_norm`` in torch, which saves 1 / sqrt(var + eps) on every product, and
    writes into its running tensors, where here the result has the new ones.
    """
    shape, length = input.shape, facts.count("input") // max(input.shape[1], 1)
    out = facts.output("output", shape)
    new = [np.empty(shape[1], facts.dtype) for _ in range(4)]

    def compute(some: slice) -> None:
        given = ((weight, 1), (bias, 0), (running_mean, 0), (running_var, 1))
        factor, addend, mean, var = channels.numbers(facts, given, some)
        x = channels.read(facts, input, some)
        if training:
            normal, found, spread = moments(x)
            inverse = 1 / np.sqrt(spread + facts.dtype.type(eps))
            normal *= inverse
            share = facts.dtype.type(momentum)
            unbiased = spread * facts.dtype.type(np.float64(length) / (length - 1 or np.nan))
            mean, var = mean + share * (found - mean), var + share * (unbiased - var)
            new[2][some] = found[:, 0]
            new[3][some] = (inverse if facts.product is ASCEND_950 else spread)[:, 0]
        else:
            normal = (x - mean) / np.sqrt(var + facts.dtype.type(eps))
        new[0][some], new[1][some] = mean[:, 0], var[:, 0]
        normal *= factor
        normal += addend
        channels.write(out, normal, some, shape)

    facts.each(channels.blocks(shape), compute)
    return new[0], new[1], out, new[2], new[3]

"""The gradient of batch normalisation over several processes, step by step.

Each process adds up its own numbers, and has the gradients of weight and bias; with the sums of all
it has the gradient of its input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rules
from npucall.dtypes import FLOAT, FLOAT16, INT32, AnyArray, Array
from npucall.operators import _channels as channels
from npucall.operators.sync_batch_norm import (
    EVERYWHERE,
    HOLDS,
    SHAPES,
    SOURCE,
    WEIGHT,
    X,
    has_channels,
)

SUMS = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
UPSTREAM = Input("grad_out", "gradient of the normal form")
MEAN = Input("mean", "the mean of each channel, (C,)", as_is=True)
INVSTD = Input("invstd", "1 / its deviation", as_is=True)


def _asked(name: str) -> Any:
    return lambda draft: bool(draft.attribute(name))


@operator(
    "aclnnBatchNormReduceBackward",
    UPSTREAM,
    X,
    MEAN,
    INVSTD,
    Input("weight", "is not looked at", optional=True, read=False),
    Attribute("input_g", Kind.BOOL, "whether the first two sums are asked for", const=True),
    Attribute("weight_g", Kind.BOOL, "whether the third one is", const=True),
    Attribute("bias_g", Kind.BOOL, "whether the fourth one is", const=True),
    *(
        Output(name, text, "channels", "input", as_is=True, asked=_asked(switch))
        for name, text, switch in zip(
            SUMS,
            ("of grad_out", "of grad_out * (input - mean)", "of the weight", "of the bias"),
            ("input_g", "input_g", "weight_g", "bias_g"),
            strict=True,
        )
    ),
    products=EVERYWHERE,
    checks=(
        rules.present("grad_out", "input", "mean", "invstd", *SUMS),
        rules.supported("grad_out", "input", "mean", "invstd"),
        rules.same_dtype("input", as_="grad_out"),
        rules.supported(*SUMS),
        rules.same_format("input", "grad_out"),
        rules.public_format("grad_out", "input", "mean", "invstd", *SUMS),
        *SHAPES,
        *has_channels(),
        rules.same_shape("grad_out", "input"),
        *channels.of_channels("mean", "invstd", *SUMS),
        rules.fill_if_empty("input", fill=lambda _: 0.0, meaning="0"),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=HOLDS,
    sample=Sample(
        dict.fromkeys(("mean", "invstd", "weight"), (3,)),
        attributes=dict.fromkeys(("input_g", "weight_g", "bias_g"), True),
    ),
    area="normalisation",
    torch="nn.SyncBatchNorm",
    source=SOURCE.format("aclnnBatchNormReduceBackward"),
)
def batch_norm_reduce_backward(
    facts: Facts,
    grad_out: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    mean: Array,
    invstd: Array,
    weight: Array | None = None,
    input_g: bool = True,
    weight_g: bool = True,
    bias_g: bool = True,
) -> tuple[AnyArray, ...]:
    """Sums over each channel of one process, for the gradients of batch normalisation.

    ::

        sum_dy      = sum(grad_out)
        sum_dy_xmu  = sum(grad_out * (input - mean))
        grad_weight = invstd * sum_dy_xmu
        grad_bias   = sum_dy

    ``invstd`` is 1 / the deviation on every product. ``input_g``, ``weight_g`` and ``bias_g`` ask
    for the first two, the third and the fourth; the others may be null. Terms are computed in
    float32, and added in float64; sums are rounded once. Without elements they are 0, on Ascend 950
    alone: other devices write nothing.

    As ``torch.batch_norm_backward_reduce``, which only GPUs have.
    """
    del weight, input_g, weight_g, bias_g
    sums = [np.empty(input.shape[1], np.float64) for _ in range(3)]

    def compute(some: slice) -> None:
        middle, scale = channels.numbers(facts, ((mean, 0), (invstd, 1)), some)
        grad, centred = (channels.read(facts, each, some) for each in (grad_out, input))
        centred = centred - middle
        sums[0][some] = np.add.reduce(grad, -1, np.float64)
        sums[1][some] = np.add.reduce(grad * centred, -1, np.float64)
        sums[2][some] = sums[1][some] * scale[:, 0]

    facts.each(channels.blocks(input.shape), compute)
    return *sums, sums[0]


@operator(
    "aclnnBatchNormElemtBackward",
    UPSTREAM,
    X,
    MEAN,
    INVSTD,
    WEIGHT,
    Input("sum_dy", "sum of grad_out over all processes", as_is=True),
    Input("sum_dy_xmu", "sum of grad_out * (input - mean)", as_is=True),
    Input("counter", "numbers of a channel in each process", as_is=True, const=False),
    Output("grad_input", "gradient of input", "input", "input", format="input"),
    products=EVERYWHERE,
    checks=(
        rules.present("grad_out", "input", "mean", "invstd", *SUMS[:2], "counter", "grad_input"),
        rules.supported("grad_out", "input", "mean", "invstd", "weight", *SUMS[:2]),
        rules.dtype_in("counter", FLOAT, FLOAT16, INT32),
        rules.supported("grad_input"),
        rules.public_format("grad_out", "input", "grad_input"),
        *SHAPES,
        rules.rank_at_most(8, "counter"),
        *has_channels(),
        rules.same_shape("grad_out", "input"),
        rules.same_shape("grad_input", "input"),
        *channels.of_channels("mean", "invstd", "weight", *SUMS[:2]),
        rules.succeed_if_empty("input"),
    ),
    kernel_dtype=rules.always(FLOAT),
    over=HOLDS,
    sample=Sample(
        {**dict.fromkeys(("mean", "invstd", "weight", *SUMS[:2]), (3,)), "counter": (2,)},
        {"counter": INT32},
    ),
    area="normalisation",
    torch="nn.SyncBatchNorm",
    source=SOURCE.format("aclnnBatchNormElemtBackward"),
)
def batch_norm_elemt_backward(
    facts: Facts,
    grad_out: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    mean: Array,
    invstd: Array,
    weight: Array | None = None,
    *,
    sum_dy: Array,
    sum_dy_xmu: Array,
    counter: Array,
) -> AnyArray:
    """Gradient of batch normalisation, from sums over all processes.

    With n the sum of ``counter``::

        grad_input = weight * invstd
                     * (grad_out - sum_dy / n - (input - mean) * invstd^2 * sum_dy_xmu / n)

    Tensors may have different dtypes. All is computed in float32 and rounded once.

    As ``torch.batch_norm_backward_elemt``, which only GPUs have.
    """
    out = facts.output("grad_input", input.shape)
    number = np.asarray(facts.read(counter, ()), np.float64).sum()

    def compute(some: slice) -> None:
        given = ((weight, 1), (mean, 0), (invstd, 1), (sum_dy, 0), (sum_dy_xmu, 0))
        factor, middle, scale, total, product = channels.numbers(facts, given, some)
        share = (product / number * scale * scale).astype(facts.dtype)
        grad, centred = (channels.read(facts, each, some) for each in (grad_out, input))
        found = grad - (total / number).astype(facts.dtype)
        found -= (centred - middle) * share
        found *= scale * factor
        channels.write(out, found, some, input.shape)

    facts.each(channels.blocks(input.shape), compute)
    return out

"""Batch normalisation over several processes, step by step.

Each process adds up its own numbers, all of them gather the sums, and each normalises its numbers
with those of all.
"""

from __future__ import annotations

from math import prod

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import AclnnStatus, ArgumentError
from npucall.operators import _channels as channels
from npucall.operators._norms import single
from npucall.products import A2, A3, ASCEND_910, ASCEND_950
from npucall.tensors import Format

NEW = dict.fromkeys((A2, A3, ASCEND_950), FLOATS)
EVERYWHERE = {**NEW, ASCEND_910: HALF_AND_SINGLE}
RUNNING = ("running_mean", "running_var")
X = Input("input", "(N, C, ...)")
WEIGHT = Input("weight", "a factor for each channel", optional=True, as_is=True)
SHAPES = (rules.rank_is("input", *range(2, 9)),)
SOURCE = "ops-nn norm: page {}, its checks [src:sync-batch-norm]"


def _held(facts: Facts, name: str, each: int) -> int:
    """Bytes of a channel that is longer than a block, and of a few numbers for each."""
    shape = facts.shapes[name]
    length = prod(shape) // max(shape[1], 1)
    return (each * length if length > BLOCK else 0) + 32 * shape[1]


HOLDS = at_once(holds=lambda facts, _: _held(facts, "input", 36))


def has_channels(name: str = "input") -> tuple[rules.Rule, ...]:
    """There are channels; finds their shape."""
    return (
        rules.requires(
            "channels",
            name,
            holds=lambda draft: draft.shape(name)[1] > 0,
            found=lambda draft: f"shape {draft.shape(name)}",
        ),
        channels.channels_of(name),
    )


@operator(
    "aclnnBatchNormReduce",
    Input("x", "planes, (N, C, H, W)"),
    Output("sum", "of each channel", "channels", "single"),
    Output("square_sum", "of the squares of each channel", "channels", "single"),
    products=NEW,
    checks=(
        rules.present("x", "sum", "square_sum"),
        channels.channels_of("x"),
        single,
        rules.fill_if_empty("x", "sum", "square_sum", fill=lambda _: 0.0, meaning="0"),
        rules.supported("x"),
        rules.dtype_in("sum", FLOAT),
        rules.dtype_in("square_sum", FLOAT),
        rules.format_in("x", Format.ND, Format.NCHW),
        rules.format_in("sum", Format.ND),
        rules.format_in("square_sum", Format.ND),
        rules.rank_is("x", 4),
        *channels.of_channels("sum", "square_sum"),
    ),
    kernel_dtype=rules.always(FLOAT),
    over=at_once(holds=lambda facts, _: _held(facts, "x", 24)),
    sample=Sample({"x": (2, 3, 2, 2)}),
    area="normalisation",
    torch="nn.SyncBatchNorm",
    source=SOURCE.format("aclnnBatchNormReduce"),
)
def batch_norm_reduce(facts: Facts, x: Array) -> tuple[AnyArray, AnyArray]:
    """Sums of each channel of ``x``, and of its squares: ``sum(x)`` and ``sum(x^2)``.

    Sums are taken in float64 and rounded once. Without elements they are 0. Channels that are the
    last dimension are refused.

    As ``x.sum((0, 2, 3))`` and ``(x * x).sum((0, 2, 3))`` in torch.
    """
    found = [np.empty(x.shape[1], np.float64) for _ in range(2)]

    def compute(some: slice) -> None:
        rows = channels.read(facts, x, some)
        found[0][some] = np.add.reduce(rows, -1, np.float64)
        found[1][some] = np.add.reduce(rows * rows, -1, np.float64)

    facts.each(channels.blocks(x.shape), compute)
    return found[0], found[1]


def _both_or_none(draft: Draft) -> bool:
    return draft.absent(RUNNING[0]) == draft.absent(RUNNING[1])


@operator(
    "aclnnBatchNormGatherStatsWithCounts",
    Input("input", "the numbers of one process, (N, C, ...): only its shape", read=False),
    Input("mean", "the means of each process, (W, C)", as_is=True),
    Input("invstd", "1 / their deviations", as_is=True),
    Output(RUNNING[0], "the mean so far, (C,)", in_place=True, optional=True, as_is=True),
    Output(RUNNING[1], "the variance so far", in_place=True, optional=True, as_is=True),
    Attribute("momentum", Kind.DOUBLE, "how much goes into those so far"),
    Attribute("eps", Kind.DOUBLE, "is added to the variance"),
    Input("counts", "how many numbers each process has of a channel, (W,)", as_is=True),
    Output("mean_all", "the mean of all", "channels", "mean", as_is=True),
    Output("invstd_all", "1 / its deviation", "channels", "mean", as_is=True),
    products=EVERYWHERE,
    checks=(
        rules.present("input", "mean", "invstd", "counts", "mean_all", "invstd_all"),
        rules.supported("input", "mean", "invstd", *RUNNING, "counts", "mean_all", "invstd_all"),
        rules.public_format("input", "mean", "invstd", "counts"),
        rules.requires(
            "both, or none",
            *RUNNING,
            holds=_both_or_none,
            found=lambda _: "one",
            error=ArgumentError,
        ),
        *SHAPES,
        rules.rank_is("mean", 2),
        rules.rank_is("invstd", 2),
        rules.rank_is("counts", 1),
        rules.same_extent("mean", 0, "number of processes", invstd=0, counts=0),
        rules.same_extent("input", 1, "number of channels", mean=1, invstd=1),
        channels.CHANNELS,
        *channels.of_channels(*RUNNING, "mean_all", "invstd_all"),
        rules.fill_if_empty("mean", fill=lambda _: np.nan, meaning="NaN", outputs=("invstd_all",)),
    ),
    kernel_dtype=rules.always(FLOAT),
    over=at_once(holds=lambda facts, _: 72 * facts.count("mean") + 48 * facts.count("channels")),
    sample=Sample(
        {"mean": (2, 3), "invstd": (2, 3), "counts": (2,), **dict.fromkeys(RUNNING, (3,))}
    ),
    area="normalisation",
    torch="nn.SyncBatchNorm",
    source=SOURCE.format("aclnnBatchNormGatherStatsWithCounts"),
)
def batch_norm_gather_stats_with_counts(
    facts: Facts,
    input: Array,  # noqa: A002  # the operator's own name for it
    mean: Array,
    invstd: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    counts: Array,
) -> tuple[AnyArray | None, ...]:
    """Mean and deviation of all processes, from those of each.

    With n the ``counts`` and N their sum, over the processes::

        mean_all   = sum(n * mean) / N
        squares    = sum(n * (1 / invstd^2 - eps + (mean - mean_all)^2))
        invstd_all = 1 / sqrt(squares / N + eps)

    The running ones, where there are any, become (1 - momentum) * running + momentum * new, with
    mean_all and squares / (N - 1). Both are there, or none; a device without the mean does not
    write the variance. All is computed in float64 and rounded once. Without processes the mean is 0
    and invstd_all NaN.

    As ``torch.batch_norm_gather_stats_with_counts``, which only GPUs have.
    """
    del input
    means, deviations, numbers = (
        np.asarray(facts.read(each, ()), np.float64) for each in (mean, invstd, counts)
    )
    numbers = numbers[:, np.newaxis]
    total = numbers.sum()
    own = (numbers * means).sum(0) / total
    squares = (numbers * (1 / deviations**2 - eps + (means - own) ** 2)).sum(0)
    new: list[AnyArray | None] = []
    for running, found in ((running_mean, own), (running_var, squares / (total - 1))):
        before = None if running is None else np.asarray(facts.read(running, ()), np.float64)
        new.append(None if before is None else before + momentum * (found - before))
    return *new, own, 1 / np.sqrt(squares / total + eps)


@operator(
    "aclnnBatchNormElemt",
    X,
    WEIGHT,
    Input("bias", "an addend for each of them", optional=True, as_is=True),
    Input("mean", "the mean of each channel, (C,)", as_is=True, const=False),
    Input("invstd", "1 / its deviation", as_is=True, const=False),
    Attribute("eps", Kind.DOUBLE, "has no effect: invstd has it already"),
    Output("output", "the normal form", "input", "input", format="input"),
    products=EVERYWHERE,
    checks=(
        *rules.with_status(
            AclnnStatus.ACLNN_ERR_PARAM_INVALID,
            rules.present("input", "mean", "invstd", "output"),
        ),
        rules.supported("input", "weight", "bias", "mean", "invstd", "output"),
        rules.same_format("output", "input"),
        rules.public_format("input"),
        *SHAPES,
        rules.same_shape("output", "input"),
        *has_channels(),
        *channels.of_channels("weight", "bias", "mean", "invstd"),
        rules.succeed_if_empty("input"),
    ),
    kernel_dtype=rules.always(FLOAT),
    over=at_once(holds=lambda facts, _: _held(facts, "input", 16)),
    sample=Sample(dict.fromkeys(("weight", "bias", "mean", "invstd"), (3,))),
    area="normalisation",
    torch="nn.SyncBatchNorm",
    source=SOURCE.format("aclnnBatchNormElemt"),
)
def batch_norm_elemt(
    facts: Facts,
    input: Array,  # noqa: A002  # the operator's own name for it
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    mean: Array,
    invstd: Array,
    eps: float = 1e-5,
) -> AnyArray:
    """Normal form of each channel, from a mean and a deviation that are given.

    ::

        output = (input - mean) * invstd * weight + bias

    Tensors may have different dtypes. All is computed in float32 and rounded once. ``eps`` has no
    effect; a device takes it from 1 / invstd^2, and adds it again. What must not be null is refused
    with 161002.

    As ``torch.batch_norm_elemt``, which only GPUs have.
    """
    del eps
    out = facts.output("output", input.shape)

    def compute(some: slice) -> None:
        given = ((weight, 1), (bias, 0), (mean, 0), (invstd, 1))
        factor, addend, middle, scale = channels.numbers(facts, given, some)
        normal = channels.read(facts, input, some) - middle
        normal *= scale
        normal *= factor
        normal += addend
        channels.write(out, normal, some, input.shape)

    facts.each(channels.blocks(input.shape), compute)
    return out

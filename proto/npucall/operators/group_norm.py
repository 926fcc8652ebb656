"""Group normalisation."""

from collections.abc import Callable

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _groups as groups
from npucall.operators._channels import FIRST
from npucall.operators._rows import each_rows, flat, held, numbers_of, place_of, statistics
from npucall.products import A2, A3, ASCEND_910, ASCEND_950

STATISTICS = ("mean_out", "rstd_out")


def per_channel(*names: str) -> tuple[rules.Rule, ...]:
    """Each has one element for each channel."""
    return tuple(rules.same_shape(name, "channels", "one for each channel") for name in names)


def channels(draft: Draft) -> tuple[int, ...]:
    """The shape of what there is one of for each channel."""
    return (draft.attribute("c"),)


@operator(
    "aclnnGroupNorm",
    Input("self", "(N, C, ...)"),
    Input("gamma", "a factor for each channel, (C,)", optional=True),
    Input("beta", "an addend for each channel, (C,)", optional=True),
    *groups.EXTENTS,
    Attribute("eps", Kind.DOUBLE, "is added to the variance"),
    Output("out", "the normal form of the groups", "self", "self", format="self"),
    Output("mean_out", "the mean of each group", "rows", "self"),
    Output("rstd_out", "1 / its deviation", "rows", "self"),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_910: HALF_AND_SINGLE},
    checks=(
        rules.present("self", "out", *STATISTICS),
        rules.supported("self"),
        rules.same_dtype("gamma", "beta", "out", *STATISTICS, as_="self"),
        *groups.DIVIDED,
        rules.value_fits("more than 0", "eps", lambda eps: eps > 0),
        rules.rank_is("self", *range(2, 9)),
        rules.same_shape("out", "self"),
        groups.ROWS,
        *(rules.same_shape(name, "rows", "one for each group") for name in STATISTICS),
        groups.extents_of("self"),
        groups.ROW,
        rules.shape_of("C", into="channels", make=channels),
        *per_channel("gamma", "beta"),
        rules.same_format("out", "self"),
        rules.format_in("self", *FIRST),
        rules.fill_if_empty("self", fill=lambda _: np.nan, meaning="NaN", outputs=STATISTICS[1:]),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=held(backward=False)),
    formats_by_rank=True,
    sample=Sample(
        {"self": (2, 4, 3), "gamma": (4,), "beta": (4,)},
        attributes={"n": 2, "c": 4, "hxw": 3, "group": 2},
    ),
    area="normalisation",
    torch="nn.functional.group_norm",
    source="ops-nn norm/group_norm: page aclnnGroupNorm, its checks",
)
def group_norm(
    facts: Facts,
    self: Array,
    gamma: Array | None,
    beta: Array | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float = 1e-5,
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Normal form of each group of channels of ``self``: mean 0 and variance 1.

    A group has C / ``group`` channels that follow each other. Over the M numbers x of each::

        mean = sum(x) / M                 rstd = 1 / sqrt(sum((x - mean)^2) / M + eps)
        out = (x - mean) * rstd * gamma + beta

    with ``gamma`` and ``beta`` of the channel, or 1 and 0. All is computed in float32, and rounded
    once. Groups without elements have the mean 0 and an rstd of NaN.

    As ``aten.native_group_norm`` in torch, which takes an ``eps`` of 0 too.
    """
    return normalised(facts, (self, gamma, beta), (n, c, hxw, group), eps, ("out", *STATISTICS))


def normalised(
    facts: Facts,
    given: tuple[Array, Array | None, Array | None],
    extents: tuple[int, int, int, int],
    eps: float,
    outputs: tuple[str, ...],
    then: Callable[[AnyArray], AnyArray] | None = None,
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The normal form of groups, mean and rstd; of numbers, factors and addends of channels.

    ``then``: what the normal form goes through before it is written.
    """
    (x, gamma, beta), (n, c, hxw, group) = given, extents
    rows, length = (n, group), facts.count("row")
    out = facts.output(outputs[0], x.shape)
    found = [np.empty(n * group, facts.dtype) for _ in outputs[1:]]
    factor, addend = flat(facts, gamma), flat(facts, beta)

    def compute(index: tuple[slice, ...]) -> None:
        some = groups.channels_of(index, c // group)
        block = facts.read(x, some)
        normal, *each = statistics(block.reshape(-1, length), eps, centred=True)
        by_channel = groups.by_channel(normal, some, hxw)
        if factor is not None:
            by_channel *= factor[some[1], np.newaxis]
        place = None
        if addend is not None:
            place = None if then else place_of(facts, outputs[0], some, by_channel.shape)
            more = addend[some[1], np.newaxis]
            np.add(by_channel, more, out=by_channel if place is None else place)
        if place is None:
            result = by_channel if then is None else then(by_channel)
            out[some] = result.reshape(block.shape)
        for kept, numbers in zip(found, each, strict=True):
            kept[numbers_of(rows, index)] = numbers[:, 0]

    each_rows(facts, rows, length, compute)
    mean, rstd = (each.reshape(rows) for each in found)
    return out, mean, rstd

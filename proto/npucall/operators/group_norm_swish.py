"""Group normalisation, and what it gives times its sigmoid; and the gradient of that."""

from collections.abc import Callable

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.declare.prepare import Prepared
from npucall.dtypes import FLOAT, FLOATS, AnyArray, Array
from npucall.errors import TILING_ERROR, AttributeValueError
from npucall.operators._channels import channels_of
from npucall.operators._norms import no_zero
from npucall.operators._numerics import gated
from npucall.operators._rows import held
from npucall.operators.group_norm import normalised, per_channel
from npucall.operators.group_norm_backward import gradients
from npucall.operators.swish import slope
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

PRODUCTS = dict.fromkeys((A2, A3, ASCEND_950), FLOATS)
FORWARD = ("x", "gamma", "beta", "y_out", "mean_out", "rstd_out")
GIVEN = ("dy", "mean", "rstd", "x", "gamma", "beta")
OUTPUTS = ("dx_out", "dgamma_out", "dbeta_out")
GROUPS = Attribute("num_groups", Kind.INT64, "groups of channels")
FORMAT = Attribute("data_format", Kind.STRING, "is not looked at", c_name="dataFormatOptional")
SCALE = Attribute("swish_scale", Kind.DOUBLE, "factor in the exponent")
MOST = 4000
"""Channels of a group, of the gradient."""


def _rows(draft: Draft) -> Shape:
    return (*draft.shape("x")[:1], draft.attribute("num_groups"))


def _row(draft: Draft) -> Shape:
    _, channels, *plane = draft.shape("x")
    return (channels // draft.attribute("num_groups"), int(np.prod(plane, dtype=np.int64)))


DIVIDED = (
    rules.positive("num_groups"),
    rules.requires(
        "a divisor of the channels",
        "num_groups",
        holds=lambda draft: draft.shape("x")[1] % draft.attribute("num_groups") == 0,
        found=lambda draft: draft.attribute("num_groups"),
        error=AttributeValueError,
    ),
    rules.shape_of("x and num_groups", into="rows", make=_rows),
    rules.shape_of("x and num_groups", into="row", make=_row),
)
CHANNELS = channels_of("x")
DTYPES = tuple(
    (x, *(weight,) * 2, x, *(weight,) * 2) for x in FLOATS for weight in dict.fromkeys((x, FLOAT))
)


def _extents(facts: Facts, groups: int) -> tuple[int, int, int, int]:
    """Items, channels, numbers of a channel, groups."""
    items, channels = facts.shapes["x"][:2]
    return items, channels, facts.shapes["row"][1], groups


@operator(
    "aclnnGroupNormSwish",
    Input("x", "(N, C, ...)"),
    Input("gamma", "a factor for each channel, (C,)", as_is=True),
    Input("beta", "an addend for each channel, (C,)", as_is=True),
    GROUPS,
    FORMAT,
    Attribute("eps", Kind.DOUBLE, "is added to the variance"),
    Attribute("activate_swish", Kind.BOOL, "whether the normal form goes through swish"),
    SCALE,
    Output("y_out", "the result", "x", "x", const=True),
    Output("mean_out", "the mean of each group", "rows", "gamma", const=True, as_is=True),
    Output("rstd_out", "1 / its deviation", "rows", "gamma", const=True, as_is=True),
    products=PRODUCTS,
    checks=(
        rules.present(*FORWARD),
        rules.supported("x"),
        rules.dtype_row(DTYPES, *FORWARD),
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("x", *range(2, 9)),
            CHANNELS,
            *per_channel("gamma", "beta"),
            *DIVIDED,
            *no_zero("x"),
            rules.same_shape("y_out", "x"),
            rules.same_shape("mean_out", "rows", "one for each group"),
            rules.same_shape("rstd_out", "rows", "one for each group"),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=False)),
    sample=Sample(
        {"x": (2, 4, 3), "gamma": (4,), "beta": (4,)},
        attributes={"num_groups": 2, "activate_swish": True},
    ),
    area="normalisation",
    source="ops-nn norm/group_norm_swish: definition and tiling [src:group-norm-swish]",
)
def group_norm_swish(
    facts: Facts,
    x: Array,
    gamma: Array,
    beta: Array,
    num_groups: int,
    data_format: str = "NCHW",
    eps: float = 1e-5,
    activate_swish: bool = True,
    swish_scale: float = 1.0,
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Normal form of each group of channels, times its sigmoid.

    With y as of GroupNorm, ``activate_swish`` gives::

        y_out = y * sigmoid(swish_scale * y)

    and else y itself. All is computed in float32 and rounded once. Tensors without elements are
    refused. ``data_format`` is not looked at: channels are the second dimension.

    As ``silu(group_norm(x, ...))`` in torch, with a ``swish_scale`` of 1.
    """
    del data_format

    def swished(y: AnyArray) -> AnyArray:
        return gated(y, y * y.dtype.type(swish_scale))

    return normalised(
        facts, (x, gamma, beta), _extents(facts, num_groups), eps,
        FORWARD[3:], swished if activate_swish else None,
    )  # fmt: skip


def _unasked(switch: str) -> Callable[[Prepared], float | None]:
    def value(call: Prepared) -> float | None:
        return None if call.attributes[switch] else 0.0

    return value


@operator(
    "aclnnGroupNormSwishGrad",
    Input("dy", "gradient of the result"),
    Input("mean", "the mean of each group, (N, num_groups)"),
    Input("rstd", "1 / its deviation"),
    Input("x", "(N, C, ...)"),
    Input("gamma", "a factor for each channel, (C,)"),
    Input("beta", "an addend for each channel, (C,)"),
    GROUPS,
    FORMAT,
    SCALE,
    Attribute("dgamma_is_require", Kind.BOOL, "whether the gradient of gamma is computed"),
    Attribute("dbeta_is_require", Kind.BOOL, "whether the gradient of beta is"),
    Output("dx_out", "gradient of x", "x", "x", const=True),
    Output("dgamma_out", "gradient of gamma", "channels", "x", const=True),
    Output("dbeta_out", "gradient of beta", "channels", "x", const=True),
    products=PRODUCTS,
    checks=(
        rules.present(*GIVEN, *OUTPUTS),
        rules.supported("dy"),
        rules.dtype_row(tuple((each,) * 9 for each in FLOATS), *GIVEN, *OUTPUTS),
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("dy", *range(2, 9)),
            rules.same_shape("x", "dy"),
            CHANNELS,
            rules.positive("num_groups"),
            rules.shape_of("x and num_groups", into="rows", make=_rows),
            rules.same_shape("mean", "rows", "one for each group"),
            rules.same_shape("rstd", "rows", "one for each group"),
            *per_channel("gamma", "beta"),
            *DIVIDED[1:],
            *no_zero("x"),
            rules.requires(
                f"at most {MOST} channels of a group",
                "num_groups",
                holds=lambda draft: draft.shape("row")[0] <= MOST,
                found=lambda draft: draft.attribute("num_groups"),
                error=AttributeValueError,
            ),
            rules.same_shape("dx_out", "x"),
            *per_channel(*OUTPUTS[1:]),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=True, steps=8)),
    unwritten={
        "dgamma_out": _unasked("dgamma_is_require"),
        "dbeta_out": _unasked("dbeta_is_require"),
    },
    sample=Sample(
        {"x": (2, 4, 3), "dy": (2, 4, 3), "gamma": (4,), "beta": (4,)}
        | dict.fromkeys(("mean", "rstd"), (2, 2)),
        attributes={"num_groups": 2, "dgamma_is_require": True, "dbeta_is_require": True},
    ),
    area="normalisation",
    source="ops-nn norm/group_norm_swish_grad: definition and tiling [src:group-norm-swish]",
)
def group_norm_swish_grad(
    facts: Facts,
    dy: Array,
    mean: Array,
    rstd: Array,
    x: Array,
    gamma: Array,
    beta: Array,
    num_groups: int,
    data_format: str = "NCHW",
    swish_scale: float = 1.0,
    dgamma_is_require: bool = True,
    dbeta_is_require: bool = True,
) -> tuple[AnyArray | None, ...]:
    """Gradients of ``group_norm_swish`` with ``activate_swish``.

    With y = normal * gamma + beta and s = sigmoid(swish_scale * y), they are those of GroupNorm,
    from the gradient ``dy * s * (1 + swish_scale * y * (1 - s))``; the page's formula lacks the
    division by the numbers of a group. All is computed in float32 and rounded once, sums over items
    in float64. A gradient that is not required must be given; it is 0 then, and a device leaves it
    as it was.

    As autograd of ``silu(group_norm(x, ...))`` in torch, with a ``swish_scale`` of 1.
    """
    del data_format

    def through(grad: AnyArray, y: AnyArray) -> AnyArray:
        return grad * slope(y, swish_scale)

    out, *sums = gradients(
        facts, (dy, x, mean, rstd), (gamma, beta), _extents(facts, num_groups), OUTPUTS, through
    )
    switches = (dgamma_is_require, dbeta_is_require)
    of_gamma, of_beta = (
        each if there else np.zeros_like(each) for each, there in zip(sums, switches, strict=True)
    )
    return out, of_gamma, of_beta

"""Convolution of one to three axes, in blocks."""

from collections.abc import Sequence

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import ArgumentError, AttributeValueError
from npucall.operators import _convolution_checks as shared
from npucall.operators._convolution import Convolution
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

FARTHEST = 255
"""Positions that a transposed kernel may reach beyond the padding, off Ascend 950."""


def padding_fits(draft: Draft) -> bool:
    """Whether what is added to a transposed output is less than a step."""
    axes = shared.axes_of(draft.shape("weight"), shared.given(draft))
    more = shared.each(draft.attribute("output_padding"), len(axes))
    return all(0 <= one < max(a.stride, a.dilation) for one, a in zip(more, axes, strict=True))


def reach_fits(draft: Draft) -> bool:
    """Whether a transposed kernel reaches no farther than the device can."""
    axes = shared.axes_of(draft.shape("weight"), shared.given(draft))
    least = 0 if len(axes) == len(shared.RANKS) else -FARTHEST * FARTHEST
    return all(
        least <= (a.kernel - 1) * a.dilation - side <= FARTHEST
        for a in axes
        for side in (a.before, a.after)
    )


@operator(
    "aclnnConvolution",
    Input("input", "images, (N, C, ...)"),
    Input("weight", "(O, C / groups, ...), transposed (C, O / groups, ...)"),
    Input("bias", "is added to each channel, (O,)", optional=True, as_is=True),
    shared.STRIDE,
    shared.PADDING,
    shared.DILATION,
    shared.TRANSPOSED,
    shared.OUTPUT_PADDING,
    Attribute("groups", Kind.INT64, "parts of the channels that do not see each other"),
    Output("output", "the result", "result", "promotion", format="input"),
    shared.CUBE_MATH_TYPE,
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
        **dict.fromkeys((ASCEND_310P, ASCEND_310B), HALF_AND_SINGLE),
    },
    legacy={ASCEND_910: HALF_AND_SINGLE},
    formats_by_rank=True,
    checks=(
        rules.present("input", "weight", "stride", "padding", "dilation", "output"),
        rules.when(shared.transposes, rules.present("output_padding"), "if transposed"),
        rules.supported("bias", "input", "weight", "output"),
        rules.rank_is("input", *shared.RANKS),
        rules.same_rank("weight", "output", as_="input"),
        shared.shaped(
            "one number for each channel of the output",
            "bias",
            "weight",
            fits=lambda d: d.absent("bias") or d.shape("bias") == (shared.channels(d),),
        ),
        shared.lengths("stride"),
        shared.lengths("dilation"),
        shared.lengths("padding", sides=True),
        rules.when(shared.transposes, shared.lengths("output_padding"), "if transposed"),
        rules.same_format("output", "input"),
        rules.format_of_rank("input", "weight", "output"),
        shared.shaped("a kernel", "weight", fits=lambda d: 0 not in d.shape("weight")[2:]),
        shared.numbers("stride", 1),
        shared.numbers("dilation", 1),
        rules.when(
            lambda draft: not shared.transposes(draft),
            shared.shaped(
                "images that the kernel fits into",
                "input",
                "weight",
                fits=lambda d: min(shared.result(d)[2:]) > 0,
            ),
            "if not transposed",
        ),
        rules.positive("groups"),
        shared.shaped(
            "the channels that the weight takes",
            "input",
            "weight",
            fits=shared.channels_fit,
        ),
        rules.when(
            shared.transposes,
            rules.requires(
                "0 or more, and less than the step",
                "output_padding",
                holds=padding_fits,
                found=lambda draft: draft.attribute("output_padding"),
                error=AttributeValueError,
            ),
            "if transposed",
        ),
        shared.shaped(
            "channels that are a multiple of groups",
            "weight",
            fits=lambda d: d.shape("weight")[0] % d.attribute("groups") == 0,
        ),
        rules.when(
            shared.transposes,
            shared.shaped(
                "channels, on Ascend950 positions too",
                "input",
                fits=lambda d: (
                    0 not in d.shape("input")[1 : None if d.product is ASCEND_950 else 2]
                ),
            ),
            "if transposed",
        ),
        rules.when(
            lambda draft: shared.transposes(draft) and draft.product is not ASCEND_950,
            shared.shaped(
                f"a kernel that reaches at most {FARTHEST} beyond the padding",
                "weight",
                fits=reach_fits,
            ),
            "if transposed, but not on Ascend950",
        ),
        rules.shape_of("input and weight", into="result", make=shared.result),
        rules.same_shape("output", "result", "that of the convolution"),
        shared.shaped(
            "elements, unless the output has none",
            "input",
            "weight",
            fits=lambda d: 0 not in d.shape("input") + d.shape("weight") or 0 in d.shape("result"),
        ),
        rules.promoted("input", "weight", into="promotion"),
        rules.one_of("cube_math_type", *range(5)),
        shared.multiplies_float(),
        rules.on(
            (ASCEND_310B,),
            rules.requires(
                "two axes, not transposed",
                "input",
                holds=lambda d: (
                    len(d.shape("input")) == shared.RANKS[1] and not shared.transposes(d)
                ),
                found=lambda d: d.shape("input"),
                error=ArgumentError,
            ),
        ),
        rules.succeed_if_empty("input", "weight"),
    ),
    kernel_dtype=shared.multiplied_in,
    over=at_once(holds=shared.held, computes=shared.products),
    sample=Sample(
        {"input": (2, 2, 3, 4), "weight": (3, 2, 2, 2), "bias": (3,)},
        attributes={"cube_math_type": shared.ALLOW_LOWER},
    ),
    area="convolution and pooling",
    torch="convolution",
    source="ops-nn page aclnnConvolution",
)
def convolution(
    facts: Facts,
    input: Array,  # noqa: A002  # the name of the page
    weight: Array,
    bias: Array | None = None,
    stride: Sequence[int] | None = (1,),
    padding: Sequence[int] | None = (0,),
    dilation: Sequence[int] | None = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] | None = (0,),
    groups: int = 1,
    cube_math_type: int = 0,
) -> AnyArray:
    """Convolution of images with one, two or three axes.

    With stride s, dilation d and the padding p before each axis, for image n, channel o and
    position i::

        output[n, o, i] = bias[o]
                        + sum over c, k of  weight[o, c, k] * input[n, c', i * s + k * d - p]

    c' is the channel c of o's group; beyond an image there are zeros. ``padding`` may have two
    numbers for each axis, but for images with three. ``transposed``, each input[n, c, i] times
    weight[c, o, k] is added to output[n, o', i * s + k * d - p] instead, and ``output_padding``
    positions are added at the end.

    ``input`` and ``weight`` are converted to their promoted dtype, multiplied and added in float32,
    ``bias`` too, and rounded once. ``cube_math_type`` 2 rounds FLOAT to FLOAT16 first, and so does
    1 on Ascend910 and Ascend310P, which refuse FLOAT with others. Devices may round FLOAT to HF32
    with 1 and 3, the reference does not.

    As ``aten.convolution`` in torch, which has no padding by sides, and no mixed dtypes.
    """
    del cube_math_type, output_padding
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    call = Convolution(facts, shared.axes_of(weight.shape, given), groups)
    shape = facts.shapes["result"]
    out = facts.output("output", shape)
    addend = None if bias is None else facts.read(bias, ...).astype(facts.dtype)
    (call.apply_back if transposed else call.apply)(input, weight, out, shape, addend)
    return out

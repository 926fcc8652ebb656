"""Gradients of a convolution with respect to images, weights and bias."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import PARAM_NULLPTR, AttributeValueError, FormatError
from npucall.operators import _convolution_checks as shared
from npucall.operators._convolution import Convolution
from npucall.operators._masks import masked
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Format

GIVEN = ("grad_output", "input", "weight")
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
SKIPPING = (A2, A3, ASCEND_950)
"""Products that look no further at a call whose input or weight is empty."""


def is_empty(draft: Draft) -> bool:
    """Whether there is nothing to compute, on products that allow that."""
    return 0 in draft.shape("input") + draft.shape("weight") and draft.product in SKIPPING


def format_of_bias(draft: Draft) -> Format:
    """That of its gradient."""
    given = draft.tensor("grad_bias")
    return given.format if given else Format.ND


def padding_fits(draft: Draft) -> bool:
    """Whether what was added to a transposed output is possible; 0 if it is not transposed."""
    axes = shared.axes_of(draft.shape("weight"), shared.given(draft))
    more = draft.attribute("output_padding")
    if not shared.transposes(draft):
        return not any(more)
    least = min(more, default=0) >= 0
    return least and (
        len(axes) < len(shared.RANKS)
        or all(n < a.stride for n, a in zip(shared.each(more, len(axes)), axes, strict=False))
    )


@operator(
    "aclnnConvolutionBackward",
    Input("grad_output", "gradient with respect to the result"),
    Input("input", "images, (N, C, ...)"),
    Input("weight", "(O, C / groups, ...), transposed (C, O / groups, ...)"),
    Attribute("bias_sizes", Kind.INT_ARRAY, "(O,), where a call without elements has a bias"),
    shared.STRIDE,
    shared.PADDING,
    shared.DILATION,
    shared.TRANSPOSED,
    shared.OUTPUT_PADDING,
    Attribute("groups", Kind.INT, "parts of the channels that do not see each other"),
    Attribute("output_mask", Kind.BOOL_ARRAY, "which of the three outputs are asked for"),
    shared.CUBE_MATH_TYPE,
    Output("grad_input", "of the images", "input", "input", format="input", asked=masked(0)),
    Output(
        "grad_weight", "of the weights", "weight", "weight", format="weight", as_is=True,
        asked=masked(1),
    ),
    Output("grad_bias", "of the bias", "of_bias", "grad_output", as_is=True, asked=masked(2)),
    products={
        **dict.fromkeys(SKIPPING, FLOATS),
        **dict.fromkeys((ASCEND_910, ASCEND_310P), HALF_AND_SINGLE),
    },
    formats_by_rank=True,
    checks=(
        rules.present(*GIVEN, "stride", "padding", "dilation", "output_padding", "output_mask"),
        *rules.with_status(
            PARAM_NULLPTR,
            rules.value_fits(
                "3 truth values", "output_mask", lambda mask: len(mask) == len(OUTPUTS)
            ),
        ),
        rules.present(*OUTPUTS),
        rules.supported(*GIVEN),
        *(
            rule
            for name, like in zip(OUTPUTS, ("input", "weight", "grad_output"), strict=True)
            for rule in (
                rules.supported(name), rules.on((ASCEND_950,), rules.same_dtype(name, as_=like))
            )
        ),
        rules.format_of_rank(*GIVEN, "grad_input", "grad_weight"),
        rules.when(
            lambda draft: not shared.transposes(draft) and draft.product in SKIPPING,
            rules.requires(
                "ND", "grad_bias", holds=lambda d: format_of_bias(d) is Format.ND,
                found=lambda d: format_of_bias(d).name, error=FormatError,
            ),
            "if not transposed, on Ascend910B, Ascend910_93 and Ascend950",
        ),
        shared.numbers("stride", 1),
        shared.numbers("padding", 0),
        shared.numbers("dilation", 1),
        rules.requires(
            "0 unless transposed, then 0 or more, and less than the stride with three axes",
            "output_padding",
            holds=padding_fits,
            found=lambda draft: draft.attribute("output_padding"),
            error=AttributeValueError,
        ),
        rules.positive("groups"),
        rules.one_of("cube_math_type", *range(5)),
        rules.promoted(*GIVEN, into="promotion"),
        shared.multiplies_float(),
        rules.when(
            is_empty,
            rules.requires(
                "one number for each channel of the result", "bias_sizes",
                holds=lambda draft: not draft.asks("grad_bias")
                or tuple(draft.attribute("bias_sizes") or ()) == (shared.channels(draft),),
                found=lambda draft: draft.attribute("bias_sizes"), error=AttributeValueError,
            ),
            "if input or weight is empty",
        ),
        rules.when(
            is_empty,
            shared.shaped(
                "no images, or no channels, if their gradient is asked for", "input",
                fits=lambda d: not d.asks("grad_input") or 0 in d.shape("input")[:2],
            ),
            "if input or weight is empty",
        ),
        rules.rank_is("input", *shared.RANKS),
        rules.same_rank("grad_output", "weight", as_="input"),
        rules.when(
            lambda draft: not is_empty(draft),
            shared.shaped(
                "elements", *GIVEN,
                fits=lambda draft: not any(0 in draft.shape(name) for name in GIVEN),
            ),
            "unless input or weight is empty on Ascend910B, Ascend910_93 and Ascend950",
        ),
        rules.same_shape("grad_input", "input"),
        rules.same_shape("grad_weight", "weight"),
        rules.shape_of("weight", into="of_bias", make=lambda draft: (shared.channels(draft),)),
        rules.same_shape("grad_bias", "of_bias", "one number for each channel of grad_output"),
        shared.lengths("stride"),
        shared.lengths("dilation"),
        shared.lengths("padding", sides=True),
        shared.lengths("output_padding", sides=True),
        shared.shaped(
            "the channels of the result", "grad_output", "weight",
            fits=lambda d: d.shape("grad_output")[1] == shared.channels(d),
        ),
        shared.shaped(
            "the channels that the weight takes", "input", "weight", fits=shared.channels_fit
        ),
        shared.shaped(
            "channels that are a multiple of groups", "weight",
            fits=lambda d: d.shape("weight")[0] % d.attribute("groups") == 0,
        ),
        shared.shaped(
            "the shape of the convolution of input", "grad_output", "input", "weight",
            fits=lambda d: d.shape("grad_output") == shared.result(d),
        ),
        rules.fill_if_empty(
            "input", "weight", fill=lambda _: 0.0, meaning="0", outputs=OUTPUTS[1:]
        ),
    ),
    kernel_dtype=shared.multiplied_in,
    over=at_once(holds=shared.held, computes=shared.products),
    sample=Sample(
        {"grad_output": (2, 3, 2, 3), "input": (2, 2, 3, 4), "weight": (3, 2, 2, 2)},
        attributes={"cube_math_type": shared.ALLOW_LOWER},
    ),
    area="convolution and pooling",
    torch="convolution",
    source="ops-nn page aclnnConvolutionBackward",
)  # fmt: skip
def convolution_backward(
    facts: Facts,
    grad_output: Array,
    input: Array,  # noqa: A002  # the name of the page
    weight: Array,
    bias_sizes: Sequence[int] | None = None,
    stride: Sequence[int] | None = (1,),
    padding: Sequence[int] | None = (0,),
    dilation: Sequence[int] | None = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] | None = (0,),
    groups: int = 1,
    output_mask: Sequence[bool] | None = (True, True, True),
    cube_math_type: int = 0,
) -> tuple[AnyArray | None, ...]:
    """Gradients of ``convolution``, of ``grad_output`` with respect to its result.

    With stride s, dilation d and the padding p before each axis, in each group::

        grad_input[n, c, x] = sum over o, k and i with i * s + k * d - p = x of
                              weight[o, c, k] * grad_output[n, o, i]
        grad_weight[o, c, k] = sum over n, i of
                               grad_output[n, o, i] * input[n, c, i * s + k * d - p]
        grad_bias[o] = sum over n, i of  grad_output[n, o, i]

    ``transposed``, images and ``grad_output`` change places in these. What ``output_mask`` switches
    off may be null, and is not computed. The three tensors are converted to their promoted dtype,
    multiplied and added in float32. Sums over images are rounded once, to the dtype of their
    output. ``bias_sizes`` is looked at if there are no elements; then the gradients of weights and
    bias are 0. ``cube_math_type`` is as in ``convolution``.

    As ``aten.convolution_backward`` in torch, which has no padding by sides, and no mixed dtypes.
    """
    del bias_sizes, output_padding, output_mask, cube_math_type
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    call = Convolution(facts, shared.axes_of(weight.shape, given), groups)
    found: dict[str, AnyArray] = {
        name: facts.output(name, facts.shapes[like])
        for name, like in zip(OUTPUTS, ("input", "weight", "of_bias"), strict=True)
        if name in facts.asked
    }
    gradients(call, grad_output, input, weight, found, transposed=transposed)
    return tuple(found.get(name) for name in OUTPUTS)


def gradients(
    call: Convolution,
    grad_output: Array,
    images: Array,
    weight: Array,
    found: Mapping[str, AnyArray],
    *,
    transposed: bool = False,
) -> None:
    """Writes what is in ``found``, by the names of the outputs."""
    if "grad_input" in found:
        back = call.apply if transposed else call.apply_back
        back(grad_output, weight, found["grad_input"], images.shape, None)
    if "grad_weight" in found:
        inner, outer = (grad_output, images) if transposed else (images, grad_output)
        call.weights_back(inner, outer, found["grad_weight"], weight.shape)
    if "grad_bias" in found:
        _bias_back(call.facts, grad_output, found["grad_bias"])


def _bias_back(facts: Facts, gradient: Array, out: Any) -> None:
    """Writes the gradient of the bias: sums over images and positions."""
    total = np.zeros(gradient.shape[1], np.float64)
    axes = (0, *range(2, len(gradient.shape)))
    for index in facts.blocks(gradient.shape):
        total[index[1]] += facts.read(gradient, index).sum(axes, np.float64)
    out[...] = total

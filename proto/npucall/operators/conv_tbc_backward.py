"""Gradients of a convolution along time, whose tensors have their channels last."""

from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import BF16, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _convolution_checks as shared
from npucall.operators._convolution import Axis, Convolution
from npucall.operators.convolution_backward import OUTPUTS, gradients
from npucall.products import A2, A3, ASCEND_910, ASCEND_950
from npucall.tensors import Format, Shape

GIVEN = ("self", "input", "weight")
IMAGES, WEIGHTS = (1, 2, 0), (2, 1, 0)
"""Where a convolution's axes stand: of images (T, B, C), of weights (K, C, O)."""


class Turned:
    """A tensor whose axes stand in the order of a convolution; its blocks are slices of each."""

    def __init__(self, array: Any, shape: Shape, order: tuple[int, ...]) -> None:
        self._array, self._order = array, order
        self.shape = tuple(shape[axis] for axis in order)

    def __getitem__(self, index: Any) -> AnyArray:
        block: AnyArray = self._array[self._place(index)]
        return block.transpose(self._order)

    def __setitem__(self, index: Any, block: AnyArray) -> None:
        self._array[self._place(index)] = block.transpose(np.argsort(self._order))

    def _place(self, index: Any) -> Any:
        return ... if index is ... else tuple(index[axis] for axis in np.argsort(self._order))


def result(draft: Draft) -> Shape:
    """The shape of the convolution; less than no steps where the weights do not fit."""
    time, items, _ = draft.shape("input")
    kernel, _, channels = draft.shape("weight")
    return (time + 2 * draft.attribute("pad") + 1 - kernel, items, channels)


def fits(draft: Draft) -> bool:
    """Whether the weights are no longer than the input with its zeros."""
    return result(draft)[0] >= 0


@operator(
    "aclnnConvTbcBackward",
    Input("self", "gradient with respect to the result, (T + 2 pad + 1 - K, B, O)"),
    Input("input", "what was convolved, (T, B, C)"),
    Input("weight", "(K, C, O)"),
    Input("bias", "(O,); only its shape and dtype matter", read=False),
    Attribute("pad", Kind.INT64, "zeros before the first step, and behind the last"),
    Attribute("cube_math_type", Kind.INT8,
              "0 keep the dtype, 1 allow a lower one, 2 FLOAT16, 3 HF32"),
    Output("grad_input", "of the input", "input", "input", format="input"),
    Output("grad_weight", "of the weights", "weight", "weight", format="weight", as_is=True),
    Output("grad_bias", "of the bias", "bias", "bias", as_is=True),
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
        ASCEND_910: HALF_AND_SINGLE,
    },
    checks=(
        rules.present(*GIVEN, "bias", *OUTPUTS),
        rules.supported(*GIVEN),
        rules.supported("bias", besides=(BF16,)),
        rules.supported(*OUTPUTS),
        *(
            rules.format_in(name, *((Format.ND,) if "bias" in name else (Format.ND, Format.NCL)))
            for name in (*GIVEN, "bias", *OUTPUTS)
        ),
        rules.requires("elements", "self", holds=lambda draft: 0 not in draft.shape("self"),
                       found=lambda draft: f"shape {draft.shape('self')}"),
        *(rules.rank_is(name, 3) for name in GIVEN),
        *(rules.rank_is(name, 1) for name in ("bias", "grad_bias")),
        *(rules.rank_is(name, 3) for name in OUTPUTS[:2]),
        shared.shaped("the channels that the weight takes", "input", "weight",
                      fits=lambda d: d.shape("input")[2] == d.shape("weight")[1]),
        shared.shaped("the channels of the result", "bias", "weight",
                      fits=lambda d: d.shape("bias") == d.shape("weight")[2:]),
        rules.not_negative("pad"),
        shared.shaped("as many steps as the weights, or more, with zeros around", "input", "weight",
                      fits=fits),
        rules.shape_of("input", into="result", make=result),
        rules.same_shape("self", "result", "(T + 2 pad + 1 - K, B, O)"),
        *(rules.same_shape(f"grad_{name}", name) for name in ("input", "weight", "bias")),
        rules.one_of("cube_math_type", *range(4)),
        rules.promoted(*GIVEN, into="promotion"),
        shared.multiplies_float(),
        *(rules.on((ASCEND_950,), rules.same_dtype(f"grad_{name}", as_=name))
          for name in ("input", "weight", "bias")),
    ),
    kernel_dtype=shared.multiplied_in,
    over=at_once(
        holds=shared.held,
        computes=lambda facts, _: facts.count("self") * prod(facts.shapes["weight"][:2]),
    ),
    sample=Sample(
        {"self": (4, 2, 3), "input": (5, 2, 4), "weight": (2, 4, 3), "bias": (3,)},
        attributes={"cube_math_type": shared.ALLOW_LOWER},
    ),
    area="convolution and pooling",
    torch="conv_tbc",
    source="ops-nn conv/convolution_backward: page aclnnConvTbcBackward, order of checks in its "
    "source",
)  # fmt: skip
def conv_tbc_backward(
    facts: Facts,
    self: Array,
    input: Array,  # noqa: A002  # the name of the page
    weight: Array,
    bias: Array,
    pad: int = 0,
    cube_math_type: int = 0,
) -> tuple[AnyArray, ...]:
    """Gradients of a convolution along time, of ``self`` with respect to its result.

    With the input x, of which steps before the first and behind the last are 0, and g = ``self``::

        grad_input[t, b, c]  = sum over k, o of  weight[k, c, o] * g[t - k + pad, b, o]
        grad_weight[k, c, o] = sum over t, b of  x[t + k - pad, b, c] * g[t, b, o]
        grad_bias[o]         = sum over t, b of  g[t, b, o]

    As ``convolution_backward`` of one axis, with a stride of 1, computes it, and with its meaning
    of ``cube_math_type``, which has no 4. Without elements in ``input`` or ``weight``, gradients of
    these are 0, and that of the bias is still the sum; a device takes g as 1 in it.

    As ``aten.conv_tbc_backward`` in torch, which has no mixed dtypes.
    """
    del cube_math_type
    ways: dict[str, tuple[Shape, tuple[int, ...]]] = {
        "grad_input": (input.shape, IMAGES),
        "grad_weight": (weight.shape, WEIGHTS),
    }
    found = {name: facts.output(name, shape) for name, (shape, _) in ways.items()}
    found["grad_bias"] = facts.output("grad_bias", bias.shape)
    turned: dict[str, Any] = {name: Turned(found[name], *way) for name, way in ways.items()}
    if 0 in (*input.shape, *weight.shape):
        for out in turned.values():
            out[...] = np.zeros(out.shape, facts.dtype)
        turned = {}
    gradient: Any = Turned(self, self.shape, IMAGES)
    images: Any = Turned(input, input.shape, IMAGES)
    weights: Any = Turned(weight, weight.shape, WEIGHTS)
    call = Convolution(facts, [Axis(1, 1, pad, pad, weight.shape[0])], 1)
    turned["grad_bias"] = found["grad_bias"]
    gradients(call, gradient, images, weights, turned)
    return tuple(found.values())

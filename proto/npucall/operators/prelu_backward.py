"""Gradient of the rectifier with a learned slope with respect to its input and the slope."""

from math import prod

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import DOUBLE, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import chosen
from npucall.operators._prelu import channels_of, one_or_each_channel, slopes_of
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Shape

TENSORS = ("grad_output", "self", "weight", "grad_input", "grad_weight")


def weight_gradient(draft: Draft) -> Shape:
    """The shape of weight if it has one element, otherwise that of a list of them."""
    count = prod(draft.shape("weight"))
    return draft.shape("weight") if count == 1 else (count,)


@operator(
    "aclnnPreluBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator; its channels are dimension 1"),
    Input("weight", "slope below 0: one element, or one for each channel"),
    Output("grad_input", "gradient with respect to self", shape="self", dtype="self"),
    Output("grad_weight", "gradient with respect to weight", shape="weight_gradient", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*TENSORS),
        rules.supported("self"),
        rules.same_dtype("grad_output", "weight", "grad_input", "grad_weight", as_="self"),
        rules.rank_at_most(8, *TENSORS),
        rules.same_shape("grad_input", "self"),
        one_or_each_channel,
        rules.shape_of("weight", into="weight_gradient", make=weight_gradient),
        rules.same_shape(
            "grad_weight", "weight_gradient", "that of weight, as a list unless it is one element"
        ),
        rules.expandable("grad_output", to="self", meaning="the shape of self"),
        rules.succeed_if_empty("grad_output", "self", "weight"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=lambda facts, _: facts.count("weight") * DOUBLE.itemsize),
    sample=Sample({"weight": (3,)}, least=-0.9),
    area="activations",
    torch="nn.functional.prelu",
    source="ops-nn activation/p_relu_grad_update",
)
def prelu_backward(
    facts: Facts, grad_output: Array, self: Array, weight: Array
) -> tuple[AnyArray, AnyArray]:
    """Gradients of ``prelu(self, weight)`` with respect to ``self`` and ``weight``.

    With w the weight of an element's channel, or the only one::

        grad_input = grad_output           where self > 0
        grad_input = grad_output * w       elsewhere, 0 and NaN among them
        grad_weight = sum of  grad_output * self  over the elements of the channel that are not > 0

    A ``weight`` of one element belongs to all channels, and so does its sum. Channels are dimension
    1; ``self`` of rank 0 or 1 has one. ``grad_output`` broadcasts to ``self``. ``grad_weight`` has
    shape (C,), also if a ``weight`` of C elements has another shape, and the shape of ``weight`` if
    C is 1. All five tensors have one dtype; sums are taken in float64 and rounded once.

    As in torch, except that torch requires ``weight`` to have at most 1 dimension. The order of the
    checks is that of ops-nn: null tensors, dtypes, ranks, then shapes.
    """
    shape, single = self.shape, prod(weight.shape) == 1
    grad_input = facts.output("grad_input", shape)
    sums = np.zeros(prod(weight.shape))
    for index in facts.blocks(shape):
        own, slopes = channels_of(weight, index), slopes_of(facts, weight, shape, index)
        x, upstream = facts.read(self, index), facts.read(grad_output, _part(grad_output, index))
        rising = x > 0
        falling = chosen(rising, facts.dtype.type(0), upstream * x)
        axes = tuple(axis for axis in range(falling.ndim) if single or axis != 1)
        sums[own] += falling.sum(axes, np.float64)
        grad_input[index] = chosen(rising, upstream, upstream * slopes)
    one_or_list = facts.shapes["weight_gradient"]
    grad_weight = facts.output("grad_weight", one_or_list)
    for index in facts.blocks(sums.shape):
        grad_weight[... if single else index] = sums[index].reshape(one_or_list if single else -1)
    return grad_input, grad_weight


def _part(array: Array, index: tuple[slice, ...]) -> tuple[slice, ...]:
    """What a block needs of an array that broadcasts to the shape that the block is of."""
    shape = array.shape
    pieces = zip(shape, index[len(index) - len(shape) :], strict=True)
    return tuple(slice(None) if extent == 1 else piece for extent, piece in pieces)

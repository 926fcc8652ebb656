"""Gradient of dropout, by its mask."""

from math import inf

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import UINT8, AnyArray, Array
from npucall.operators import _dropout as shared


@operator(
    "aclnnDropoutBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("mask", "bits of the elements that stay, 16 bytes for each 128 elements", as_is=True),
    Attribute("scale", Kind.DOUBLE, "1 / the share that stays; 1: all do, 0: none does"),
    Output("out", "gradient with respect to what went in", "grad_output", "grad_output"),
    products=shared.PRODUCTS,
    checks=(
        rules.present("grad_output", "mask", "out"),
        rules.castable("grad_output", to="out"),
        rules.supported("grad_output"),
        shared.is_mask,
        rules.value_fits(
            "0, or a finite number from 1 on", "scale", lambda scale: scale == 0 or 1 <= scale < inf
        ),
        *shared.mask_checks("grad_output", exact=True),
        rules.succeed_if_empty("grad_output"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=at_once(),
    sample=Sample({"mask": (16,)}, {"mask": UINT8}, {"scale": 2.0}),
    area="activations",
    torch="nn.functional.dropout",
    source="ops-math random/drop_out_do_mask: page aclnnDropoutBackward, order of its checks",
)
def dropout_backward(facts: Facts, grad_output: Array, mask: Array, scale: float) -> AnyArray:
    """Gradient of dropout whose mask was kept.

    ::

        out = grad_output / keep    where the mask has a bit
        out = 0                     elsewhere

    with ``keep = 1 / scale`` in float32, rounded to the dtype of ``grad_output``: 0.9 is 0.8984375
    in BF16. Bit i of byte i / 8 of the mask, the lowest first, is that of element i, in row-major
    order. With ``scale`` 1 everything stays, and with 0 nothing does; the mask is not looked at.

    As the expression in torch, whose own mask is a tensor of truth values.
    """
    return shared.dropped(facts, grad_output, mask, 1 / scale if scale else 0)

"""Dropout by a mask that is given."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import UINT8, AnyArray, Array
from npucall.operators import _dropout as shared


@operator(
    "aclnnDropoutDoMask",
    Input("self", "any numbers"),
    Input("mask", "bits of the elements that stay, 16 bytes for each 128 elements", as_is=True),
    Attribute("prob", Kind.DOUBLE, "the share that is dropped; 0: none is, 1: all are"),
    Output("out", "what stays, divided by its share", "self", "self"),
    products=shared.PRODUCTS,
    checks=(
        rules.present("self", "mask", "out"),
        rules.succeed_if_empty("self", "mask"),
        rules.castable("self", to="out"),
        rules.supported("self"),
        shared.is_mask,
        rules.value_fits("a number from 0 to 1", "prob", lambda prob: 0 <= prob <= 1),
        *shared.mask_checks("self", exact=False),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(),
    sample=Sample({"mask": (16,)}, {"mask": UINT8}, {"prob": 0.5}),
    area="activations",
    torch="nn.functional.dropout",
    source="ops-math random/drop_out_do_mask: page aclnnDropoutDoMask, order of its checks",
)
def dropout_do_mask(facts: Facts, self: Array, mask: Array, prob: float) -> AnyArray:
    """What stays of ``self`` by a mask, divided by the share that stays.

    ::

        out = self / keep    where the mask has a bit
        out = 0              elsewhere

    with ``keep = 1 - prob`` in float32, rounded to the dtype of ``self``. Bit i of byte i / 8 of
    the mask, the lowest first, is that of element i, in row-major order. With ``prob`` 0 everything
    stays, and with 1 nothing does; the mask is not looked at. No random number is drawn here.

    As the expression in torch, whose own mask is a tensor of truth values.
    """
    return shared.dropped(facts, self, mask, 1 - prob)

"""Product of a tensor and a number."""

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    elementwise,
    operator,
    rules,
)
from npucall.declare.draft import Draft
from npucall.declare.twins import in_place
from npucall.dtypes import BF16, FLOAT, FLOAT16, AnyArray, Array, DType
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910


def factor(draft: Draft) -> DType:
    """The dtype that the number is rounded to: FLOAT where the product is shorter than that."""
    found = draft.dtype("result")
    return FLOAT if found in (FLOAT16, BF16) else found


@operator(
    "aclnnMuls",
    Input("self", "the tensor"),
    Attribute("other", Kind.SCALAR, "the number", dtype="factor"),
    Output("out", "self * other", shape="self", dtype="result"),
    products=shared.on(ASCEND_910, ASCEND_310P),
    legacy=shared.before(ASCEND_310B),
    checks=(
        rules.present("self", "other", "out"),
        rules.supported("self"),
        rules.supported("out"),
        rules.dtype_from("self and other", into="result", make=shared.beside_number),
        rules.dtype_from("result", into="factor", make=factor),
        rules.supported("result", blames=("self", "other")),
        rules.castable("result", to="out"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("result"),
    over=elementwise("self"),
    sample=Sample(attributes={"other": 2}),
    area="arithmetic",
    torch="mul",
    source="ops-math page aclnnMuls&aclnnInplaceMuls [src:in-place]",
)
def muls(facts: Facts, self: Array, other: float) -> AnyArray:
    """Product of ``self`` and the number ``other``.

    ::

        out = self * other

    The result has the dtype of ``self``, and ``other`` is rounded to that; for FLOAT16 and BF16, as
    on Ascend 950, it is rounded to FLOAT, and the product once. An integer or BOOL ``self`` and a
    number with a fraction are converted to what both promote to, which is FLOAT for a DOUBLE number
    and an ``out`` of FLOAT; BOOL and an integer to that integer's dtype. ``out`` may have any dtype
    that the result can be cast to. There is no limit of dimensions.

    As in torch, except for the rounding of ``other``: Atlas A2 and A3 round it to FLOAT16 if
    ``self`` is FLOAT16.
    """
    return np.multiply(self, other, out=facts.out)


inplace_muls = in_place(muls)

"""The gated linear unit with GELU; the third version says which half is activated."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    at_once,
    choice,
    operator,
    rules,
)
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._gelu import erf_form, tanh_form
from npucall.operators._glu import halved, places
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950

FORMS: tuple[Callable[[Array], AnyArray], ...] = (erf_form, tanh_form)
APPROXIMATE = choice("approximate", "none", "tanh", other="no other")
LEFT = Attribute("activate_left", Kind.BOOL, "whether the first half is activated")
DIM = Attribute("dim", Kind.INT64, "the dimension that is halved")
PRODUCTS: dict[str, Any] = {
    "products": {**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE},
    "legacy": {ASCEND_910: HALF_AND_SINGLE},  # by its source
}
INPUTS = (Input("self", "along dim a half that is activated, and one that is multiplied"), DIM)
OUTPUTS = (
    Output("out", "the product", shape="half", dtype="self"),
    Output("out_gelu", "the half that is activated, after GELU", shape="half", dtype="self"),
)
COMMON: dict[str, Any] = {
    **PRODUCTS,
    "area": "activations",
    "checks": (
        rules.present("self", "out", "out_gelu"),
        rules.supported("self", "out", "out_gelu"),
        rules.when(
            rules.not_empty("self"),
            rules.same_dtype("out", "out_gelu", as_="self"),
            "if self has elements",
        ),
        rules.rank_at_most(8, "self", "out", "out_gelu"),
        *halved(),
        rules.same_shape("out", "half", "that of self with half its extent along dim"),
        rules.same_shape("out_gelu", "half", "that of self with half its extent along dim"),
        rules.one_of("approximate", 0, 1),
        rules.succeed_if_empty("self"),
    ),
    "kernel_dtype": rules.dtype_of("self"),
    "over": at_once(),
    "sample": Sample({"self": (2, 6)}, attributes={"approximate": 0}),
}
Approximate = int | Literal["none", "tanh"]


@operator(
    "aclnnGeGlu",
    *INPUTS,
    APPROXIMATE,
    *OUTPUTS,
    source="ops-nn activation/ge_glu_v2: page aclnnGeGlu, its checks",
    **COMMON,
)
def ge_glu(
    facts: Facts, self: Array, dim: int = -1, approximate: Approximate = 1
) -> tuple[AnyArray, AnyArray]:
    """``first * gelu(second)`` of the halves of ``self`` along ``dim``, and that gelu.

    ::

        out_gelu = gelu(second)
        out = first * gelu(second)

    ``approximate`` 0 is the form with erf, 1 that with tanh, as in ``aclnnGeluV2``. Each output is
    rounded once. ``dim`` counts from the end if it is negative. A tensor without dimensions is
    refused.

    As ``a * gelu(b)`` of ``chunk(2, dim)`` in torch. Atlas A2's erf is a polynomial.
    """
    return gated_by_gelu(facts, self, dim, approximate, left=False)


@operator(
    "aclnnGeGluV3",
    *INPUTS,
    APPROXIMATE,
    LEFT,
    *OUTPUTS,
    source="ops-nn activation/ge_glu_v2: page aclnnGeGluV3, its checks",
    **COMMON,
)
def ge_glu_v3(
    facts: Facts,
    self: Array,
    dim: int = -1,
    approximate: Approximate = 1,
    activate_left: bool = False,  # in the order of C
) -> tuple[AnyArray, AnyArray]:
    """``aclnnGeGlu``, whose ``activate_left`` says which half is activated.

    ::

        out_gelu = gelu(second),  out = first * out_gelu
        out_gelu = gelu(first),   out = second * out_gelu      with activate_left

    All else is as there.
    """
    return gated_by_gelu(facts, self, dim, approximate, left=activate_left)


def gated_by_gelu(
    facts: Facts, self: Array, dim: int, approximate: Any, *, left: bool
) -> tuple[AnyArray, AnyArray]:
    """The product, and the half after GELU."""
    shape, axis = facts.shapes["half"], dim % len(self.shape)
    out, gelu = facts.output("out", shape), facts.output("out_gelu", shape)

    def compute(index: tuple[slice, ...]) -> None:
        first, second = places(index, axis, shape[axis])
        active, linear = (first, second) if left else (second, first)
        found = np.asarray(FORMS[approximate](facts.read(self, active)), facts.dtype)
        gelu[index] = found
        out[index] = facts.read(self, linear) * found

    facts.each(cut(shape, BLOCK), compute)
    return out, gelu

"""Whole quotients of two tensors, and of a tensor and a number."""

import numpy as np

from npucall.declare import Attribute, Facts, Kind, Output, Sample, elementwise, operator, rules
from npucall.declare.draft import Draft
from npucall.declare.twins import in_place
from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, FLOAT16, INT64, AnyArray, Array, DType
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910

_EXACT = 2.0**52
"""Numbers of DOUBLE up to this one have digits behind the point."""
OLDER = (FLOAT16, FLOAT, *shared.INTEGERS, DOUBLE, BOOL)


def quotient(draft: Draft) -> DType:
    """The promoted dtype; of BOOL FLOAT."""
    promotion = draft.dtype("promotion")
    return FLOAT if promotion is BOOL else promotion


def with_number(draft: Draft) -> DType:
    """What the quotient by a number has if nobody says another."""
    found = shared.beside_number(draft)
    return FLOAT if found is BOOL else found


QUOTIENT: tuple[rules.Rule, ...] = (
    rules.promoted(*shared.PAIR, into="promotion"),
    rules.dtype_from("promotion", into="quotient", make=quotient),
    rules.castable("quotient", to="out"),
)
"""The checks of dtypes behind those of the lists."""


@operator(
    "aclnnFloorDivide",
    shared.FIRST,
    shared.SECOND,
    Output("out", "self / other, without its fraction", shape="common", dtype="quotient"),
    products=shared.on(ASCEND_910, ASCEND_310P, newer=(*OLDER, BF16), without_bf16=OLDER),
    legacy=shared.before(ASCEND_310B, dtypes=OLDER),
    checks=(
        rules.present(*shared.PAIR, "out"),
        rules.supported(*shared.PAIR),
        *QUOTIENT,
        *shared.BROADCAST,
        rules.succeed_if_empty(*shared.PAIR),
    ),
    kernel_dtype=rules.dtype_of("quotient"),
    over=elementwise("common"),
    sample=Sample(dtypes={"self": INT64}, integers=range(1, 9)),
    area="arithmetic",
    torch="floor_divide",
    source="ops-math math/floor_div: page aclnnFloorDivide&aclnnInplaceFloorDivide, its checks "
    "[src:floor-divide] [src:in-place]",
)
def floor_divide(facts: Facts, self: Array, other: Array) -> AnyArray:
    """The largest whole number that is not more than ``self / other``.

    ::

        out = floor(self / other)

    Both are converted to their promoted dtype, BOOL to FLOAT. Quotients of integers are exact; an
    integer divided by 0 gives 0, where a device gives any number. Of floats it is the whole number
    below the exact quotient that is rounded, so 1 / 0.1 gives 9: of DOUBLE up to 2^52, beyond which
    the quotient itself is rounded. ``x / 0`` is infinite, ``0 / 0`` is NaN, and ``x`` divided by an
    infinite number is 0. ``out`` may have any dtype that the promoted one can be cast to, which
    Ascend 950 alone checks.

    As in torch, where integers by 0 raise, an infinite ``self`` gives NaN, and infinite ``other``
    of the other sign -1.
    """
    return _floored(facts, np.asarray(self), np.asarray(other))


@operator(
    "aclnnFloorDivides",
    shared.FIRST,
    Attribute("other", Kind.SCALAR, "the number", dtype="quotient"),
    Output("out", "self / other, without its fraction", shape="self", dtype="result"),
    products=shared.on(ASCEND_910, newer=(*OLDER, BF16), without_bf16=OLDER),
    legacy=shared.before(ASCEND_310P, ASCEND_310B, dtypes=OLDER),
    checks=(
        rules.present(*shared.PAIR, "out"),
        rules.supported(*shared.PAIR),
        *QUOTIENT,
        rules.dtype_from("self and other", into="result", make=with_number),
        rules.rank_at_most(8, "self"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("quotient"),
    over=elementwise("self"),
    sample=Sample(attributes={"other": 1}, least=-0.9, integers=range(1, 9)),
    area="arithmetic",
    torch="floor_divide",
    source="ops-math math/floor_div: page aclnnFloorDivides&aclnnInplaceFloorDivides, its checks "
    "[src:floor-divide] [src:in-place]",
)
def floor_divides(facts: Facts, self: Array, other: float) -> AnyArray:
    """The largest whole number that is not more than ``self`` divided by the number ``other``.

    ::

        out = floor(self / other)

    Both are converted to the promoted dtype of the tensor and the number, BOOL to FLOAT: beside a
    number of DOUBLE, a FLOAT tensor is divided in DOUBLE. Ascend 950 itself counts a number with a
    fraction as FLOAT, and beside a tensor of integers an integer as one of its dtype, as torch
    does. ``out`` may have any dtype that the promoted one can be cast to; by default it has that of
    ``self``, unless the number has a fraction that this lacks. All else is as in
    ``aclnnFloorDivide``.

    As in torch, except for the dtype in which it is computed.
    """
    one = np.asarray(self)
    return _floored(facts, one, np.asarray(other, one.dtype))


def _floored(facts: Facts, one: AnyArray, two: AnyArray) -> AnyArray:
    if one.dtype.kind in "iu":
        return np.floor_divide(one, two, out=facts.out)
    ratio = np.divide(one, two, dtype=np.float64)
    found: AnyArray = np.floor(ratio)
    if one.dtype == np.float64:  # a quotient of others is no whole number unless it is one exactly
        exact = (np.abs(ratio) < _EXACT) & np.isfinite(two)
        found = np.where(exact, np.floor_divide(one, two), found)
    return found.astype(one.dtype)


inplace_floor_divide = in_place(floor_divide, first=shared.BROADCAST)
inplace_floor_divides = in_place(floor_divides)

"""Conversion of a tensor to another dtype."""

from typing import Any

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
from npucall.dtypes import FLOAT, UINT16, UINT32, UINT64, AnyArray, Array
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910

UNSIGNED = (UINT16, UINT32, UINT64)
WITH_BF16, WITHOUT_BF16 = (*shared.NEWER, *UNSIGNED), (*shared.OLDER, *UNSIGNED)


@operator(
    "aclnnCast",
    Input("self", "the tensor", as_is=True),
    Attribute("dtype", Kind.DTYPE, "what it is converted to", const=True),
    Output("out", "the same in that dtype", shape="self", dtype="asked"),
    products=shared.on(ASCEND_910, ASCEND_310P, newer=WITH_BF16, without_bf16=WITHOUT_BF16),
    legacy=shared.before(ASCEND_310B, dtypes=WITHOUT_BF16),
    checks=(
        rules.present("self", "out"),
        rules.supported("self"),
        shared.ASKED,
        rules.supported("asked", blames=("dtype",)),
        rules.rank_at_most(8, "self"),
        rules.same_shape("out", "self"),
        rules.same_dtype("out", as_="asked"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("asked"),
    over=elementwise("self"),
    sample=Sample(attributes={"dtype": FLOAT}),
    area="arithmetic",
    torch="Tensor.to",
    source="ops-math page aclnnCast",
)
def cast(facts: Facts, self: Array, dtype: Any) -> AnyArray:
    """``self`` in the dtype ``dtype``.

    Any supported dtype becomes any other: floats are rounded to nearest even; from a float to an
    integer the fraction is dropped, NaN becomes 0 and numbers outside the range become its nearest
    end (devices do not promise this); integers wrap around; everything but 0 becomes True; of a
    complex number the real part remains. ``out`` must have the dtype ``dtype``: the software does
    not compare them, and fails later.

    As ``to`` in torch, except that NaN gives another integer there. The 8- and 4-bit floats of
    Ascend 950 are refused here.
    """
    del dtype
    given, target = np.asarray(self), facts.dtype
    if given.dtype.kind == "c" and target.kind not in "cb":
        given = given.real
    if target.kind == "b":
        return np.not_equal(given, 0)
    if target.kind not in "iu" or given.dtype.kind in "iub":
        return given
    return whole(given, target)


def whole(numbers: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Floats as integers: without their fractions, NaN as 0, the rest within the range."""
    limits, wide = np.iinfo(dtype), np.asarray(numbers, np.float64)
    above, below = wide >= float(limits.max + 1), wide <= float(limits.min - 1)
    inside = np.where(above | below | np.isnan(wide), 0, wide).astype(dtype)
    inside[above], inside[below] = limits.max, limits.min
    return inside

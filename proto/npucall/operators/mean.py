"""Mean of a tensor along dimensions."""

from collections.abc import Mapping
from math import nan
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
from npucall.dtypes import BOOL, FLOAT, AnyArray, Array
from npucall.operators import _arithmetic as arithmetic
from npucall.operators import _reductions as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910

NEWER, OLDER = (
    tuple(dtype for dtype in dtypes if dtype is not BOOL)
    for dtypes in (arithmetic.NEWER, arithmetic.OLDER)
)
_NO_LESS = 1 + 2.0**-51
"""What the quotient of a multiple must not fall below, so that no integer is lost."""


def factor(facts: Facts, _: Mapping[str, Any]) -> Any:
    """What the sums are multiplied by: 1 / elements of each; integers drop the fraction then."""
    count = facts.count("self") // facts.count("kept")
    if facts.dtype.kind in "iu":
        return _NO_LESS / count
    return 1 / count if facts.dtype == np.complex128 else facts.reciprocal(count)


@operator(
    "aclnnMean",
    Input("self", "what the mean is taken of"),
    Attribute("dim", Kind.INT_ARRAY, "dimensions to take it over; none: all of them"),
    Attribute("keep_dim", Kind.BOOL, "out keeps them with extent 1"),
    Attribute("dtype", Kind.DTYPE, "what self is converted to"),
    Output("out", "the means", shape="result", dtype="asked"),
    products=arithmetic.on(ASCEND_910, ASCEND_310P, newer=NEWER, without_bf16=OLDER),
    legacy=arithmetic.before(ASCEND_310B, dtypes=OLDER),
    checks=(
        rules.present("self", "dim", "out"),
        arithmetic.ASKED,
        rules.supported("self"),
        rules.supported("asked", blames=("dtype",)),
        rules.supported("out"),
        shared.castable_to_dtype(),
        rules.castable("asked", to="out"),
        shared.dims_of("dim"),
        rules.rank_at_most(8, "self", "out"),
        *shared.reduced("dim", "keep_dim"),
        shared.real_if_empty(),
        shared.filled(nan, "NaN, and 0 where that is an integer"),
        rules.same_shape("out", "result", "that of self without the dimensions"),
    ),
    kernel_dtype=rules.dtype_of("asked"),
    over=elementwise("self", sum_to="kept", factor=factor),
    sample=Sample(attributes={"dim": (0,), "keep_dim": False}, integers=range(9), follows="dtype"),
    area="arithmetic",
    torch="mean",
    source="ops-math page aclnnMean",
)
def mean(
    facts: Facts, self: Array, dim: Any = (), keep_dim: bool = False, dtype: Any = FLOAT
) -> AnyArray:
    """Mean of ``self`` over the dimensions ``dim``, or over all if there are none.

    ``self`` is converted to ``dtype`` first, which is FLOAT unless it is given, and which ``self``
    can be cast to. The mean is the sum times 1 / number of its elements, rounded once to ``dtype``,
    then to that of ``out``, which ``dtype`` can be cast to. Integers are summed exactly, and the
    fraction of their mean is dropped. ``out`` has the shape of ``self`` without ``dim``, or with
    extent 1 there if ``keep_dim``. Without elements the mean is NaN, or 0 for integers; a complex
    ``out`` is refused.

    As in torch, except that torch refuses integers. Devices add up in another order.
    """
    del facts, dim, keep_dim, dtype
    return np.asarray(self)

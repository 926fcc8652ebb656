"""The sigmoid, also called the logistic function."""

from __future__ import annotations

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, elementwise, operator, rules
from npucall.declare.draft import Draft
from npucall.declare.twins import in_place
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    Array,
    DType,
)
from npucall.operators import _numerics
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

RESULTS = (*FLOATS, DOUBLE, COMPLEX64, COMPLEX128)
WITH_BF16 = (*RESULTS, INT8, INT16, INT32, INT64, UINT8, BOOL)
WITHOUT_BF16 = tuple(dtype for dtype in WITH_BF16 if dtype is not BF16)


def _kernel_dtype(draft: Draft) -> DType:
    given, out = draft.dtype("self"), draft.tensor("out")
    if given.kind not in ("int", "bool"):
        return given
    return FLOAT if out is None else out.dtype


@operator(
    "aclnnSigmoid",
    Input("self", "any numbers"),
    Output("out", "between 0 and 1, if self is real", shape="self", dtype="result"),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
    },
    legacy={ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "out"),
        rules.supported(
            "self", besides=(BF16,)
        ),  # which the third step refuses where there is none
        rules.dtype_in("out", *RESULTS),
        rules.bfloat16_if_product_has("self", "out"),  # for out it is the service's
        rules.same_shape("self", "out"),
        rules.rank_at_most(8, "self"),
        rules.float_of("self", into="result"),
        rules.succeed_if_empty("self"),
        rules.castable("self", to="out"),  # the service's: no real out of complex numbers
    ),
    kernel_dtype=_kernel_dtype,
    over=elementwise("self"),
    sample=Sample(least=-0.9),
    area="activations",
    torch="sigmoid",
    source="ops-math page aclnnSigmoid",
)
def sigmoid(facts: Facts, self: Array) -> AnyArray:
    """Sigmoid of ``self``.

    ::

        1 / (1 + e^-self)

    Floats and complex numbers are computed in their own dtype, FLOAT16 and BF16 in float32, and
    converted to that of ``out``. Integers and BOOL are converted to the dtype of ``out`` first, and
    computed in that; ``out`` is FLOAT for them unless given. The page of the operator lists only
    floats, but the software takes all of these. The software also takes BF16 for ``out`` on
    products without BF16; the service refuses it.

    As in torch, except that torch gives other results for complex infinities.
    """
    if facts.dtype.kind == "c":
        return _of_complex(np.asarray(self))
    return _numerics.sigmoid(np.asarray(self), out=facts.out)


def _of_complex(x: AnyArray) -> AnyArray:
    """The same of complex numbers; powers of e are never above 1, so that they do not overflow."""
    negative = x.real < 0
    power = np.exp(np.where(negative, x, -x))
    return np.where(negative, power, 1) / (1 + power)


inplace_sigmoid = in_place(sigmoid)

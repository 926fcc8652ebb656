"""The dtypes that root mean square norms take together."""

from __future__ import annotations

from npucall.declare import rules
from npucall.dtypes import BF16, FLOAT, FLOAT16, DType
from npucall.products import ASCEND_310P

SINGLES = ("rstd", "rstd_out", "dgamma_out")
"""Tensors that are FLOAT in every row."""


def rows_of_dtypes(*names: str) -> tuple[rules.Rule, ...]:
    """All are FLOAT; or short floats, with a gamma of either, which Ascend 310P does not mix."""

    def row(short: DType, gamma: DType) -> tuple[DType, ...]:
        own = {"gamma": gamma, **dict.fromkeys(SINGLES, FLOAT)}
        return tuple(own.get(name, short) for name in names)

    alike = tuple(row(dtype, dtype) for dtype in (FLOAT, FLOAT16))
    others = (row(BF16, BF16), *(row(short, FLOAT) for short in (FLOAT16, BF16)))
    return (
        rules.supported(names[0]),
        rules.on((ASCEND_310P,), rules.dtype_row(alike, *names)),
        rules.except_on((ASCEND_310P,), rules.dtype_row((*alike, *others), *names)),
    )

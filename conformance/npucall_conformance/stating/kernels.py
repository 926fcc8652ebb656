"""Which dtype an operator computes in, from those of its arguments."""

from __future__ import annotations

from collections.abc import Callable

from npucall.dtypes import FLOAT, FLOAT16, DType
from npucall_conformance.stating.parts import DTypes
from npucall_conformance.stating.promotion import common_type


def dtype_of(name: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: that of a parameter."""
    return lambda dtypes: dtypes[name]


def promotion(*names: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: these are promoted one after the other; absent ones do not count."""

    def kernel(dtypes: DTypes) -> DType:
        first, *rest = [dtypes[name] for name in names if name in dtypes]
        for dtype in rest:
            first = common_type(first, dtype) or FLOAT
        return first

    return kernel


def float16_if_all(*names: str) -> Callable[[DTypes], DType]:
    """Kernel dtype: FLOAT16 if all of them are, otherwise FLOAT."""
    return lambda dtypes: FLOAT16 if all(dtypes[n] is FLOAT16 for n in names) else FLOAT


def never(_: DType) -> bool:
    """No kernel dtype makes every step round."""
    return False

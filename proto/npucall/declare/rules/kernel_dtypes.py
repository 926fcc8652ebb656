"""What an operator computes and rounds in: its kernel dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.dtypes import FLOAT, FLOAT16, DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.declare.draft import Draft


def float16_if_all(*names: str) -> Callable[[Draft], DType]:
    """Kernel dtype: FLOAT16 if all of them are, otherwise FLOAT."""

    def kernel_dtype(draft: Draft) -> DType:
        return FLOAT16 if all(draft.dtype(name) is FLOAT16 for name in names) else FLOAT

    return kernel_dtype


def short_if_all(*names: str) -> Callable[[Draft], DType]:
    """Kernel dtype: the short float that all of them have, such as BF16, otherwise FLOAT."""

    def kernel_dtype(draft: Draft) -> DType:
        (first, *others) = {draft.dtype(name) for name in names}
        return first if first.is_short and not others else FLOAT

    return kernel_dtype


def always(dtype: DType) -> Callable[[Draft], DType]:
    """Kernel dtype: this one, whatever the inputs are."""
    return lambda _: dtype


def dtype_of(name: str) -> Callable[[Draft], DType]:
    """Kernel dtype: that of a tensor, or the one that a rule found under that name."""
    return lambda draft: draft.dtype(name)

"""Which element types operators take on which products, where statements share a table.

Products are named by their short SoC names. Only Atlas A2, Atlas A3 and Ascend 950 have BF16.
Ascend 310 has none of these operators. Sources: [src:products], [src:product-lists].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    DType,
)

Takes: TypeAlias = Mapping[str, tuple[DType, ...]]
"""The element types that an operator takes, by the short SoC name of each product that has it."""

WITH_BFLOAT16 = ("Ascend910B", "Ascend910_93", "Ascend950")
OLDER = ("Ascend910", "Ascend310P", "Ascend310B")
PRODUCTS = (*WITH_BFLOAT16, *OLDER)
SOCS = (*PRODUCTS, "Ascend310")
"""Every product that a server may have or simulate."""

_STRINGS = {
    "Ascend910B": r"Ascend910B\d.*",  # without a digit it is a part of Ascend910
    "Ascend910_93": r"Ascend910_93.*",
    "Ascend950": r"Ascend950.*|Ascend910_95.*",
    "Ascend910": r"Ascend910(A|B|Pro.*|Premium.*)?",
    "Ascend310P": r"Ascend310P.*",
    "Ascend310B": r"Ascend310B.*",
    "Ascend310": r"Ascend310",
}


def product_of(soc: str) -> str:
    """The short name of the family of a SoC, as in [src:products]; empty if no family has it."""
    return next((p for p, pattern in _STRINGS.items() if re.fullmatch(pattern, soc)), "")


INTEGERS = (INT8, INT16, INT32, INT64, UINT8)
FRACTIONAL = (*FLOATS, DOUBLE, COMPLEX64, COMPLEX128)
ARITHMETIC = (*FRACTIONAL, *INTEGERS, BOOL)


def on(products: tuple[str, ...], *dtypes: DType) -> Takes:
    """These types on these products."""
    return dict.fromkeys(products, dtypes)


def everywhere(*dtypes: DType) -> Takes:
    """These types on every product, but BF16 only on products with BF16."""
    return {
        **on(WITH_BFLOAT16, *dtypes),
        **on(OLDER, *(each for each in dtypes if each is not BF16)),
    }


FLOATS_EVERYWHERE = everywhere(*FLOATS)
FLOATS_AND_DOUBLE = everywhere(*FLOATS, DOUBLE)
FLOATS_WITH_BFLOAT16 = on(WITH_BFLOAT16, *FLOATS)
"""Only on the products with BF16."""
FLOATS_BUT_ON_310B = {**FLOATS_WITH_BFLOAT16, **on(("Ascend910", "Ascend310P"), FLOAT, FLOAT16)}
ARITHMETIC_EVERYWHERE = everywhere(*ARITHMETIC)

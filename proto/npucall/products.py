"""The Ascend products: which SoC names belong to which [src:products]."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from npucall.errors import ArgumentError


@dataclass(frozen=True)
class Product:
    """A family of SoCs that the operators treat alike."""

    soc: str
    """Short SoC name, as CANN's opbase has it."""
    name: str
    """Name in the documents."""
    pattern: str
    """Regular expression of the SoC strings that ``aclrtGetSocName`` gives for it."""
    bfloat16: bool = False
    """Whether it computes with BF16."""
    near: str = ""
    """Regular expression of more names that we guess to be this product: by the family's name, or
    because CANN's operators treat that family like this one."""

    def __str__(self) -> str:
        return f"{self.soc} ({self.name})"


A2 = Product(
    "Ascend910B",
    "Atlas A2",
    r"Ascend910B(1|2|2C|3|4|4-1)",
    bfloat16=True,
    near=r"Ascend910B[0-9].*",
)
A3 = Product(
    "Ascend910_93",
    "Atlas A3",
    r"Ascend910_93(91|92|81|82|72|62|63)?",
    bfloat16=True,
    near=r"Ascend910_93.*",
)
ASCEND_950 = Product(
    "Ascend950",
    "Ascend 950",
    r"Ascend950((PR|DT)_95[0-9A-Za-z]{2})?|Ascend910_95[0-9A-Za-z]*",
    bfloat16=True,
    # Families of their own, for which CANN's operators take the kernels and rules of this one.
    near=r"Ascend950.*|Ascend910_(55|96).*|Ascend350.*",
)
# Trap: "Ascend910B" without a digit is the old training part, not A2.
ASCEND_910 = Product(
    "Ascend910",
    "Atlas training",
    r"Ascend910(A|B|ProA|ProB|PremiumA)?",
    near=r"Ascend910(Pro|Premium).*",
)
ASCEND_310P = Product("Ascend310P", "Atlas inference", r"Ascend310P[1357]?", near=r"Ascend310P.*")
ASCEND_310B = Product(
    "Ascend310B", "Atlas 200I/500 A2 inference", r"Ascend310B[1-4]?", near=r"Ascend310B.*"
)
ASCEND_310 = Product("Ascend310", "Ascend 310", r"Ascend310")

PRODUCTS = (A2, A3, ASCEND_950, ASCEND_910, ASCEND_310P, ASCEND_310B, ASCEND_310)
DEFAULT_SOC = "Ascend910B1"


def product_of(soc: str) -> Product:
    """The product of a SoC string such as ``Ascend910B1``.

    Raises ArgumentError for a string that belongs to none.
    """
    for product in PRODUCTS:
        if re.fullmatch(product.pattern, soc):
            return product
    known = ", ".join(product.soc for product in PRODUCTS)
    raise ArgumentError(
        f"soc: expected the name of an Ascend SoC such as {DEFAULT_SOC} (families: {known}), "
        f"found {soc!r}",
        parameter="soc",
    )


class NearestProduct(NamedTuple):
    """What the SoC of a host is taken for."""

    product: Product
    guess: str = ""
    """If it is a guess: what we guess, and what the user can do."""


def taken_for(soc: str) -> NearestProduct:
    """The product of a SoC as a host names it, or the nearest there is.

    Raises ArgumentError for a name that is near to none.
    """
    try:
        return NearestProduct(product_of(soc))
    except ArgumentError:
        for product in PRODUCTS:
            if product.near and re.fullmatch(product.near, soc):
                return NearestProduct(product, _guess(soc, product))
        raise


def _guess(soc: str, product: Product) -> str:
    return (
        f"soc: npucall does not know {soc}, and guesses from its family that it is like {product}; "
        "dtypes, rules and numbers may differ: run `npucall conform`, and report the name with "
        "the result"
    )

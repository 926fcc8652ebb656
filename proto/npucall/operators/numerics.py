"""Mathematics that operators share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from npucall.operators.spec import Whole

NONE, MEAN, SUM, BATCHMEAN = range(4)
"""Reduction codes. In a gradient they scale, they do not sum."""

KL_REDUCTIONS = "0 none, 1 mean, 2 sum, 3 batchmean; any other acts as none"


def kl_factor(whole: Whole, reduction: int, space: str) -> np.generic:
    """The factor of a KL gradient: 1 / elements, or 1 / first extent, of the shape ``space``."""
    divisors = {MEAN: whole.count(space), BATCHMEAN: whole.first(space)}
    return whole.reciprocal(divisors.get(reduction, 1))

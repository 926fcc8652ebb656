"""``Difference``: a wrong output and the expected one, in which patterns are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Reals: TypeAlias = NDArray[np.float64]
Kind: TypeAlias = Literal["what", "where"]

NEAR = 2.0**-7
"""Numbers count as the same if they differ by no more than this, relative to their size. That is
the error of rounding to BF16."""
_FEW = 256
"""How many numbers are a sample of many."""
_CHANCE = 0.02
"""A pattern is sure if it is at most this likely among elements that are wrong by chance."""
_MOST = 0.75
"""A pattern that holds for a larger share of all elements is never sure."""


@dataclass(frozen=True)
class Pattern:
    """One thing that holds for all elements that are wrong."""

    kind: Kind
    """What is wrong with them, or where they are."""
    words: str
    key: str
    """The words without the parts that differ from case to case; cases of a cause share it."""
    sure: bool = True
    """Enough elements show it. If not, no element contradicts it."""


@dataclass(frozen=True, eq=False)
class Difference:
    """One output that is wrong. All arrays but inputs have its shape."""

    expected: Reals
    found: Reals
    wrong: NDArray[np.bool_]
    """The elements that are outside the tolerance; there is one at least."""
    inputs: Mapping[str, Reals] = field(default_factory=dict)
    """Tensors as they were sent, whatever their shapes."""
    fraction: int = 23
    """Bits of the fraction in the output's dtype."""

    @cached_property
    def beside(self) -> dict[str, Reals]:
        """The inputs that broadcast to the output, in its shape."""
        shape, there = self.expected.shape, {}
        for name, array in self.inputs.items():
            pairs = zip(array.shape[::-1], shape[::-1], strict=False)
            if array.ndim <= len(shape) and all(a in (1, b) for a, b in pairs):
                there[name] = np.broadcast_to(array, shape)
        return there

    @cached_property
    def should(self) -> Reals:
        """What was expected of the elements that are wrong, in flat order."""
        return self.expected[self.wrong]

    @cached_property
    def was(self) -> Reals:
        """What was found in their place."""
        return self.found[self.wrong]

    @property
    def count(self) -> int:
        """How many elements are wrong."""
        return len(self.should)

    def sure(self, there: Any) -> bool:
        """Whether it is no chance that all wrong elements are among those of this mask."""
        share = float(there.mean())
        return share <= _MOST and share**self.count <= _CHANCE


def near(one: Any, other: Any) -> Any:
    """Where numbers are the same except for rounding; NaN equals NaN, an infinity equals itself."""
    with np.errstate(all="ignore"):
        close = np.isfinite(other) & (np.abs(one - other) <= NEAR * np.abs(other))
    return close | (one == other) | (np.isnan(one) & np.isnan(other))


def alike(one: Any, other: Any) -> bool:
    """Whether all numbers of two flat arrays are near; of many, a few are looked at first."""
    step = max(1, len(one) // _FEW)
    return bool(near(one[::step], other[::step]).all() and near(one, other).all())


def few(numbers: Any) -> Any:
    """Some of many numbers, from everywhere among them."""
    return numbers[:: max(1, len(numbers) // _FEW)]

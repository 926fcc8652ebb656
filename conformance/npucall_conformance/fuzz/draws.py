"""Everything is drawn from small whole numbers, which Hypothesis makes smaller."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")
_MOST = 99
"""Beyond it Hypothesis draws constants of the modules that are imported, and the same seed would
not draw the same in every process."""


class Draws:
    """Draws one thing after the other. Earlier values are simpler, and 0 is the simplest."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, which are at most 99 apart."""
        return low + self._draw(_up_to(high - low))

    def flag(self) -> bool:
        """Yes or no; no is simpler."""
        return bool(self.number(0, 1))

    def seldom(self, among: int) -> bool:
        """Yes once among so many."""
        return self.number(0, among - 1) == among - 1

    def pick(self, values: Sequence[T]) -> T:
        """One of them."""
        if len(values) <= _MOST:
            return values[self.number(0, len(values) - 1)]
        place = self.number(0, (len(values) - 1) // _MOST) * _MOST + self.number(0, _MOST - 1)
        return values[place % len(values)]

    def several(self, most: int, one: Callable[[], T]) -> tuple[T, ...]:
        """Up to so many items."""
        return tuple(one() for _ in range(self.number(0, most)))


def drawn(make: Callable[[Draws], T]) -> SearchStrategy[T]:
    """What a function makes of draws."""

    @st.composite
    def strategy(draw: DrawFn) -> T:
        return make(Draws(draw))

    return strategy()


@cache
def _up_to(most: int) -> SearchStrategy[int]:
    return st.integers(0, most)

"""The cases of a sweep that ``make test`` runs; the others are ``more``, for ``make test-all``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def every_third(values: Iterable[Any], first: int = 0) -> list[Any]:
    """All of them as parameters of a test, of which two in three are more."""
    return [
        pytest.param(value, marks=() if number % 3 == first else pytest.mark.more)
        for number, value in enumerate(values)
    ]


def only(first: Any, *others: Any) -> list[Any]:
    """The first as it is, the others as more."""
    rest = (value if isinstance(value, tuple) else (value,) for value in others)
    return [first, *(pytest.param(*values, marks=pytest.mark.more) for values in rest)]

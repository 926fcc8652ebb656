"""Who runs which cases of a sweep: ``make test``, ``make test-all`` or ``make test-long``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


TURNS: tuple[Any, ...] = ((), pytest.mark.more, pytest.mark.long)
"""What marks a case of ``make test``, of ``make test-all`` and of ``make test-long``."""


def every_third(values: Iterable[Any], first: int = 0) -> list[Any]:
    """All of them as parameters of a test, of which one in three is quick, one more, one long."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=TURNS[(number - first) % 3]
        )
        for number, value in enumerate(values)
    ]


def only(first: Any, *others: Any) -> list[Any]:
    """The first as it is, the others as more."""
    rest = (value if isinstance(value, tuple) else (value,) for value in others)
    return [first, *(pytest.param(*values, marks=pytest.mark.more) for values in rest)]

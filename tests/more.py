"""Who runs which cases of a sweep: ``make test``, ``make test-all`` or ``make test-long``."""

from collections.abc import Iterable
from typing import Any

import pytest

TURNS: tuple[Any, ...] = ((), pytest.mark.more, pytest.mark.long)
"""What marks a case of ``make test``, of ``make test-all`` and of ``make test-long``."""


def every_third(values: Iterable[Any], first: int = 0) -> list[Any]:
    """All of them as parameters of a test: of six in a row two are quick, one more, three long."""
    turns = (0, 1, 2, 0, 2, 2)
    return [
        pytest.param(*_values(value), marks=TURNS[turns[(number - first) % len(turns)]])
        for number, value in enumerate(values)
    ]


def only(first: Any, *others: Any) -> list[Any]:
    """The first as it is, the second one more, the others long."""
    rest = (
        pytest.param(*_values(value), marks=TURNS[min(number, 2)])
        for number, value in enumerate(others, 1)
    )
    return [first, *rest]


def parts(*, few: slice | None = None, more: slice) -> pytest.MarkDecorator:
    """The part of a sweep: few by ``make test``, more by ``make test-all``, all by the long one."""
    taken = zip((few, more, slice(None)), ("few", "more", "all"), TURNS, strict=True)
    return pytest.mark.parametrize(
        "part", [pytest.param(part, id=name, marks=turn) for part, name, turn in taken if part]
    )


def _values(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)

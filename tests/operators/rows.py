"""A test of many rows that is one test: it tries every row, and tells of each that fails."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def each_row(names: str, rows: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """The test's arguments of these names are those of a row; the others are fixtures."""
    listed, every = names.split(), list(rows)

    def decorate(test: Callable[..., None]) -> Any:
        @wraps(test)
        def tries_every_row(**fixtures: Any) -> None:
            failures = []
            for row in every:
                values = row if len(listed) > 1 else (row,)
                given = dict(zip(listed, values, strict=True))
                try:
                    test(**given, **fixtures)
                except Exception as error:  # noqa: BLE001  # all are told at the end
                    error.add_note(f"in the row {given}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(every)} rows", failures)

        own = signature(test)
        rest = [each for each in own.parameters.values() if each.name not in listed]
        tries_every_row.__signature__ = own.replace(parameters=rest)  # type: ignore[attr-defined]
        return tries_every_row

    return decorate

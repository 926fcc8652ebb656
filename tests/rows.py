"""A test of a table of rows: it tries every row, and reports each that fails."""

import inspect
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, but the rows are one test, for which fixtures are made once.

    ``names``: of the test's arguments, apart or with blanks between them. Several of them try every
    combination.
    """
    keys = tuple(names.split()) if isinstance(names, str) else names
    known = [(row,) if names == keys[0] else tuple(row) for row in rows]
    assert known, "expected rows"

    def of_rows(test: Test) -> Test:
        def tries_each(**fixtures: Any) -> None:
            given = [dict(zip(keys, row, strict=True)) for row in known]
            failed = [error for row in given if (error := _failure(test, fixtures, row))]
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(known)} rows", failed)

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in keys]
        vars(tries_each).update(
            __name__=test.__name__,
            __qualname__=test.__qualname__,
            __module__=test.__module__,
            __doc__=test.__doc__,
            __signature__=signature.replace(parameters=left),
            pytestmark=getattr(test, "pytestmark", []),
        )
        return tries_each

    return of_rows


def _failure(test: Test, fixtures: dict[str, Any], row: dict[str, Any]) -> BaseException | None:
    try:
        test(**fixtures, **row)
    except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:  # noqa: BLE001
        error.add_note("row: " + ", ".join(f"{k}={reprlib.repr(v)}" for k, v in row.items()))
        return error
    return None

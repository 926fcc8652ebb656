"""Gives back everything that was taken, in reverse order, even if a step fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self


class Cleanup:
    """Steps that run when a ``with`` block ends or ``close`` is called, the last one first.

    It works like ``contextlib.ExitStack``, but raises the first error: the one of the block, or
    else the first one of the steps.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise

    def callback(self, step: Callable[..., object], *arguments: object) -> None:
        """Adds a step."""
        self._steps.append(partial(step, *arguments))

    def pop_all(self) -> Cleanup:
        """Moves the steps so far to a new Cleanup: the end of this block does not run them."""
        taken = Cleanup()
        taken._steps, self._steps = self._steps, []
        return taken

    def close(self) -> None:
        """Runs the steps; raises the first failure when all have been tried."""
        first: Exception | None = None
        while self._steps:
            try:
                self._steps.pop()()
            except Exception as error:  # noqa: BLE001  # the other steps must run too
                first = first or error
        if first is not None:
            raise first

"""Turns without end, counted."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counted:
    """Gives as many turns as anybody wants."""

    def __init__(self) -> None:
        self.taken = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.taken += 1
        yield

    def spare(self) -> Any:
        return self()

    def pause(self) -> None:
        pass

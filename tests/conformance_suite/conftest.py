"""Fixtures of several modules of this folder."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from npucall_conformance.fuzz import search

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """The clock of a search for random calls: a second passes with every 50 looks at it."""
    looks = count()

    def now() -> float:
        return next(looks) / 50

    monkeypatch.setattr(search, "monotonic", now)
    return now

"""Fixtures of several modules of this folder."""

from collections.abc import Callable
from itertools import count

import pytest

from npucall_conformance.running import search


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """The clock of a search for random calls: a second passes with every 50 looks at it."""
    looks = count()

    def now() -> float:
        return next(looks) / 50

    monkeypatch.setattr(search, "monotonic", now)
    return now

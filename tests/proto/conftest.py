"""Hypothesis for the contract: no deadlines, since tests do not judge time. Threads that help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from npucall.compute.helpers import Helpers

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    """Three threads, which are idle."""
    pool = Helpers(3)
    yield pool
    pool.close()

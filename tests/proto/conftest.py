"""Hypothesis for the contract: no deadlines, since tests do not judge time. Threads that help."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from npucall.compute.helpers import Helpers

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    """Three threads, which are idle."""
    pool = Helpers(3)
    yield pool
    pool.close()

"""Where the tests with a real Ray can run."""

import pytest
from tests.pool.hosts import need

from .units import RAY


@pytest.fixture(scope="session")
def can_have_hosts() -> None:
    """Skips where there can be none; in CI that is a failure."""
    need("iproute2; Ray, by make ray", str(RAY / "bin/ray"))

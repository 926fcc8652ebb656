"""Fixtures of the tests with a real Ray, which takes half a minute to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pool.hosts import need

from .ray_pool import RayPool, ray_pool
from .units import RAY

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def can_have_hosts() -> None:
    """Skips where there can be none; in CI that is a failure."""
    need("iproute2; Ray, by make ray", str(RAY / "bin/ray"))


@pytest.fixture(scope="module")
def pool(can_have_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayPool]:
    """Two hosts of two devices each, and a head; a server on each device."""
    with ray_pool(tmp_path_factory.mktemp("ray")) as made:
        made.up()
        yield made


@pytest.fixture
def whole_pool(pool: RayPool) -> RayPool:
    """The same, every server at work."""
    pool.wait_for_all()
    return pool

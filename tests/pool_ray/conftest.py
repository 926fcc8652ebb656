"""Fixtures of the tests with a real Ray, which takes half a minute to start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.pool.hosts import missing

from .ray_pool import RayPool, ray_pool
from .units import RAY

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def can_have_hosts() -> None:
    """Skips where there can be none; in CI that is a failure."""
    reason = missing("iproute2")
    if not reason and not (RAY / "bin/ray").exists():
        reason = "ray: expected it in .venv-ray, found none: make ray"
    if reason:
        assert "CI" not in os.environ, reason
        pytest.skip(reason)


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

"""Three cpu servers of a compose file behind one name: nobody loses a call."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from .compose import Calls, calls_from_here, server_process, servers
from .needs import ROOT, TOOLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .podman import Podman

pytestmark = pytest.mark.containers
POOL = ROOT / "deploy" / "compose.pool.yml"
NETWORK = "npucall-pool_default"
UNDER_LOAD = 3.0
"""Seconds of calls before and after something happens."""


@pytest.fixture(scope="module")
def pool(podman: Podman, cpu_image: str) -> Iterator[list[str]]:
    """The names of three healthy containers."""
    podman.compose(POOL, "up", "--detach")
    try:
        names = servers(podman, "npucall-pool")
        assert len(names) == 3
        podman.wait_healthy(*names)
        yield names
    finally:
        podman.compose(POOL, "down")


def test_nobody_loses_a_call_when_one_of_three_servers_is_killed(
    podman: Podman, pool: list[str]
) -> None:
    target = "pool:" + ",".join(f"{podman.address(name)}:50051" for name in pool)
    with calls_from_here(podman, target) as calls:
        time.sleep(UNDER_LOAD)
        os.kill(server_process(podman, pool[0]), signal.SIGKILL)
        time.sleep(UNDER_LOAD)
        calls.stop().lost_nothing()
    podman.wait_healthy(*pool)  # restarted by the engine

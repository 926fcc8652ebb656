"""Three cpu servers of a compose file behind one name: nobody loses a call."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from .engines import ROOT, Podman

pytestmark = pytest.mark.containers
POOL = ROOT / "deploy" / "compose.pool.yml"
DIRECTORY = ROOT / "deploy" / "compose.directory.yml"
NETWORK = "npucall-pool_default"
UNDER_LOAD = 3.0
"""Seconds of calls before and after something happens."""


@pytest.fixture(scope="module")
def pool(podman: Podman, cpu_image: str) -> Iterator[list[str]]:
    """The names of three healthy containers."""
    podman.compose(POOL, "up", "--detach")
    try:
        names = podman.servers("npucall-pool")
        assert len(names) == 3
        podman.wait_healthy(*names)
        yield names
    finally:
        podman.compose(POOL, "down")


def test_nobody_loses_a_call_when_one_of_three_servers_is_killed(
    podman: Podman, pool: list[str]
) -> None:
    target = "pool:" + ",".join(f"{podman.address(name)}:50051" for name in pool)
    with podman.calls_from_here(target) as calls:
        time.sleep(UNDER_LOAD)
        os.kill(podman.server_process(pool[0]), signal.SIGKILL)
        time.sleep(UNDER_LOAD)
        calls.stop().check()
    podman.wait_healthy(*pool)  # restarted by the engine


@pytest.mark.long
def test_nobody_loses_a_call_through_the_name_while_one_is_killed_and_all_are_rolled(
    podman: Podman, pool: list[str], client_image: str
) -> None:
    with podman.calls_in_a_container(NETWORK, "pool:dns:cpu:50051") as calls:
        time.sleep(UNDER_LOAD)
        os.kill(podman.server_process(pool[0]), signal.SIGKILL)
        podman.wait_healthy(*pool)
        for name in pool:
            podman("restart", "--time=45", name)
            podman.wait_healthy(name)
            time.sleep(UNDER_LOAD)
        calls.stop().check()


@pytest.mark.long
def test_nobody_loses_a_call_through_the_directory_while_it_restarts_and_a_server_is_killed(
    podman: Podman, cpu_image: str
) -> None:
    podman.compose(DIRECTORY, "up", "--detach")
    try:
        names = podman.servers("npucall-directory")
        assert len(names) == 4
        podman.wait_healthy(*names)
        directory = next(name for name in names if "_directory_" in name)
        with podman.calls_from_here("pool:directory:127.0.0.1:50050") as calls:
            time.sleep(UNDER_LOAD)
            podman("restart", "--time=45", directory)
            os.kill(podman.server_process(names[0]), signal.SIGKILL)
            time.sleep(UNDER_LOAD)
            podman.wait_healthy(*names)
            calls.stop().check()
    finally:
        podman.compose(DIRECTORY, "down")

"""What a user of a pool on Ray sees of its faults: nothing. Every answer is compared.

``make test-long``; see docs/ray.md for what each fault is, docs/measurements.md for figures.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.pool.callers import calling
from tests.pool.hosts import until

from .ray_pool import START_SECONDS, alive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.pool.hosts import Host

    from .ray_pool import RayPool

pytestmark = pytest.mark.long


@contextmanager
def unharmed(pool: RayPool, fault: str) -> Iterator[None]:
    """A user's calls while something happens: all answers right, no errors."""
    with calling(pool.head.switch.command(), pool.target, "--threads=3") as calls:
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        seen = calls.stop()
    print(f"{fault}: {took:.1f} s")
    seen.check()


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def servers(host: Host) -> list[int]:
    return host.pids("npucall-server", "serve")


def test_a_killed_server_is_started_again(whole_pool: RayPool) -> None:
    host = whole_pool.workers[0]
    with unharmed(whole_pool, "kill -9 server"):
        kill(servers(host)[:1])
        until(lambda: _starts(whole_pool) == 1, "Ray's keeper tells of another start")
        whole_pool.wait_for_all()


def test_a_server_dies_with_its_keeper_and_both_come_back_on_their_host(
    whole_pool: RayPool,
) -> None:
    host = whole_pool.workers[1]
    before = servers(host)
    with unharmed(whole_pool, "kill -9 keeper"):
        kill(host.pids("ray::KeeperActor")[:1])
        until(lambda: len(set(servers(host)) & set(before)) == 1, "its server is dead")
        until(lambda: len(servers(host)) == 2, "another one runs on the host")
        whole_pool.wait_for_all()


def test_a_killed_directory_comes_back_and_nobody_misses_it(whole_pool: RayPool) -> None:
    with unharmed(whole_pool, "kill -9 directory actor"):
        before = whole_pool.head.pids("npucall-directory")
        kill(whole_pool.head.pids("ray::KeeperActor"))
        until(lambda: whole_pool.head.pids("npucall-directory") not in ([], before), "another one")
        whole_pool.wait_for_all()


def test_a_killed_raylet_takes_its_servers_along_and_systemd_brings_all_back(
    whole_pool: RayPool,
) -> None:
    host = whole_pool.workers[0]
    before = servers(host)
    with unharmed(whole_pool, "kill -9 raylet"):
        kill(host.pids("raylet/raylet", "--raylet_socket_name"))
        until(lambda: not set(servers(host)) & set(before), "its servers are dead")
        until(lambda: len(servers(host)) == 2, "its devices have servers again")
        whole_pool.wait_for_all()


def test_a_drained_host_gives_its_devices_to_others_once_its_servers_have_ended(
    whole_pool: RayPool,
) -> None:
    host = whole_pool.workers[0]
    with unharmed(whole_pool, "drain, another job, up"):
        assert whole_pool.pool("drain", host.name).stdout.count(": ended\n") == 2
        assert servers(host) == []
        assert whole_pool.run_job(host, devices=2) == f"job on {host.name}"
        whole_pool.up("--host", host.address)
        whole_pool.wait_for_all()


def test_a_host_that_was_cut_off_for_90_s_comes_back(whole_pool: RayPool) -> None:
    host = whole_pool.workers[1]
    with unharmed(whole_pool, "link cut for 90 s"):
        with host.cut():
            time.sleep(90)
        whole_pool.wait_for_all()


def test_the_head_may_be_away_for_100_s(whole_pool: RayPool) -> None:
    """Raylets give up a head after 60 s, unless the units raise that time."""
    before = {host.name: servers(host) for host in whole_pool.workers}
    with unharmed(whole_pool, "head killed for 100 s"):
        whole_pool.stop_ray(whole_pool.head)
        time.sleep(100)
        assert {host.name: servers(host) for host in whole_pool.workers} == before


def test_a_head_that_comes_back_without_memory_needs_up_once_more(pool: RayPool) -> None:
    """The last one here: it begins with the pool whose head the test before has killed."""
    pool.start_ray(pool.head)
    until(lambda: alive(pool) == 3, "Ray knows all hosts again", START_SECONDS)
    pool.up()
    pool.wait_for_all()


def _starts(pool: RayPool) -> int:
    """Servers that have been started twice."""
    return sum(row["starts"] > 1 for row in pool.status().values())

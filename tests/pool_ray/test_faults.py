"""What a user of a pool on Ray sees of its faults: nothing. Every answer is compared.

``make test-long``; see docs/ray.md for what each fault is, docs/measurements.md for figures.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.pool.callers import calling
from tests.pool.hosts import OWN, Host, hosts, until
from tests.summary import figures

from .units import RAY, Unit

pytestmark = pytest.mark.long
RAYS_FOLDER = "/tmp/ray"
FOLDER = f"{RAYS_FOLDER}/npucall"
"""Of locks and logs; each host has its own /tmp/ray."""
DEVICES = 2
START_SECONDS = 400.0
"""Of Ray on all hosts, on a machine with much else to do."""
_RAY_OPTIONS = "--num-cpus=2 --object-store-memory=78643200"
_DEVICES_OF_A_HOST = f""" --resources='{{"NPU": {DEVICES}}}'"""
_SERVERS = Path(sys.prefix)
"""The environment of these tests is the servers' too."""
# The first process of a host: a folder for Ray that is the host's own, then it buries the dead.
_FIRST = f"""
import os, socket, subprocess, sys, time
socket.sethostname(sys.argv[1])
for folder in "{RAYS_FOLDER}", "/dev/shm":
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
print("up", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""


class RayPool(NamedTuple):
    """Hosts of a Ray cluster, and what runs on them."""

    head: Host
    workers: tuple[Host, ...]
    units: dict[str, subprocess.Popen[bytes]]
    folder: Path

    @property
    def target(self) -> str:
        return f"pool:directory:{self.head.address}:50050"

    def pool(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs ``npucall-pool`` on the head."""
        return self.head.run(str(RAY / "bin/npucall-pool"), *arguments, check=check)

    def up(self, *arguments: str) -> None:
        file = self.folder / "pool.toml"
        file.write_text(
            f'environment = "{_SERVERS}"\nfolder = "{FOLDER}"\n'
            "directory.settings.insecure_bind = true\n"
            '[settings]\ninsecure_bind = true\nlog_calls = "errors"\nmemory_limit = "256MiB"\n'
            '[[servers]]\ndevice = "cpu"\nresource = "NPU"\n'
        )
        self.pool("up", str(file), *arguments)

    def status(self) -> list[dict[str, Any]]:
        """A row for each server, as ``npucall-pool status`` shows it."""
        done = self.pool("status", "--json", check=False)
        assert done.stdout, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def all_serve(self) -> bool:
        rows = self.status()
        servers = [row for row in rows if row["server"] != "directory"]
        return len(servers) == DEVICES * len(self.workers) and all(
            row["state"] == "serving" for row in rows
        )

    def wait_for_all(self) -> None:
        until(self.all_serve, "all servers serve")

    def run_ray(self, script: str) -> str:
        """The last line of a Python program that uses Ray, on the head; empty if it failed."""
        begin = "import ray; ray.init('auto', log_to_driver=False, logging_level='ERROR')\n"
        done = self.head.run(str(RAY / "bin/python"), "-c", begin + script, check=False)
        lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
        return lines[-1] if lines else ""

    def run_job(self, host: Host, devices: int) -> str:
        """What another user of Ray gets, who wants devices of that host."""
        return self.run_ray(
            "import socket\n"
            f"@ray.remote(resources={{'NPU': {devices}, 'node:{host.address}': 0.001}})\n"
            "def job(): return 'job on ' + socket.gethostname()\n"
            "print(ray.get(job.remote(), timeout=60))"
        )

    def start_ray(self, host: Host) -> None:
        """Starts the host's unit."""
        name, devices = ("head", "") if host is self.head else ("worker", _DEVICES_OF_A_HOST)
        given = {"NODE_ADDRESS": host.address, "HEAD_ADDRESS": self.head.address}
        given["RAY_OPTIONS"] = _RAY_OPTIONS + devices
        unit = Unit.read(f"ray-{name}.service", given)
        self.units[host.name] = unit.start(host, self.folder / f"{host.name}.log")

    def stop_ray(self, host: Host) -> None:
        """Ends all that runs on the host at once, as losing power does, and its unit with it."""
        unit = self.units.pop(host.name)
        unit.kill()
        unit.wait()
        for pid in host.pids():
            os.kill(pid, signal.SIGKILL)


@contextmanager
def ray_pool(folder: Path) -> Iterator[RayPool]:
    """Ray on a head and workers, all alive; no pool yet."""
    names = ("ray-head", "ray-work-1", "ray-work-2")
    Path(RAYS_FOLDER).mkdir(exist_ok=True)
    with hosts(*names, kinds=OWN, first=(sys.executable, "-I", "-c", _FIRST)) as standing:
        head, *others = standing.values()
        made = RayPool(head, tuple(others), {}, folder)
        try:
            made.start_ray(head)
            until(lambda: alive(made) == 1, "Ray has a head", START_SECONDS)
            for host in others:
                made.start_ray(host)
            until(lambda: alive(made) == len(names), "Ray knows all hosts", START_SECONDS)
            yield made
        finally:
            for unit in made.units.values():
                unit.kill()
                unit.wait()


def alive(made: RayPool) -> int:
    """Hosts that Ray says are alive; 0 where it does not answer."""
    said = made.run_ray("print(sum(node['Alive'] for node in ray.nodes()))")
    return int(said) if said.isdigit() else 0


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


@contextmanager
def unharmed(pool: RayPool, fault: str) -> Iterator[None]:
    """A user's calls while something happens: all answers right, no errors."""
    with calling(pool.head.switch.command(), pool.target, "--threads=3") as calls:
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        seen = calls.stop()
    figures(f"{fault}: {took:.1f} s")
    seen.check()


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def servers(host: Host) -> list[int]:
    return host.pids("npucall-server", "serve")


def test_a_killed_server_is_started_again(whole_pool: RayPool) -> None:
    host = whole_pool.workers[0]
    before = _starts(whole_pool)
    with unharmed(whole_pool, "kill -9 server"):
        kill(servers(host)[:1])
        until(lambda: _starts(whole_pool) > before, "Ray's keeper tells of another start")
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


def test_the_head_may_be_away_for_100_s_and_without_memory_needs_up_once_more(
    whole_pool: RayPool,
) -> None:
    """Raylets give up a head after 60 s, unless the units raise that time."""
    before = {host.name: servers(host) for host in whole_pool.workers}
    with unharmed(whole_pool, "head killed for 100 s"):
        whole_pool.stop_ray(whole_pool.head)
        time.sleep(100)
        assert {host.name: servers(host) for host in whole_pool.workers} == before
    whole_pool.start_ray(whole_pool.head)
    until(lambda: alive(whole_pool) == 3, "Ray knows all hosts again", START_SECONDS)
    whole_pool.up()
    whole_pool.wait_for_all()


def _starts(pool: RayPool) -> int:
    """How often servers have been started."""
    return sum(row["starts"] for row in pool.status())

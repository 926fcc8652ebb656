"""A pool on Ray: a head and hosts of two devices each, in namespaces of this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.pool.hosts import OWN, Host, hosts, until

from .units import RAY, Unit

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

RAYS_FOLDER = "/tmp/ray"
FOLDER = f"{RAYS_FOLDER}/npucall"
"""Of locks and logs; each host has its own /tmp/ray."""
DEVICES = 2
START_SECONDS = 400.0
"""Of Ray on all hosts, on a machine with much else to do."""
_RAY_OPTIONS = "--num-cpus=2 --object-store-memory=78643200"
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

    def pool(
        self, *arguments: str, host: Host | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``npucall-pool`` on a host, the head unless told otherwise."""
        command = (str(RAY / "bin/npucall-pool"), *arguments)
        return (host or self.head).run(*command, check=check)

    def up(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.pool(
            "up", f"--environment={_SERVERS}", "--device=cpu", f"--folder={FOLDER}",
            "--server-option=insecure-bind", "--server-option=log-calls=errors",
            "--server-option=memory-limit=256MiB", "--directory-option=insecure-bind",
            *arguments, check=check,
        )  # fmt: skip

    def status(self) -> dict[str, dict[str, Any]]:
        """Of each server by its name, as ``npucall-pool status`` shows it."""
        done = self.pool("status", "--json", check=False)
        assert done.stdout, done.stderr
        return {row["server"]: row for row in json.loads(done.stdout)}

    def all_serve(self) -> bool:
        rows = self.status().values()
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

    def start_ray(self, host: Host, **variables: str) -> None:
        """Starts the host's unit."""
        options = _RAY_OPTIONS
        is_head = host is self.head
        if not is_head:
            options += f""" --resources='{{"NPU": {DEVICES}}}'"""
        unit = Unit.read(
            "ray-head.service" if is_head else "ray-worker.service",
            {
                "NODE_ADDRESS": host.address,
                "HEAD_ADDRESS": self.head.address,
                "RAY_OPTIONS": options,
                **variables,
            },
        )
        self.units[host.name] = unit.start(host, self.folder / f"{host.name}.log")

    def stop_ray(self, host: Host) -> None:
        """Ends all that runs on the host at once, as losing power does, and its unit with it."""
        unit = self.units.pop(host.name)
        unit.kill()
        unit.wait()
        for pid in host.pids():
            os.kill(pid, signal.SIGKILL)


@contextmanager
def ray_pool(folder: Path, workers: int = 2, **variables: str) -> Iterator[RayPool]:
    """Ray on a head and workers, all alive; no pool yet."""
    names = ("ray-head", *(f"ray-work-{number}" for number in range(1, workers + 1)))
    Path(RAYS_FOLDER).mkdir(exist_ok=True)
    with hosts(*names, kinds=OWN, first=(sys.executable, "-I", "-c", _FIRST)) as standing:
        head, *others = standing.values()
        made = RayPool(head, tuple(others), {}, folder)
        try:
            made.start_ray(head, **variables)
            until(lambda: alive(made) == 1, "Ray has a head", START_SECONDS)
            for host in others:
                made.start_ray(host, **variables)
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

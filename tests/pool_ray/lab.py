"""A pool on Ray: a head and hosts of two devices each, in namespaces of this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .hosts import Host, Site, site, until
from .units import RAY, Unit

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

FOLDER = "/tmp/ray/npucall"
"""Of locks and logs; each host has its own /tmp/ray."""
DEVICES = 2
START_SECONDS = 400.0
"""Of Ray on all hosts, on a machine with much else to do."""
_RAY_OPTIONS = "--num-cpus=2 --object-store-memory=78643200"
_SERVERS = Path(sys.prefix)
"""The environment of these tests is the servers' too."""


class Lab(NamedTuple):
    site: Site
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
        self.units.pop(host.name).kill()
        for pid in host.pids():
            os.kill(pid, signal.SIGKILL)


@contextmanager
def lab(folder: Path, workers: int = 2, **variables: str) -> Iterator[Lab]:
    """Ray on a head and workers, all alive; no pool yet."""
    names = ("ray-head", *(f"ray-work-{number}" for number in range(1, workers + 1)))
    with site(*names) as standing:
        head, *others = standing.hosts
        made = Lab(standing, head, tuple(others), {}, folder)
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


def alive(made: Lab) -> int:
    """Hosts that Ray says are alive; 0 where it does not answer."""
    said = made.run_ray("print(sum(node['Alive'] for node in ray.nodes()))")
    return int(said) if said.isdigit() else 0

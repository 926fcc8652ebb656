"""The servers that the job script has started on a cluster, and clients of them."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pool.callers import calling
from tests.pool.hosts import until
from tests.pool_slurm.cluster import CONTROLLER

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.pool.callers import Calls
    from tests.pool_slurm.cluster import Cluster

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy/slurm/npucall.sbatch"
SOC = "Ascend910B1"


@dataclass
class Pool:
    """Jobs of a cluster."""

    cluster: Cluster
    toolkit: Path

    @property
    def shared(self) -> Path:
        """The folder of ready files."""
        return self.cluster.folder / "shared"

    def ready(self) -> set[str]:
        """The names of the servers that are ready."""
        return {each.name for each in self.shared.iterdir() if not each.name.endswith(".part")}

    def submit(self, *options: str, flags: tuple[str, ...] = (), **variables: str) -> str:
        """Submits the job script. Answers the job's number."""
        told = self.cluster.call(
            "sbatch",
            *("--parsable", *options, str(SCRIPT), str(self.shared), *flags),
            VIRTUAL_ENV=sys.prefix,
            CANN_SET_ENV=str(self.toolkit),
            NPUCALL_INSECURE_BIND="true",
            NPUCALL_MEMORY_LIMIT="512MiB",
            NPUCALL_SIM_SOC=SOC,
            **variables,
        )
        return told.strip()

    def wait_for(self, *names: str) -> float:
        """Until just these servers are ready. Answers the seconds that took."""
        return until(lambda: self.ready() == set(names), f"{names}, {self.ready()}, {self.said()}")

    def cancel(self, *jobs: str) -> None:
        """Cancels jobs, all if none is named, and waits until they have ended."""
        named = jobs or ("--user=root",)
        self.cluster.call("scancel", *named)
        until(lambda: not self.cluster.jobs(*jobs), f"{jobs} end: {self.said()}")

    def said(self) -> str:
        """The ends of the jobs' logs."""
        logs = self.cluster.folder.glob("npucall-*.log")
        return "".join(f"\n{log.name}: {log.read_text()[-400:]}" for log in logs)

    def log(self, job: str) -> str:
        """What a job has said."""
        return (self.cluster.folder / f"npucall-{job}.log").read_text()

    def server(self, name: str) -> int:
        """The number of the process of a server, by the name of its ready file."""
        (found,) = self.servers(name)
        return found

    def servers(self, name: str) -> list[int]:
        """The numbers of all server processes that have a ready file, also a forgotten one's."""
        wanted = b"--ready-file\0" + bytes(self.shared / name) + b"\0"
        return [
            int(process.parent.name)
            for process in Path("/proc").glob("[0-9]*/cmdline")
            if wanted in _content(process)
        ]

    def kill(self, name: str) -> None:
        """Kills a server as the kernel does when memory runs out."""
        os.kill(self.server(name), signal.SIGKILL)

    def calls(self, **variables: str) -> AbstractContextManager[Calls]:
        """Callers of ``pool:file:`` on the controller's host; whom they call the variables say."""
        environment = {**os.environ, "NPUCALL_TARGET": f"pool:file:{self.shared}", **variables}
        options = "--threads=3", "--sizes", *["4096"] * 3, str(2_400_000)  # the last one in chunks
        return calling(self.cluster.inside(CONTROLLER), *options, environment=environment)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""

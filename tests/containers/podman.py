"""podman with storage and configuration of its own, its containers in a namespace of network."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .needs import FOLDER, ROOT, TOOLS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFINED = (
    "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp:size=256m",
    "--pids-limit=4096", "--init",
)  # fmt: skip
"""As docker-compose.yml has them, which is run too."""

# Limits that a root without CAP_SYS_RESOURCE may give; a runtime for control groups of either
# version; nothing of systemd, which need not run.
_CONTAINERS = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_config_dir = "{folder}/networks"
default_subnet_pools = [{{"base" = "198.18.64.0/18", "size" = 24}}]
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""


class Podman:
    """Commands of podman; what runs containers is in the namespace that ``enter`` leads to."""

    def __init__(self, enter: list[str], folder: Path = FOLDER) -> None:
        self.enter = enter
        (folder / "networks").mkdir(parents=True, exist_ok=True)
        files = {"CONTAINERS_CONF": _CONTAINERS, "CONTAINERS_STORAGE_CONF": _STORAGE}
        self.environment = dict(os.environ)
        for variable, text in files.items():
            path = folder / f"{variable.lower()}.conf"
            path.write_text(text.format(folder=folder))
            self.environment[variable] = str(path)

    def on_host(self, *arguments: str | Path) -> str:
        """In the host's network: to build, which needs an index of packages."""
        return self._run(["podman", *map(str, arguments)])

    def __call__(self, *arguments: str | Path) -> str:
        """In the namespace, as all that follows; the output."""
        return self._run([*self.enter, "podman", *map(str, arguments)])

    def compose(self, file: Path, *arguments: str) -> str:
        """podman-compose of these tests' environment."""
        return self._run([*self.enter, str(TOOLS / "podman-compose"), f"--file={file}", *arguments])

    def succeeds(self, *arguments: str) -> bool:
        """Whether it ends with 0."""
        command = [*self.enter, "podman", *arguments]
        return self._process(command).returncode == 0

    @contextmanager
    def container(self, image: str, *options: str, command: tuple[str, ...] = ()) -> Iterator[str]:
        """A confined container that runs in the background; its name."""
        name = self("run", "--detach", *CONFINED, *options, image, *command).strip()
        try:
            yield name
        finally:
            self("rm", "--force", "--time=5", name)

    def wait_healthy(self, *containers: str, seconds: float = 120) -> None:
        """Until the health check of each says 0; there is no systemd that would ask by itself."""
        end = time.monotonic() + seconds
        for name in containers:
            while not self.succeeds("healthcheck", "run", name):
                assert time.monotonic() < end, f"{name} is not healthy: {self('logs', name)}"
                time.sleep(0.2)

    def address(self, container: str) -> str:
        """Its address in the network that it is in."""
        (found,) = json.loads(self("inspect", container))
        (network,) = found["NetworkSettings"]["Networks"].values()
        address: str = network["IPAddress"]
        return address

    def size(self, image: str) -> int:
        """Bytes of all layers of it."""
        return int(self("image", "inspect", "--format={{.Size}}", image))

    def _run(self, command: list[str]) -> str:
        done = self._process(command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    def _process(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )

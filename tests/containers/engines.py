"""podman and what it has in common with docker, their containers in a namespace of network."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.pool.callers import LOAD, Calls, calling
from tests.pool.hosts import namespace

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
FOLDER = ROOT / "build" / "containers"
"""Kept between runs: the base image, and what podman has built."""
CLIENT = "localhost/npucall-client"
PATIENCE = 600
PODMAN = (
    "catatonit iproute2 iptables mmdebstrap podman runc aardvark-dns netavark", "catatonit",
    "iptables", "mmdebstrap", "podman", "runc", "/usr/lib/podman/aardvark-dns",
    "/usr/lib/podman/netavark",
)  # fmt: skip
"""Debian's packages, and the programs that they have."""
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


@contextmanager
def own_network() -> Iterator[list[str]]:
    """A namespace of network without a way out; yields what a command in it begins with."""
    with namespace() as made:
        made.run("ip", "link", "set", "lo", "up")
        yield list(made.enter)


class Engine:
    """Commands of an engine. Its daemon or its containers are where ``enter`` leads to."""

    def __init__(
        self, enter: list[str], environment: Mapping[str, str], *commands: list[str]
    ) -> None:
        self.enter, self.environment = enter, environment
        self.command, self.compose_command = commands

    def __call__(self, *arguments: str | Path) -> str:
        """What it says on its standard output."""
        return self.said([*self.command, *map(str, arguments)])

    def compose(self, file: Path, *arguments: str) -> str:
        return self.said([*self.compose_command, f"--file={file}", *arguments])

    def said(self, command: list[str]) -> str:
        done = self.process(command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    def process(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )

    def is_healthy(self, container: str) -> bool:
        raise NotImplementedError

    def wait_healthy(self, *containers: str) -> None:
        end = time.monotonic() + PATIENCE
        for name in containers:
            while not self.is_healthy(name):
                assert time.monotonic() < end, f"{name} is not healthy: {self.logs(name)}"
                time.sleep(0.2)

    def logs(self, container: str) -> str:
        """Of both its outputs."""
        done = self.process([*self.command, "logs", container])
        return done.stdout + done.stderr

    def facts(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("inspect", container))[0]
        return found

    def server_process(self, container: str) -> int:
        """The process of the server, which is a child of the init that compose asks for."""
        init = self.facts(container)["State"]["Pid"]
        (child,) = Path(f"/proc/{init}/task/{init}/children").read_text().split()
        return int(child)

    def servers(self, project: str) -> list[str]:
        """The containers of a project that say how healthy they are, in the order of names."""
        label = f"--filter=label=com.docker.compose.project={project}"
        names = sorted(self("ps", label, "--format={{.Names}}").split())
        return [name for name in names if self.facts(name)["Config"].get("Healthcheck")]

    def calls_from_here(self, target: str) -> AbstractContextManager[Calls]:
        """Callers in the namespace of the engine, with the client of this environment."""
        return calling(self.enter, target)

    @contextmanager
    def calls_in_a_container(self, network: str, target: str) -> Iterator[Calls]:
        """Callers in a container of that network, where names are known."""
        mount = f"--volume={LOAD}:/load.py:ro"
        python = "--entrypoint=/opt/npucall/bin/python"
        options = "--detach", f"--network={network}", "--init", mount, python
        name = self("run", *options, CLIENT, "/load.py", target).splitlines()[-1]

        def stop() -> str:
            self("stop", "--time=60", name)
            return self("logs", name)

        try:
            end = time.monotonic() + PATIENCE
            while "calls" not in self.logs(name):
                assert time.monotonic() < end, self.logs(name)
                time.sleep(0.2)
            yield Calls(stop)
        finally:
            self("rm", "--force", name)


class Podman(Engine):
    """podman with storage and configuration of its own."""

    def __init__(self, enter: list[str]) -> None:
        environment = dict(os.environ)
        (FOLDER / "networks").mkdir(parents=True, exist_ok=True)
        for variable, text in ("CONF", _CONTAINERS), ("STORAGE_CONF", _STORAGE):
            path = FOLDER / f"containers_{variable.lower()}.conf"
            path.write_text(text.format(folder=FOLDER))
            environment[f"CONTAINERS_{variable}"] = str(path)
        compose = [*enter, str(TOOLS / "podman-compose")]
        super().__init__(enter, environment, [*enter, "podman"], compose)

    def on_host(self, *arguments: str | Path) -> str:
        """In the host's network: to build, which needs an index of packages."""
        return self.said(["podman", *map(str, arguments)])

    def succeeds(self, *arguments: str) -> bool:
        return self.process([*self.command, *arguments]).returncode == 0

    def is_healthy(self, container: str) -> bool:
        """By its health check, which this runs: there is no systemd that would."""
        return self.succeeds("healthcheck", "run", container)

    def wait_serving(self, container: str, port: int) -> None:
        """Until its health service says so at a port, as Kubernetes asks it."""
        end = time.monotonic() + PATIENCE
        ask = "exec", container, "npucall-server", "health", f"127.0.0.1:{port}"
        while not self.succeeds(*ask):
            assert time.monotonic() < end, f"{container} does not serve: {self.logs(container)}"
            time.sleep(0.2)

    @contextmanager
    def container(self, image: str, *options: str, command: tuple[str, ...] = ()) -> Iterator[str]:
        """A confined container that runs in the background; its name."""
        name = self("run", "--detach", *CONFINED, *options, image, *command).strip()
        try:
            yield name
        finally:
            self("rm", "--force", "--time=5", name)

    def address(self, container: str) -> str:
        """Its address in the network that it is in."""
        (network,) = self.facts(container)["NetworkSettings"]["Networks"].values()
        address: str = network["IPAddress"]
        return address

    def size(self, image: str) -> int:
        """Bytes of all layers of it."""
        return int(self("image", "inspect", "--format={{.Size}}", image))

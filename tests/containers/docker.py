"""A real dockerd with folders of its own, in a namespace of network without a way out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .needs import FOLDER, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .podman import Podman

BRIDGE = "198.18.128.1"
_CONFIGURATION = {
    # Limits that a root without CAP_SYS_RESOURCE may give.
    "default-ulimits": {
        name: {"Name": name, "Soft": number, "Hard": number}
        for name, number in {"nofile": 4096, "nproc": 32768}.items()
    },
    "bip": f"{BRIDGE}/24",
    "default-address-pools": [{"base": "198.18.192.0/18", "size": 24}],
}


class Docker:
    """Commands of docker and docker-compose, those of Debian, sent to the daemon of these tests."""

    def __init__(self, enter: list[str], socket: Path) -> None:
        self.enter = enter
        self._environment = {
            "PATH": "/usr/bin:/usr/sbin:/bin",
            "HOME": str(socket.parent),
            "DOCKER_HOST": f"unix://{socket}",
            "DOCKER_BUILDKIT": "1",
        }

    def __call__(self, *arguments: str) -> str:
        return self._run("/usr/bin/docker", *arguments)

    def compose(self, file: Path, *arguments: str) -> str:
        """docker-compose 1.29, the oldest that people have."""
        return self._run("/usr/bin/docker-compose", f"--file={file}", *arguments)

    def take(self, podman: Podman, *images: str) -> None:
        """Gives it images of podman's, as they come to a host without a registry."""
        archive = FOLDER / "images.tar"
        archive.unlink(missing_ok=True)
        podman.on_host("save", "--multi-image-archive", f"--output={archive}", *images)
        self("load", f"--input={archive}")
        archive.unlink()
        for image in images:
            self("tag", image, image.removeprefix("localhost/"))

    def wait_healthy(self, *containers: str) -> None:
        """Until it says so of each; it asks by itself."""
        end = time.monotonic() + 120
        for name in containers:
            while (health := self.health(name)) != "healthy":
                assert time.monotonic() < end, f"{name} is {health}: {self('logs', name)}"
                time.sleep(0.5)

    def health(self, container: str) -> str:
        """What it has found so far: starting, healthy, unhealthy."""
        return self("inspect", "--format={{.State.Health.Status}}", container).strip()

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout + done.stderr


@contextmanager
def daemon(enter: list[str]) -> Iterator[Docker]:
    """dockerd until the end; its folders go with it."""
    with tempfile.TemporaryDirectory(prefix="npucall-", dir="/run") as short:  # for its sockets
        run, data = Path(short), FOLDER / "docker"
        (run / "daemon.json").write_text(json.dumps(_CONFIGURATION))
        options = [
            f"--config-file={run}/daemon.json",
            f"--data-root={data}",
            f"--exec-root={run}/exec",
            f"--pidfile={run}/pid",
            f"--host=unix://{run}/socket",
        ]
        with (FOLDER / "dockerd.log").open("w") as log:
            process = subprocess.Popen([*enter, "/usr/sbin/dockerd", *options], stderr=log)
        try:
            _wait_for(run / "socket", process)
            yield Docker(enter, run / "socket")
        finally:
            process.terminate()
            process.wait(timeout=60)
            shutil.rmtree(data, ignore_errors=True)


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
    for _ in range(120):
        assert process.poll() is None, (FOLDER / "dockerd.log").read_text()[-3000:]
        asked = ["/usr/bin/docker", "info"]
        if subprocess.run(asked, env=environment, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.5)
    raise AssertionError((FOLDER / "dockerd.log").read_text()[-3000:])

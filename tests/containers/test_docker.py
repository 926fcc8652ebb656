"""A real dockerd, BuildKit and docker-compose, where no registry and no index is reached."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.pool.hosts import need, until

from . import images
from .engines import FOLDER, PATIENCE, ROOT, TOOLS, Engine, Podman, own_network
from .test_pool import NETWORK, POOL, UNDER_LOAD

pytestmark = [pytest.mark.containers, pytest.mark.long]
WHEELS = (
    "hatchling", "./proto", "./server[auth,metrics,tracing]", "./client[cli,testing]",
    "./conformance",
)  # fmt: skip
"""As deploy/README.md says for a host without an index."""

BRIDGE = "198.18.128.1"
CONFIGURATION = {
    # Limits that a root without CAP_SYS_RESOURCE may give.
    "default-ulimits": {
        name: {"Name": name, "Soft": number, "Hard": number}
        for name, number in {"nofile": 4096, "nproc": 32768}.items()
    },
    "bip": f"{BRIDGE}/24",
    "default-address-pools": [{"base": "198.18.192.0/18", "size": 24}],
}


class Docker(Engine):
    """docker and docker-compose 1.29, the oldest that people have, of a daemon of these tests."""

    def __init__(self, enter: list[str], socket: Path) -> None:
        host = {"HOME": str(socket.parent), "DOCKER_HOST": f"unix://{socket}"}
        environment = {"PATH": "/usr/bin:/usr/sbin:/bin", "DOCKER_BUILDKIT": "1", **host}
        super().__init__(enter, environment, ["/usr/bin/docker"], ["/usr/bin/docker-compose"])

    def take(self, podman: Podman, *images: str) -> None:
        """Gives it images of podman's, as they come to a host without a registry."""
        archive = FOLDER / "images.tar"
        archive.unlink(missing_ok=True)
        podman.on_host("save", "--multi-image-archive", f"--output={archive}", *images)
        self("load", f"--input={archive}")
        archive.unlink()
        for image in images:
            self("tag", image, image.removeprefix("localhost/"))

    def is_healthy(self, container: str) -> bool:
        """As it has found by itself."""
        return self("inspect", "--format={{.State.Health.Status}}", container).strip() == "healthy"


@contextmanager
def daemon(enter: list[str]) -> Iterator[Docker]:
    """dockerd until the end; its folders go with it."""
    with tempfile.TemporaryDirectory(prefix="npucall-", dir="/run") as short:  # for its sockets
        run, data = Path(short), FOLDER / "docker"
        (run / "daemon.json").write_text(json.dumps(CONFIGURATION))
        options = [
            f"--config-file={run}/daemon.json", f"--data-root={data}", f"--exec-root={run}/exec",
            f"--pidfile={run}/pid", f"--host=unix://{run}/socket",
        ]  # fmt: skip
        with (FOLDER / "dockerd.log").open("w") as log:
            process = subprocess.Popen([*enter, "/usr/sbin/dockerd", *options], stderr=log)
        try:
            docker = Docker(enter, run / "socket")

            def answers() -> bool:
                assert process.poll() is None, (FOLDER / "dockerd.log").read_text()[-3000:]
                return docker.process([*docker.command, "info"]).returncode == 0

            until(answers, "dockerd answers")
            yield docker
        finally:
            process.terminate()
            process.wait(PATIENCE)
            shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="module")
def engine(podman: Podman, cpu_image: str, client_image: str) -> Iterator[Docker]:
    """It has the images that podman built."""
    need("docker.io docker-compose", "/usr/sbin/dockerd", "/usr/bin/docker-compose")
    with own_network() as enter, daemon(enter) as engine:
        engine.take(podman, images.BASE, cpu_image, client_image)
        yield engine


@pytest.fixture
def pool(engine: Docker, tmp_path: Path) -> Iterator[list[str]]:
    """Three healthy containers. Compose 1.29 refuses a name in the file, and is told it."""
    text = re.sub("^name: .*\n", "", POOL.read_text(), flags=re.MULTILINE)
    (file := tmp_path / POOL.name).write_text(text)
    engine.compose(file, "--project-name=npucall-pool", "up", "--detach")
    try:
        names = engine.servers("npucall-pool")
        assert len(names) == 3
        engine.wait_healthy(*names)
        yield names
    finally:
        engine.compose(file, "--project-name=npucall-pool", "down")


def test_nobody_loses_a_call_when_one_of_three_is_killed_and_all_are_rolled(
    engine: Docker, pool: list[str]
) -> None:
    with engine.calls_in_a_container(NETWORK, "pool:dns:cpu:50051") as calls:
        time.sleep(UNDER_LOAD)
        os.kill(engine.server_process(pool[0]), signal.SIGKILL)
        engine.wait_healthy(*pool)
        for name in pool:
            engine("restart", "--time=45", name)
            engine.wait_healthy(name)
            time.sleep(UNDER_LOAD)
        calls.stop().check()


@contextmanager
def index(engine: Docker, folder: Path) -> Iterator[str]:
    """Pages that list the wheels of a folder, on the bridge of the containers; their address."""
    command = [sys.executable, "-m", "http.server", "--bind", BRIDGE, "--directory", str(folder)]
    with subprocess.Popen([*engine.enter, *command, "8000"]) as process:
        try:
            yield f"http://{BRIDGE}:8000/"
        finally:
            process.terminate()


def test_docker_builds_the_cpu_image_without_a_registry_from_a_folder_of_wheels(
    engine: Docker, tmp_path: Path
) -> None:
    download = [TOOLS / "python", "-m", "pip", "download", "--quiet", "--dest", tmp_path / "wheels"]
    given = "--only-binary=:all:", "--constraint=constraints.txt", *WHEELS
    subprocess.run([*download, *given], check=True, cwd=ROOT)
    with index(engine, tmp_path / "wheels") as address:
        settings = f"[global]\nno-index = true\nfind-links = {address}\ntrusted-host = {BRIDGE}\n"
        (tmp_path / "pip.conf").write_text(settings)
        secret = f"--secret=id=pip,src={tmp_path}/pip.conf"
        base = f"--build-arg=PYTHON_IMAGE={images.BASE}"
        engine("build", secret, base, "--tag=built-here", ".")
    name = engine("run", "--detach", "built-here").strip()
    engine.wait_healthy(name)

"""A real dockerd, BuildKit and docker-compose, where no registry and no index is reached."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from . import docker, images, needs
from .compose import calls_in_a_container, server_process, servers
from .docker import BRIDGE, Docker
from .needs import ROOT, TOOLS
from .test_pool import NETWORK, POOL, UNDER_LOAD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .podman import Podman

pytestmark = [pytest.mark.containers, pytest.mark.long]
WHEELS = (
    "hatchling", "./proto", "./server[auth,metrics,tracing]", "./client[cli,testing]", "hypothesis",
)  # fmt: skip
"""As deploy/README.md says for a host without an index."""


@pytest.fixture(scope="module")
def engine(podman: Podman, cpu_image: str, client_image: str) -> Iterator[Docker]:
    """It has the images that podman built."""
    needs.need(needs.DOCKER)
    with needs.own_network() as enter, docker.daemon(enter) as engine:
        engine.take(podman, images.BASE, cpu_image, client_image)
        yield engine


@pytest.fixture
def pool(engine: Docker, tmp_path: Path) -> Iterator[list[str]]:
    """Three healthy containers. Compose 1.29 refuses a name in the file, and is told it."""
    text = re.sub("^name: .*\n", "", POOL.read_text(), flags=re.MULTILINE)
    (file := tmp_path / POOL.name).write_text(text)
    engine.compose(file, "--project-name=npucall-pool", "up", "--detach")
    try:
        names = servers(engine, "npucall-pool")
        assert len(names) == 3
        engine.wait_healthy(*names)
        yield names
    finally:
        engine.compose(file, "--project-name=npucall-pool", "down")


def test_nobody_loses_a_call_when_one_of_three_is_killed_and_all_are_rolled(
    engine: Docker, pool: list[str]
) -> None:
    with calls_in_a_container(engine, NETWORK, "pool:dns:cpu:50051") as calls:
        time.sleep(UNDER_LOAD)
        os.kill(server_process(engine, pool[0]), signal.SIGKILL)
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

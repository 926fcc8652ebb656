"""Servers in containers that have secrets: who may read them, health with TLS, a whole lab."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.summary import figures

from .engines import ROOT, TOOLS, Podman

pytestmark = [pytest.mark.containers, pytest.mark.long]
BLOCKS = re.findall(
    r"^```sh\n(.*?)^```$",
    (ROOT / "deploy/README.md").read_text(encoding="utf-8").partition("### TLS and tenants")[2],
    re.MULTILINE | re.DOTALL,
)
MADE, TENANTS, STARTED, *_ = BLOCKS
BEGIN, *_ = MADE.splitlines(keepends=True)
# What docker is to the page; it gets the settings of these tests from their environment.
DOCKER = f"""\
#!/bin/sh
[ "$1" = compose ] || exec podman "$@"
shift
exec {TOOLS}/podman-compose "$@"
"""

Called = Callable[..., str]


@pytest.fixture
def npucall(podman: Podman) -> Called:
    """The command, beside the containers."""

    def called(*words: str, **settings: Path | str) -> str:
        given = {f"NPUCALL_{name.upper()}": str(value) for name, value in settings.items()}
        command = [*podman.enter, str(TOOLS / "npucall"), *words]
        done = subprocess.run(
            command, env={**os.environ, **given}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return called


def test_certificates_of_root_are_refused_in_a_sentence_and_served_once_they_can_be_read(
    podman: Podman, cpu_image: str, npucall: Called, tmp_path: Path
) -> None:
    made = [TOOLS / "npucall-server", "certificates", "tls", "--host", "localhost", "cpu"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    tls = tmp_path / "tls"
    options = [f"--volume={tls}:/etc/npucall:ro"]
    for name, file in ("CERTIFICATE", "pem"), ("KEY", "key"):
        options.append(f"--env=NPUCALL_TLS_{name}=/etc/npucall/localhost.{file}")
    with podman.container(cpu_image, *options) as name:
        assert podman("wait", name).strip() == "2"
        said = podman.logs(name)
    assert "Permission denied" in said
    assert "the server runs as the user 10001 of the group 10001: give it the file" in said
    cure = "chgrp 10001, mode 640, folders 750"
    assert cure in said
    subprocess.run(["chgrp", "-R", "10001", tls], check=True)
    subprocess.run(["chmod", "-R", "u=rwX,g=rX,o=", tls], check=True)
    with podman.container(cpu_image, *options) as name:
        podman.wait_healthy(name)
        address = f"{podman.address(name)}:50051"
        told = npucall("info", address, ca=tls / "ca.pem", server_name="localhost")
    assert "Ascend910B1" in told


@pytest.fixture
def shell(podman: Podman, tmp_path: Path) -> Iterator[Called]:
    """A shell in a checkout, for whom docker is podman."""
    for name in "docker-compose.yml", "deploy/compose.lab.yml":
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    environment = {**podman.environment, "PATH": f"{docker.parent}:{os.environ['PATH']}"}

    def run(script: str) -> str:
        done = subprocess.run(
            [*podman.enter, "bash", "-ec", script.replace("/root/", f"{tmp_path}/")],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    run(STARTED.replace(" up -d", " down --volumes"))


def test_the_page_leads_to_a_healthy_server_of_three_users_over_tls(
    podman: Podman, cpu_image: str, shell: Called, npucall: Called, tmp_path: Path
) -> None:
    began = time.monotonic()
    assert BEGIN == "docker build -t npucall-server:cpu .\n"  # which the image's fixture has done
    made = MADE.removeprefix(BEGIN)
    function = next(line for line in made.splitlines() if line.startswith("here()"))
    shell(made)
    assert "vision" in shell(f"{function}\n{TENANTS}")
    shell(STARTED)
    (name,) = podman.servers("npucall")
    podman.wait_healthy(name)
    for user, tenant in ("alice", "vision"), ("bob", "speech"), ("root", "nightly"):
        secrets = {"ca": tmp_path / "lab/tls/ca.pem", "token_file": tmp_path / f"lab/{user}.token"}
        told = npucall("info", "localhost:50051", **secrets)
        assert f"known as         {tenant}/{user} by token" in told
    figures(f"three users by compose: {time.monotonic() - began:.0f} s beside the image")
    assert "alice" in npucall("usage", "localhost:50051", **secrets)
    assert not podman.succeeds("exec", name, "test", "-e", "/etc/npucall/tls/ca.key")

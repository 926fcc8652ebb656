"""docs/lab.md does what it says: from an empty folder to three users, by its own commands."""

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from .pages import blocks
from .wire import free_address, until

pytestmark = pytest.mark.more

BLOCKS = blocks("docs/lab.md", "sh")
INSTALL, TENANTS, TOKENS, START, WATCH, _, USER, RESERVE, USAGE = BLOCKS
SECONDS = 60


class Lab:
    """The folder of an administrator, whose host is this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        addresses = (free_address() for _ in range(3))
        self.calls, self.health, self.metrics = (each.rpartition(":")[2] for each in addresses)

    def here(self, text: str) -> str:
        """A block, of which hosts and ports are those of this machine."""
        ports = {"50051": self.calls, "50052": self.health, "50053": self.metrics}
        for port, found in ports.items():
            text = text.replace(f":{port}", f":{found}")
        text = text.replace("0.0.0.0", "127.0.0.1").replace("npu-host:", "localhost:")
        return text.replace("--device cann:0", "").replace("npucall top", "npucall top --once")

    def run(self, block: str, **environment: str) -> str:
        """What a block prints. Its commands are those of this environment."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-ec", self.here(block)],
            cwd=self.folder,
            env={"PATH": path, "HOME": str(self.folder), "COLUMNS": "120", **environment},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.run(next(line for line in INSTALL.splitlines() if "certificates" in line))
    assert "vision" in lab.run(TENANTS)
    lab.run(TOKENS)
    command = [sys.executable, "-m", "npucall_server", *lab.here(START).split()[1:]]
    ready = lab.folder / "ready"
    with (lab.folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, f"--ready-file={ready}"], cwd=lab.folder, stderr=log)
    try:
        until(ready.exists, "the server answers")
        yield lab
    finally:
        server.terminate()
        assert server.wait(SECONDS) == 0


def test_a_user_needs_a_token_and_a_line(lab: Lab) -> None:
    assert "known as         vision/alice by token, role bench" in lab.run(USER)


def test_a_benchmark_has_the_device_for_itself(lab: Lab) -> None:
    said = lab.run(USER.splitlines()[0] + "\n" + RESERVE)
    assert "reserved         by vision/alice" in said


def test_an_admin_sees_all_and_a_user_itself(lab: Lab) -> None:
    lab.run(USER)
    login = WATCH.splitlines()[0] + "\n"
    assert "alice" in lab.run(WATCH)
    assert "alice" in lab.run(login + USAGE)
    bob = login.replace("root.token", "bob.token") + "npucall info\n"
    assert "alice" not in lab.run(bob + USAGE)


def test_who_brings_nothing_is_told_so(lab: Lab) -> None:
    with pytest.raises(AssertionError, match="CREDENTIAL_MISSING"):
        lab.run("export NPUCALL_TARGET=npu-host:50051 NPUCALL_CA=tls/ca.pem\nnpucall info")


def test_probes_need_no_token_and_metrics_are_shown(lab: Lab) -> None:
    assert "SERVING" in lab.run("npucall-server health 127.0.0.1:50052")
    context = ssl.create_default_context(cafile=lab.folder / "tls/ca.pem")
    with urlopen(f"https://localhost:{lab.metrics}/metrics", context=context) as page:
        assert b"npucall_" in page.read()

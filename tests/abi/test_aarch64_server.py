"""The server runs on aarch64: on the simulator, built for it, under an emulator.

Its operators are judged by a client here, as on any host. Python is Debian's, unpacked below build/
once, beside the packages that the server needs; nothing of it is installed.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from tests.simulator.prototypes import read_prototypes
from tests.simulator.tree import Tree

import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward

from .assembly import COMPILER, HERE
from .conftest import need
from .wheel import FOLDER

EMULATOR = "qemu-aarch64-static"
PACKAGES = {
    "g++": "g++",
    COMPILER: "g++-aarch64-linux-gnu",
    "mmdebstrap": "mmdebstrap",
    EMULATOR: "qemu-user-static",
}
"""Programs, and Debian's packages that have them."""

_ROOT = HERE.parents[1]
_OWN = ("proto", "server", "exec")
_SUITE, _PYTHON = "bookworm", "python3.11"
_DEBIAN = f"{_PYTHON}-minimal,lib{_PYTHON}-stdlib,libstdc++6"
_WHEELS = (
    "--only-binary=:all:", "--implementation=cp", "--python-version=3.11",
    *(f"--platform=manylinux{version}_aarch64" for version in ("_2_28", "_2_17", "2014")),
)  # fmt: skip


def python(folder: Path = FOLDER) -> list[str]:
    """The command of Python for aarch64, unpacked into ``folder`` where it is not there yet."""
    root = folder / f"arm64-{_SUITE}"
    if not root.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            unpacked = Path(scratch, "root")
            command = ["mmdebstrap", "--arch=arm64", "--variant=extract", f"--include={_DEBIAN}"]
            subprocess.run([*command, _SUITE, unpacked], check=True, capture_output=True)
            unpacked.rename(root)
    return [EMULATOR, "-L", str(root), str(root / "usr/bin" / _PYTHON)]


def server_packages(folder: Path) -> str:
    """The path of Python's packages with the server as it is here; ``folder`` takes the latter."""
    needed = FOLDER / "arm64-packages"
    if not needed.is_dir():
        with TemporaryDirectory(dir=FOLDER) as scratch:
            constraints = f"--constraint={_ROOT / 'constraints.txt'}"
            _pip("--target", scratch, *_WHEELS, constraints, *_dependencies())
            shutil.copytree(scratch, needed)
    own = [str(_ROOT / member) for member in _OWN]
    _pip("--target", str(folder), "--no-deps", "--no-build-isolation", *own)
    return f"{folder}:{needed}"


def simulator(folder: Path) -> None:
    """Builds the simulator for aarch64, its compiler being called as the usual one is."""
    tools = folder / "tools"
    tools.mkdir(parents=True)
    (tools / "g++").symlink_to(shutil.which(COMPILER) or COMPILER)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "tests.simulator.build", str(folder)]
    subprocess.run(command, cwd=_ROOT, env=environment, check=True, capture_output=True)


@contextmanager
def serving(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[str]:
    """A server by this interpreter; yields its target. A warning of Python ends it."""
    ready, log = folder / "ready", folder / "log"
    ready.unlink(missing_ok=True)
    flags = ["--device=cann:0", "--listen=127.0.0.1:0", f"--ready-file={ready}"]
    command = [*command, "-W", "error", "-m", "npucall_server", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stderr=output)
    try:
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield ready.read_text()
        process.terminate()
        assert process.wait(300) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def _dependencies() -> list[str]:
    """What contract and server need, apart from each other."""
    projects = [
        tomllib.loads((_ROOT / m / "pyproject.toml").read_text()) for m in ("proto", "server")
    ]
    needed = [text for project in projects for text in project["project"]["dependencies"]]
    return [text for text in needed if not text.startswith("npucall")]


def first_call(target: str) -> None:
    """It loads libraries, for which an emulator takes longer than the suite waits for an answer."""
    one = np.ones((), np.float32)
    with npucall_client.connect(target, timeout=600.0) as client:
        assert client.run(l1_loss_backward, one, one, 2 * one, 0) == -1.0


@pytest.mark.long
def test_a_server_on_aarch64_passes_a_quick_run_and_leaves_nothing(tmp_path: Path) -> None:
    need(PACKAGES)
    interpreter, packages = python(), server_packages(tmp_path / "packages")
    simulator(tmp_path / "simulator")
    told, report = tmp_path / "told.json", tmp_path / "report.json"
    conform = [str(Path(sys.executable).with_name("npucall")), "conform"]
    for generation in "8.1", "9.x":
        environment = {
            **os.environ,
            **Tree(tmp_path / "simulator").generation(generation).environment(),
            "PYTHONPATH": packages,
            "OPENBLAS_NUM_THREADS": "1",
            "NPUCALL_SIM_REPORT": str(told),
        }
        with serving(interpreter, environment, tmp_path) as target:
            command = [*conform, target, "--quick", "--json", str(report)]
            first_call(target)
            subprocess.run(command, check=False, capture_output=True)
        outcomes = json.loads(report.read_text())["outcomes"]
        assert len(outcomes) > 3000
        failed = [each for each in outcomes if each["status"] == "failed"]
        absent = {each.name for each in read_prototypes() if generation not in each.releases}
        found = [(e["case"], e["problems"]) for e in failed if e["operator"] not in absent]
        assert found == []
        devices = json.loads(told.read_text())
        assert (devices["violations"], devices["live_objects"]) == ([], {})

"""The server runs on aarch64: on the simulator, built for it, under an emulator.

Its operators are judged by a client here, as on any host.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.simulator.tree import Tree

from .emulated import PACKAGES, python, server_packages, simulator
from .need import need

pytestmark = pytest.mark.long

PATIENCE = 300.0
KNOWN = "aclnnGeluBackwardV2/rank/"
"""The operator's own rules let nine dimensions pass; CANN takes eight of any tensor."""


@pytest.fixture(scope="module")
def interpreter() -> list[str]:
    need(PACKAGES)
    return python()


@pytest.fixture(scope="module")
def packages(interpreter: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return server_packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp("simulator")
    simulator(folder)
    return Tree(folder)


@contextmanager
def serving(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[str]:
    """A server by this interpreter; yields its target. A warning of Python ends it."""
    ready, log = folder / "ready", folder / "log"
    flags = ["--device=cann:0", "--listen=127.0.0.1:0", f"--ready-file={ready}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "-W", "error", "-m", "npucall_server", *flags],
            env=environment, stderr=output,
        )  # fmt: skip
    try:
        end = time.monotonic() + PATIENCE
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield ready.read_text()
        process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("generation", ["8.1", "9.x"])
def test_a_server_on_aarch64_passes_a_quick_run_and_leaves_nothing(
    interpreter: list[str], packages: str, tree: Tree, tmp_path: Path, generation: str
) -> None:
    told, report = tmp_path / "told.json", tmp_path / "report.json"
    environment = {
        **os.environ,
        **tree.generation(generation).environment(),
        "PYTHONPATH": packages,
        "OPENBLAS_NUM_THREADS": "1",
        "NPUCALL_SIM_REPORT": str(told),
    }
    with serving(interpreter, environment, tmp_path) as target:
        conform = [str(Path(sys.executable).with_name("npucall")), "conform", target, "--quick"]
        subprocess.run([*conform, "--json", str(report)], check=False, capture_output=True)
    outcomes = json.loads(report.read_text())["outcomes"]
    assert len(outcomes) > 3000
    failed = [each["case"] for each in outcomes if each["status"] == "failed"]
    assert [case for case in failed if not case.startswith(KNOWN)] == []
    found = json.loads(told.read_text())
    assert (found["violations"], found["live_objects"]) == ([], {})

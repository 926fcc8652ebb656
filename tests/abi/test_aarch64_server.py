"""The server runs on aarch64: on the simulator, built for it, under an emulator.

Its operators are judged by a client here, as on any host.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulator.tree import Tree

from .conftest import need
from .emulated import PACKAGES, python, server_packages, serving, simulator

KNOWN = "aclnnGeluBackwardV2/rank/"
"""The operator's own rules let nine dimensions pass; CANN takes eight of any tensor."""


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
            subprocess.run(command, check=False, capture_output=True)
        outcomes = json.loads(report.read_text())["outcomes"]
        assert len(outcomes) > 3000
        failed = [each["case"] for each in outcomes if each["status"] == "failed"]
        assert [case for case in failed if not case.startswith(KNOWN)] == []
        found = json.loads(told.read_text())
        assert (found["violations"], found["live_objects"]) == ([], {})

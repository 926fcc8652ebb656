"""Python for aarch64 calls every C function, and runs the server, under an emulator.

It is Debian's, with its libffi. The functions are recorders of the same types; the server's
operators are judged by a client here, as on any host.
"""

import json
import os
import subprocess
import sys
from ctypes import c_double, c_float, c_int8, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import pytest
from tests.simulator.tree import Tree

from .aarch64 import Signature
from .conftest import need
from .emulated import (
    PACKAGES,
    python,
    recorded_otherwise,
    recorders,
    server_packages,
    serving,
    simulator,
)
from .subjects import all_of_them, cpp_types, declarations

pytestmark = pytest.mark.long
KNOWN = "aclnnGeluBackwardV2/rank/"
"""The operator's own rules let nine dimensions pass; CANN takes eight of any tensor."""
WRONG: list[tuple[str, dict[int, Any]]] = [
    ("aclrtMalloc", {1: c_int32}),
    ("aclrtSetDevice", {0: c_float}),
    ("aclnnSmoothL1LossBackwardGetWorkspaceSize", {4: c_double}),
    ("aclnnKlDivBackwardGetWorkspaceSize", {3: c_int8}),
    ("aclnnInplaceNormalGetWorkspaceSize", {1: c_int64}),
    ("aclCreateTensor", {8: None}),
    ("aclGetRecentErrMsg", {0: c_void_p}),
]


@pytest.fixture(scope="module")
def interpreter() -> list[str]:
    need(PACKAGES)
    return python()


@pytest.fixture(scope="module")
def library(interpreter: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorders") / "librecorders.so"
    recorders(cpp_types().values(), declarations(), path)
    return path


def test_every_function_records_what_ctypes_hands_over(
    interpreter: list[str], library: Path
) -> None:
    assert list(all_of_them()) == list(cpp_types())
    assert recorded_otherwise(interpreter, library, all_of_them()) == {}


@pytest.mark.parametrize(("name", "changed"), WRONG)
def test_a_wrong_declaration_is_found(
    interpreter: list[str], library: Path, name: str, changed: dict[int, Any]
) -> None:
    declared = all_of_them()
    parameters = dict(enumerate(declared[name].parameters)) | changed
    wrong = tuple(kind for kind in parameters.values() if kind is not None)
    declared[name] = Signature(declared[name].result, wrong)
    assert list(recorded_otherwise(interpreter, library, declared)) == [name]


@pytest.fixture(scope="module")
def packages(interpreter: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return server_packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp("simulator")
    simulator(folder)
    return Tree(folder)


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

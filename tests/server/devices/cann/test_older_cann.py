"""CANN 8.1, in a process of its own: one library of operators, fewer functions and operators."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .situations import SITUATIONS

if TYPE_CHECKING:
    from tests.simulator.tree import Tree

PROJECT = Path(__file__).parents[4]
PROGRAM = """
import json, sys
from pathlib import Path
from npucall.errors import NpucallError
from npucall_server.npu_settings import ascend_paths
from tests.server.devices.cann.faults import failure
from tests.server.devices.cann.opened import Opened
from tests.server.devices.cann.situations import SITUATIONS
from tests.simulator.control import Simulator

simulator = Simulator.open(ascend_paths().home / "lib64")
served = {}
for name, situation in SITUATIONS.items():
    with Opened(simulator, ascend_paths(), **situation.settings) as opened:
        asks = [*situation.before, situation.then]
        served[name] = all(opened.serves(ask(opened.device)) for ask in asks)
        device = opened.device
        facts = device.facts()
    counters = simulator.counters()["calls"]
    left = simulator.live_objects(), simulator.violations()
    simulator.reset()
print(json.dumps({
    "served": served,
    "left": left,
    "finalised": [counters.get("aclFinalize"), counters.get("aclFinalizeReference")],
    "versions": [facts.cann_version, facts.driver_version, facts.runtime_version],
    "variant": device.default_variant,
    "target": str(failure(lambda: device.catalogue.runnable("aclnnKlDivTargetBackward"))),
    "level2": device.catalogue.find("aclnnIou").source,
    "library": device._operators.find("aclnnRsub")[0].path,
}))
"""


@pytest.fixture(scope="module")
def told(tree: Tree) -> dict[str, Any]:
    """What a process with CANN 8.1 says."""
    environment = {**os.environ, **tree.generation("8.1").environment()}
    environment.pop("ASCEND_CUSTOM_OPP_PATH", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_every_kind_of_call_is_served(told: dict[str, Any]) -> None:
    assert told["served"] == dict.fromkeys(SITUATIONS, True)
    assert told["left"] == [{}, []]


def test_it_is_finalised_by_the_function_that_it_has(told: dict[str, Any]) -> None:
    assert told["finalised"] == [1, None]


def test_versions_are_told_without_the_functions_of_newer_ones(told: dict[str, Any]) -> None:
    assert told["versions"] == ["8.1.RC1", "25.5.0", "1.13.0"]


def test_an_operator_that_it_lacks_is_unavailable(told: dict[str, Any]) -> None:
    assert told["variant"] == ""
    assert told["target"] == (
        "operator: expected aclnnKlDivTargetBackward in a library of this host, "
        "found it in no library"
    )


def test_headers_of_level2_alone_are_found(told: dict[str, Any]) -> None:
    assert told["level2"] == "aclnn_iou.h"


def test_all_operators_are_in_one_library(told: dict[str, Any]) -> None:
    assert told["library"] == "libopapi.so"

"""CANN 8.1, in a process of its own: one library of operators, fewer functions and operators."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulator.tree import Tree

from .calls import SITUATIONS

PROJECT = Path(__file__).parents[4]
PROGRAM = """
import json, sys
from npucall_server.devices.cann import device as device_module
from npucall_server.settings.npu import ascend_paths
from tests.server.devices.cann.calls import SITUATIONS
from tests.server.devices.cann.conftest import catalogue_of
from tests.server.devices.cann.faults import failure
from tests.server.devices.cann.opened import Opened
from tests.simulator.control import Simulator

simulator = Simulator.open(ascend_paths().home / "lib64")
device_module.HostCatalogue = catalogue_of
served = {}
for name, situation in SITUATIONS.items():
    with Opened(simulator, ascend_paths(), **situation.settings) as opened:
        asks = [*situation.before, situation.then]
        served[name] = all(opened.serves(ask(opened)) for ask in asks)
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
TOLD = {
    "served": dict.fromkeys(SITUATIONS, True),
    "left": [{}, []],
    "finalised": [1, None],  # by the function that it has
    "versions": ["8.1.RC1", "25.5.0", "1.13.0"],  # without the functions of newer ones
    "variant": "",
    "target": "operator: expected aclnnKlDivTargetBackward in a library of this host, "
    "found it in no library",
    "level2": "aclnn_iou.h",
    "library": "libopapi.so",  # all operators are in one
}


@pytest.mark.more
def test_every_kind_of_call_is_served_and_the_rest_is_told(tree: Tree) -> None:
    environment = {**os.environ, **tree.generation("8.1").environment()}
    environment.pop("ASCEND_CUSTOM_OPP_PATH", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == TOLD

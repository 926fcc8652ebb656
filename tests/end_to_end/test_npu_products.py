"""Servers on NPUs of other products: their rules hold, and the device is not asked in vain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from tests.npu import running_npu_server

import npucall_client
from npucall.errors import DTypeError
from npucall.operators.kl_div_backward import kl_div_backward

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_client import Client

pytestmark = pytest.mark.more

SINGLE = np.full((2, 3), 0.5, np.float32)
BRAIN = SINGLE.astype(ml_dtypes.bfloat16)


PRODUCTS = {
    "Ascend910A": "Ascend910",
    "Ascend310P3": "Ascend310P",
    "Ascend910B4": "Ascend910B",
    "Ascend910_9391": "Ascend910_93",
    "Ascend950PR_9589": "Ascend950",
    "Ascend910_5591": "Ascend950",
}
GUESSED = ("Ascend910_5591",)
WITHOUT_BFLOAT16 = ("Ascend910A", "Ascend310P3")


@pytest.fixture(params=PRODUCTS, scope="module")
def soc(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def host(soc: str) -> Iterator[Client]:
    with (
        running_npu_server(NPUCALL_SIM_SOC=soc) as server,
        npucall_client.connect(server.target) as client,
    ):
        yield client


def test_a_server_serves_as_the_soc_that_its_host_has(host: Client, soc: str) -> None:
    info = host.server_info()
    assert (info.server.soc, info.product) == (soc, PRODUCTS[soc])
    assert ("guesses" in info.device.product_guess) == (soc in GUESSED)
    found = host.run(kl_div_backward, SINGLE, SINGLE, SINGLE, reduction=2)
    assert found.tolist() == [[-0.25] * 3] * 2


def test_the_newer_products_run_bfloat16_and_the_older_refuse_it(host: Client, soc: str) -> None:
    if soc in WITHOUT_BFLOAT16:
        with pytest.raises(DTypeError) as caught:
            host.run(kl_div_backward, BRAIN, BRAIN, BRAIN)
        assert (caught.value.aclnn_status, caught.value.parameter) == (161002, "grad_output")
        assert caught.value.details.items() >= {"soc": soc, "phase": "prepare"}.items()
    else:
        found = host.run(kl_div_backward, BRAIN, BRAIN, BRAIN, reduction=2)
        assert found.dtype == ml_dtypes.bfloat16
        assert found.astype(np.float32).tolist() == [[-0.25] * 3] * 2


def test_what_our_rules_refuse_the_device_never_sees(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with (
        running_npu_server(NPUCALL_SIM_SOC="Ascend910A", NPUCALL_SIM_REPORT=str(report)) as server,
        npucall_client.connect(server.target) as client,
    ):
        for ask in client.run, client.plan:
            with pytest.raises(DTypeError):
                ask(kl_div_backward, BRAIN, BRAIN, BRAIN)
    calls = json.loads(report.read_text())["counters"]["calls"]
    assert "aclnnKlDivBackwardGetWorkspaceSize" not in calls
    assert "aclrtSetDevice" in calls

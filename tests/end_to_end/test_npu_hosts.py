"""Hosts of several products, short of memory, slow, for long: what their NPU's server does."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.conformance_suite.servers import TITLES
from tests.npu import running_npu_server, spotless_npu_server
from tests.summary import figures

import npucall_client
from npucall.dtypes import AnyArray
from npucall.errors import DTypeError, OutOfMemoryError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client
from npucall_client.testing import ServerProcess
from npucall_server.devices.cann.claims import Stake
from npucall_server.devices.cann.unverified import UNVERIFIED

from . import wire
from .pages import text

MIB = 1 << 20


def floats(count: int) -> AnyArray:
    return np.full(count, 0.5, np.float32)


@contextmanager
def connected(*flags: str, **options: Any) -> Iterator[Client]:
    """To a server in such an environment."""
    with (
        running_npu_server(*flags, **options) as server,
        npucall_client.connect(server.target) as client,
    ):
        yield client


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
BRAIN = floats(3).astype(ml_dtypes.bfloat16)


@pytest.mark.more
@pytest.mark.parametrize("soc", PRODUCTS)
def test_a_server_serves_as_the_soc_of_its_host_and_never_asks_the_device_what_rules_refuse(
    soc: str, tmp_path: Path
) -> None:
    """The newer products run bfloat16, and the older refuse it."""
    report = tmp_path / "report.json"
    with connected(NPUCALL_SIM_SOC=soc, NPUCALL_SIM_REPORT=str(report)) as client:
        info = client.server_info()
        assert (info.server.soc, info.product) == (soc, PRODUCTS[soc])
        assert ("guesses" in info.device.product_guess) == (soc in GUESSED)
        if soc in WITHOUT_BFLOAT16:
            for ask in client.run, client.plan:
                with pytest.raises(DTypeError) as caught:
                    ask(kl_div_backward, BRAIN, BRAIN, BRAIN)
                assert (caught.value.aclnn_status, caught.value.parameter) == (
                    161002, "grad_output",
                )  # fmt: skip
                assert caught.value.details.items() >= {"soc": soc, "phase": "prepare"}.items()
        for array in [floats(3)] if soc in WITHOUT_BFLOAT16 else [BRAIN]:
            found = client.run(kl_div_backward, array, array, array, reduction=2)
            assert found.dtype == array.dtype
            assert found.astype(np.float32).tolist() == [-0.25] * 3
    calls = json.loads(report.read_text())["counters"]["calls"]
    assert calls["aclnnKlDivBackwardGetWorkspaceSize"] == 1


@pytest.mark.more
def test_a_call_that_the_memory_has_no_room_for_is_refused_and_the_server_serves_on(
    tmp_path: Path,
) -> None:
    with (
        spotless_npu_server(tmp_path, NPUCALL_SIM_MEMORY=str(32 * MIB)) as server,
        npucall_client.connect(server.target) as client,
    ):
        small, large = floats(4), floats(4 * MIB)  # 16 bytes; 16 MiB, of which there are four
        for _ in range(2):
            with pytest.raises(OutOfMemoryError) as caught:
                client.run(l1_loss_backward, large, large, large, reduction=2)
            assert (caught.value.code.name, caught.value.reason) == (
                "RESOURCE_EXHAUSTED", "DEVICE_MEMORY",
            )  # fmt: skip
            assert caught.value.details["device_status"] == "207001"
            found = client.run(kl_div_backward, small, small, small, reduction=2)
            assert found.tolist() == [-0.25] * 4
        info = client.server_info()
        assert (info.device.memory_total_bytes, info.calls_in_flight) == (32 * MIB, 0)


@pytest.mark.more
def test_the_memory_of_a_large_call_makes_room_for_another_one() -> None:
    """The first leaves 16 MiB of workspace; the second needs none, but 40 of 48 MiB."""
    with connected(NPUCALL_SIM_MEMORY=str(48 * MIB)) as client:
        large, larger = floats(2 * MIB), floats(5 * MIB)
        client.run("aclnnRsub", self=large, other=large, alpha=-1, outputs={"out": large})
        np.testing.assert_array_equal(large, np.float32(1))
        out = np.zeros_like(larger)
        client.run("aclnnRelu", self=larger, outputs={"out": out})
        np.testing.assert_array_equal(out, larger)


def test_a_plan_tells_the_workspace_that_the_device_asks_for(npu_server: ServerProcess) -> None:
    """The simulator's: the bytes of the inputs rounded up to 512, and 16 KiB."""
    inputs = {1: 512, 6: 512, 128: 1536, MIB: 12 * MIB}
    with npucall_client.connect(npu_server.target) as client:
        for count, rounded in inputs.items():
            one = floats(count)
            plan = client.plan(kl_div_backward, one, one, one)
            assert plan.workspace_bytes == rounded + 16_384


@pytest.mark.long
def test_a_hundred_thousand_calls_leave_memory_of_client_and_server_as_it_was(
    tmp_path: Path,
) -> None:
    """Several of them in flight."""
    warm_up, calls, window = 10_000, 100_000, 16
    arrays: Any = [np.ones(count, np.float32) for count in (1, 64, 1000, 5000)]
    report = tmp_path / "report.json"
    told: Any = {"NPUCALL_SIM_KERNELS": "none", "NPUCALL_SIM_REPORT": str(report)}

    def run(client: Client, count: int) -> None:
        with client.pipeline() as pipeline:
            for _ in range(0, count, window):
                batch = [
                    pipeline.submit(l1_loss_backward, *[arrays[number % 4]] * 3)
                    for number in range(window)
                ]
                for future in batch:
                    future.result()

    with running_npu_server("--log-calls=errors", **told) as server:
        processes = os.getpid(), server.process.pid
        with npucall_client.connect(server.target) as client:
            run(client, warm_up)
            before = [wire.resident_bytes(pid) for pid in processes]
            run(client, calls)
            after = [wire.resident_bytes(pid) for pid in processes]
        assert server.stop() == 0
    grown = [(b - a) / MIB for a, b in zip(before, after, strict=True)]
    figures(f"{calls:,} calls", "client +{:.2f}, server +{:.2f} MiB".format(*grown))
    assert max(grown) < 8
    counters = json.loads(report.read_text())["counters"]
    assert counters["calls"]["aclnnL1LossBackward"] == warm_up + calls
    assert counters["device_allocations"] <= 2 * 2  # two lanes: memory and workspace
    assert counters["pinned_allocations"] <= 2 * 2  # each grows once, to the largest call


# --- The first run on a new host, as docs/ascend.md has it ----------------------------------------

STEPS = re.findall(r"^   \| `(--.+?)` \| .+? \| (.*) ?\|$", text("docs/ascend.md"), re.MULTILINE)
"""The flags of each start, and the claims that hold if it serves."""


def test_each_claim_that_a_start_hangs_on_stands_beside_the_step_that_shows_it() -> None:
    shown = [key for _, claims in STEPS for key in re.findall(r"`([\w-]+)`", claims)]
    hung_on = (Stake.START, Stake.FAST)
    assert sorted(shown) == sorted(each.key for each in UNVERIFIED if each.stake in hung_on)


@pytest.mark.long
@pytest.mark.parametrize(("number", "flags"), [(n, flags) for n, (flags, _) in enumerate(STEPS)])
def test_each_step_of_the_first_run_passes_the_quick_suite(
    number: int, flags: str, tmp_path: Path
) -> None:
    """Of a third of the operators, each in two steps; the last step, where hosts stay, of all."""
    chosen = TITLES if number == len(STEPS) - 1 else TITLES[number % 3 :: 3]
    with spotless_npu_server(tmp_path, *shlex.split(flags)) as server:
        report = tmp_path / "conform.json"
        npucall = Path(sys.executable).with_name("npucall")
        command = [str(npucall), "conform", server.target, "--quick", "--json", str(report)]
        command += [f"--operator={title}" for title in chosen]
        patient = {**os.environ, "NPUCALL_TIMEOUT": "300"}
        subprocess.run(command, env=patient, capture_output=True, check=False)
    outcomes = json.loads(report.read_text())["outcomes"]
    failed = [each["case"] for each in outcomes if each["status"] == "failed"]
    assert len(outcomes) > 3000
    assert failed == []

"""An NPU's memory when it is short, the workspace that it needs, and where its time goes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from tests.npu import running_npu_server, spotless_npu_server

import npucall_client
from npucall.errors import OutOfMemoryError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytestmark = pytest.mark.more

MIB = 1 << 20
KERNEL_US, BANDWIDTH = 20_000, 100 * MIB
PHASES = ("copy_in_ns", "plan_ns", "run_ns", "copy_out_ns")


def floats(count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.full(count, 0.5, np.float32)


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
            assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert caught.value.reason == "DEVICE_MEMORY"
            assert caught.value.details["device_status"] == "207001"
            assert client.run(kl_div_backward, small, small, small, reduction=2).tolist() == [
                -0.25
            ] * 4  # fmt: skip
        info = client.server_info()
        assert (info.device.memory_total_bytes, info.calls_in_flight) == (32 * MIB, 0)


def test_the_memory_of_a_large_call_makes_room_for_another_one(tmp_path: Path) -> None:
    """The first leaves 16 MiB of workspace; the second needs none, but 40 of 48 MiB."""
    with (
        spotless_npu_server(tmp_path, NPUCALL_SIM_MEMORY=str(48 * MIB)) as server,
        npucall_client.connect(server.target) as client,
    ):
        large, larger = floats(2 * MIB), floats(5 * MIB)
        client.run("aclnnRsub", self=large, other=large, alpha=-1, outputs={"out": large})
        np.testing.assert_array_equal(large, np.float32(1))
        out = np.zeros_like(larger)
        client.run("aclnnRelu", self=larger, outputs={"out": out})
        np.testing.assert_array_equal(out, larger)


@pytest.mark.parametrize(
    ("count", "expected"),
    # The simulator's: the bytes of the inputs rounded up to 512, and 16 KiB.
    [(1, 512 + 16_384), (6, 512 + 16_384), (128, 1536 + 16_384), (MIB, 12 * MIB + 16_384)],
)
def test_a_plan_tells_the_workspace_that_the_device_asks_for(
    npu_server: ServerProcess, count: int, expected: int
) -> None:
    one = floats(count)
    with npucall_client.connect(npu_server.target) as client:
        assert client.plan(kl_div_backward, one, one, one).workspace_bytes == expected


@pytest.fixture(scope="module")
def slow_server() -> Iterator[ServerProcess]:
    with running_npu_server(
        NPUCALL_SIM_KERNEL_US=str(KERNEL_US), NPUCALL_SIM_BANDWIDTH=str(BANDWIDTH)
    ) as server:
        yield server


@pytest.fixture(scope="module")
def slow(slow_server: ServerProcess) -> Iterator[Client]:
    with npucall_client.connect(slow_server.target) as client:
        yield client


def test_a_reply_tells_where_the_time_went_on_the_device(slow: Client) -> None:
    """2 MiB in at 100 MiB/s, a kernel of 20 ms, 1 MiB out."""
    large = floats(MIB // 4)
    result = slow.execute(l1_loss_backward, np.float32(1), large, large)
    timings = result.timings
    assert timings.copy_in_ns >= 20_000_000
    assert timings.plan_ns > 0
    assert timings.run_ns >= 20_000_000
    assert timings.copy_out_ns >= 10_000_000
    assert sum(getattr(timings, phase) for phase in PHASES) < result.total_ns


def test_the_log_has_the_same_times_as_the_reply(slow: Client, slow_server: ServerProcess) -> None:
    client = slow.options(request_id="timed")
    timings = client.execute(l1_loss_backward, np.float32(1), floats(9), floats(9)).timings
    wire.until(lambda: '"timed"' in slow_server.log.read_text(), "it is logged")
    lines = [json.loads(line) for line in slow_server.log.read_text().splitlines()]
    (line,) = (line for line in lines if line.get("request_id") == "timed")
    assert {phase: line[phase] for phase in PHASES} == {p: getattr(timings, p) for p in PHASES}
    assert min(line[phase] for phase in PHASES) > 0


def test_the_wait_for_a_lane_is_no_part_of_the_run(slow_server: ServerProcess) -> None:
    """Six calls on two lanes: those in the third place wait for two kernels of 20 ms."""
    with npucall_client.connect(slow_server.target) as client:
        one = floats(1)
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(client.execute, l1_loss_backward, one, one, one) for _ in range(6)]
            timings = [call.result().timings for call in calls]
    assert max(each.queue_ns for each in timings) >= 20_000_000
    assert min(each.queue_ns for each in timings) == 0

"""A hundred thousand calls through a server on a simulated NPU: neither side's memory grows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.npu import running_npu_server

import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward

if TYPE_CHECKING:
    from npucall_client import Client

WARM_UP, CALLS = 10_000, 100_000
WINDOW = 16
MIB = 2**20
ARRAYS = [np.ones(count, np.float32) for count in (1, 64, 1000, 5000)]


@pytest.mark.long
def test_memory_of_client_and_server_stays_what_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    told = {"NPUCALL_SIM_KERNELS": "none", "NPUCALL_SIM_REPORT": str(report)}
    with running_npu_server("--log-calls=errors", **told) as server:
        with npucall_client.connect(server.target) as client:
            run(client, WARM_UP)
            before = [resident_bytes(pid) for pid in (os.getpid(), server.process.pid)]
            run(client, CALLS)
            after = [resident_bytes(pid) for pid in (os.getpid(), server.process.pid)]
        assert server.stop() == 0
    grown = [(b - a) / MIB for a, b in zip(before, after, strict=True)]
    with capsys.disabled():
        print(f"{CALLS} calls: client grew by {grown[0]:.2f} MiB, server by {grown[1]:.2f} MiB")
    assert max(grown) < 8
    counters = json.loads(report.read_text())["counters"]
    assert counters["calls"]["aclnnL1LossBackward"] == WARM_UP + CALLS
    assert counters["device_allocations"] <= 2 * 2  # two lanes: memory and workspace
    assert counters["pinned_allocations"] <= 2 * 2  # each grows once, to the largest call


def run(client: Client, calls: int) -> None:
    """Makes so many calls, several of them in flight."""
    with client.pipeline() as pipeline:
        under_way = []
        for number in range(calls):
            ones = ARRAYS[number % len(ARRAYS)]
            under_way.append(pipeline.submit(l1_loss_backward, ones, ones, ones))
            if len(under_way) == WINDOW:
                for future in under_way:
                    future.result()
                under_way.clear()
        for future in under_way:
            future.result()


def resident_bytes(pid: int) -> int:
    """Memory of a process that lies in RAM."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

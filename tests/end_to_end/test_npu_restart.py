"""A server on an NPU that is killed under load, or asked to stop: no wrong answer, nothing left."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.npu import running_npu_server, spotless_npu_server

import npucall_client
from npucall.errors import ArgumentError, DeadlineError, ShapeError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward

from . import wire

if TYPE_CHECKING:
    from pathlib import Path

    from npucall.dtypes import AnyArray
    from npucall_client import Client

pytestmark = pytest.mark.more

KILLS = 3
CALLERS = 4
CALLS_BETWEEN_KILLS = 40
KERNEL_US = 3000
"""So that calls are under way at any time."""


class Load:
    """Callers that repeat calls with data of their own until told to stop; checks every answer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.right = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(CALLERS)
        self._callers = [self._pool.submit(self._call, seed) for seed in range(CALLERS)]

    def stop(self) -> None:
        """Raises what any caller raised."""
        self._stop.set()
        for caller in self._callers:
            caller.result(wire.PATIENCE)
        self._pool.shutdown()

    def failed(self) -> bool:
        return any(caller.done() for caller in self._callers)

    def _call(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        while not self._stop.is_set():
            shape = (int(random.integers(1, 9)), int(random.integers(1, 2000)))
            g, s, t = (random.normal(size=shape).astype(np.float32) for _ in range(3))
            gradient, signs = -(t * g), np.sign(s - t) * g
            check(self.client.run(kl_div_backward, g, s, t, reduction=2), gradient)
            check(self.client.run(l1_loss_backward, g, s, t, reduction=2), signs)
            with self._lock:
                self.right += 2


def check(found: AnyArray, expected: AnyArray) -> None:
    """One multiplication of float32: the same bits, or it is wrong."""
    np.testing.assert_array_equal(found, expected)


@pytest.mark.more
@pytest.mark.more
def test_a_server_that_is_killed_again_and_again_under_load_gives_no_wrong_answer() -> None:
    slow = {"NPUCALL_SIM_KERNEL_US": str(KERNEL_US)}
    with running_npu_server(**slow) as server:
        target = server.target
        client = npucall_client.connect(target)
        load = Load(client)
        wire.until(lambda: load.right >= CALLS_BETWEEN_KILLS, "calls are answered")
        server.process.kill()
    for kill in range(2, KILLS + 1):
        with running_npu_server(listen=target, **slow) as server:
            enough = load.right + CALLS_BETWEEN_KILLS
            wire.until(lambda: load.right >= enough or load.failed(), "calls are answered")  # noqa: B023  # now
            server.process.kill() if kill < KILLS else load.stop()
    client.close()
    assert load.right >= KILLS * CALLS_BETWEEN_KILLS


class Report:
    """What the simulator wrote when a server's process ended."""

    def __init__(self, path: Path) -> None:
        told: dict[str, Any] = json.loads(path.read_text())
        self.violations: list[str] = told["violations"]
        self.live_objects: dict[str, int] = told["live_objects"]
        self.calls: dict[str, int] = told["counters"]["calls"]


@pytest.mark.parametrize(
    ("generation", "finalise"), [("8.1", "aclFinalize"), ("9.x", "aclFinalizeReference")]
)
def test_a_server_that_is_asked_to_stop_finishes_its_calls_and_gives_everything_back(
    tmp_path: Path, generation: str, finalise: str
) -> None:
    report = tmp_path / "report.json"
    slow = {"NPUCALL_SIM_KERNEL_US": "300000", "NPUCALL_SIM_REPORT": str(report)}
    with (
        running_npu_server(generation=generation, **slow) as server,
        wire.bare_channel(server.target) as channel,
    ):
        execute = wire.method(channel, "Execute")
        calls = [execute.future(wire.long_call(1)) for _ in range(5)]  # on 2 lanes
        wire.until(lambda: wire.calls_in_flight(channel) == 5, "all are in")
        server.process.terminate()
        wire.until(lambda: '"event": "draining"' in server.log.read_text(), "it drains")
        assert wire.refusal(channel, "Execute", wire.long_call(1)) == "DRAINING"
        assert all(call.result(wire.PATIENCE) for call in calls)
        assert server.process.wait(wire.PATIENCE) == 0
    told = Report(report)
    assert (told.live_objects, told.violations) == ({}, [])
    assert told.calls[finalise] == 1
    assert told.calls["aclnnKlDivBackward"] == 5


def test_calls_of_every_kind_leave_nothing_behind(tmp_path: Path) -> None:
    """Answered, refused by our rules, refused by the device, planned, cancelled."""
    one, two = np.ones(1, np.float32), np.ones(2, np.float32)
    with (
        spotless_npu_server(tmp_path) as server,
        npucall_client.connect(server.target) as client,
    ):
        for size in range(1, 400):  # more calls than a lane keeps
            client.run(l1_loss_backward, one, np.ones(size, np.float32), one)
        client.plan(l1_loss_backward, one, one, one)
        out = {"out": np.ones(3, np.float32)}
        with pytest.raises(ArgumentError):
            client.run("aclnnRsub", self=two, other=two, alpha=1.0, outputs=out)
        with pytest.raises(ShapeError):
            client.run(l1_loss_backward, one, two, np.ones(3, np.float32))
        with pytest.raises(DeadlineError):
            client.options(timeout=1e-6).run(l1_loss_backward, one, one, one)

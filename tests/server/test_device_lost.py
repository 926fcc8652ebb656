"""A device that breaks: all who wait are answered, the log says why, the process ends with 70."""

from __future__ import annotations

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc

from npucall.dtypes import FLOAT
from npucall.errors import DeviceError
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall.wire.messages import join_request
from npucall_server import app
from npucall_server.log import Log
from npucall_server.settings import ServerSettings

from .scripted import PATIENCE, ScriptedDevice, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_server.devices.base import Turn

BROKEN = DeviceError("device: broken", device_status="507015", function="aclrtSynchronizeStream")
ONE = np.ones(1, np.float32).tobytes()


class Exits:
    """Stands for ``os._exit``, which the tests outlive."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def __call__(self, code: int) -> None:
        self.codes.append(code)


class Served:
    """A server in this process, on a device whose one turn is held until the test lets go."""

    def __init__(self, ready: Path, exits: Exits) -> None:
        self._exits, self._lost = exits, False
        self.let_go = threading.Event()
        self.held = 0
        self.device = ScriptedDevice(self._run)
        self.device.result = ONE
        self.stream = io.StringIO()
        settings = ServerSettings(listen="127.0.0.1:0", ready_file=ready, queue_length=8)
        self.server = app.Server(app.build(settings, self.device, Log(stream=self.stream)))
        self.server.start()
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        self.channel = grpc.insecure_channel(self.server.address, options)

    def start(self) -> grpc.Future:
        inputs = ("grad_output", "self", "target")
        specs = dict.fromkeys(inputs, TensorSpec(FLOAT, (1,)))
        call = encode("aclnnL1LossBackward", "", specs, inputs)
        method: Any = self.channel.unary_unary("/npucall.v1.OperatorService/Execute")
        future: grpc.Future = method.future(join_request(call, [ONE] * 3), timeout=PATIENCE)
        return future

    def lose(self) -> None:
        self._lost = True
        self.device.lose(BROKEN)

    def events(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["event"] != "call"]

    def close(self) -> None:
        self.let_go.set()
        if self._lost:  # or the end would come to the test's own process
            until(lambda: bool(self._exits.codes), "the process ends")
        self.channel.close()
        self.server.parts.methods.grpc.stop(0).wait(PATIENCE)

    def _run(self, turn: Turn) -> None:
        with turn():
            self.held += 1
            assert self.let_go.wait(PATIENCE)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Exits:
    exits = Exits()
    monkeypatch.setattr(app.os, "_exit", exits)
    return exits


@pytest.fixture
def served(tmp_path: Path, exits: Exits) -> Iterator[Served]:
    served = Served(tmp_path / "ready", exits)
    yield served
    served.close()


def reason_of(call: grpc.Future) -> tuple[str, float | None]:
    """The reason of the refusal, and the seconds after which to come back."""
    error: Any = call.exception(PATIENCE)
    status = Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    info, retry = ErrorInfo(), RetryInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    told = any(detail.Unpack(retry) for detail in status.details)
    return info.reason, retry.retry_delay.ToTimedelta().total_seconds() if told else None


def test_those_who_wait_are_told_when_to_come_back_and_the_one_who_runs_is_answered(
    served: Served, exits: Exits
) -> None:
    running = served.start()
    until(lambda: served.held == 1, "it runs")
    waiting = [served.start() for _ in range(3)]
    until(lambda: served.server.parts.core.executor.calls_in_flight == 4, "the others wait")
    served.lose()
    assert [reason_of(call) for call in waiting] == [("DEVICE_LOST", 5.0)] * 3
    served.let_go.set()
    assert ONE in running.result(PATIENCE)
    until(lambda: exits.codes == [70], "the process ends")


def test_health_says_so_to_whoever_watches(served: Served, exits: Exits) -> None:
    stub = health_pb2_grpc.HealthStub(served.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    served.lose()
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    until(lambda: exits.codes == [70], "the process ends")


def test_the_log_says_what_broke_and_with_what_the_process_ends(
    served: Served, exits: Exits
) -> None:
    served.lose()
    until(lambda: exits.codes == [70], "the process ends")
    _, lost, ended = served.events()
    assert (lost["event"], lost["message"]) == ("device lost", "device: broken")
    assert lost["device_status"] == "507015"
    assert lost["function"] == "aclrtSynchronizeStream"
    assert (ended["event"], ended["code"]) == ("exit", 70)


def test_the_ready_file_is_gone(served: Served, exits: Exits, tmp_path: Path) -> None:
    assert (tmp_path / "ready").exists()
    served.lose()
    until(lambda: exits.codes == [70], "the process ends")
    assert not (tmp_path / "ready").exists()


def test_a_call_that_never_ends_keeps_nobody_and_is_cut(served: Served, exits: Exits) -> None:
    hanging = served.start()
    until(lambda: served.held == 1, "it hangs")
    served.lose()
    until(lambda: exits.codes == [70], "the process ends")
    assert not served.let_go.is_set()
    error: Any = hanging.exception(PATIENCE)
    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_the_thread_that_found_out_goes_on_at_once(served: Served, exits: Exits) -> None:
    """It may have to answer the call that broke the device."""
    running = served.start()
    until(lambda: served.held == 1, "it runs")
    served.lose()
    assert exits.codes == []  # the end waits for the call that runs
    served.let_go.set()
    assert ONE in running.result(PATIENCE)


def test_many_threads_may_find_out(served: Served, exits: Exits) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: served.lose(), range(8)))
    until(lambda: bool(exits.codes), "the process ends")
    assert exits.codes == [70]
    assert [line["event"] for line in served.events()] == ["serving", "device lost", "exit"]

"""A device that breaks: all who wait are answered, the log says why, the process ends with 70."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.server.carriers.frames.peer import connected
from tests.server.fakes import PATIENCE, BlockingDevice, until
from tests.server.people import Person
from tests.server.raw import TRAILER
from tests.server.serving import Served

from npucall.errors import DeviceError
from npucall_server.serving import app

BROKEN = DeviceError("device: broken", device_status="507015", function="aclrtSynchronizeStream")


class Losing:
    """A server whose device is lost in each test, and a caller of it."""

    def __init__(self, ready: Path, exits: list[int]) -> None:
        self.exits = exits
        self.device = BlockingDevice()
        self.served = Served(
            self.device, ready_file=ready, frames_socket=ready.with_name("f"), queue_length=8
        )
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        self.channel = grpc.insecure_channel(self.served.target, options)

    def begin(self) -> Any:
        return Person(self.channel, "").begin_execute()

    def begin_running(self) -> Any:
        call = self.begin()
        until(lambda: self.device.running == 1, "it runs")
        return call

    def lose(self) -> None:
        self.device.lose(BROKEN)

    def wait_for_the_end(self) -> None:
        until(lambda: self.exits == [70], "the process ends")


@pytest.fixture
def losing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Losing]:
    """Instead of the end of the process its code is kept."""
    exits: list[int] = []
    monkeypatch.setattr(app.os, "_exit", exits.append)
    monkeypatch.setattr(app, "_LAST_ANSWERS_SECONDS", PATIENCE)  # for those who are let go
    losing = Losing(tmp_path / "ready", exits)
    yield losing
    losing.device.let_all_go()
    until(lambda: bool(exits), "the process ends")  # or the end would come to the tests
    losing.channel.close()
    losing.served.server.drain()


def refusal(call: Any) -> tuple[str, float | None]:
    """The reason of the refusal, and the seconds after which to come back."""
    trailer = dict(call.exception(PATIENCE).trailing_metadata())[TRAILER]
    details, info, retry = Status.FromString(trailer).details, ErrorInfo(), RetryInfo()
    assert any(detail.Unpack(info) for detail in details)
    told = any(detail.Unpack(retry) for detail in details)
    return info.reason, retry.retry_delay.ToTimedelta().total_seconds() if told else None


def test_those_who_wait_are_told_when_to_come_back_and_the_one_who_runs_is_answered(
    losing: Losing,
) -> None:
    running = losing.begin_running()
    waiting = [losing.begin() for _ in range(3)]
    until(lambda: losing.served.executor.calls_in_flight == 4, "the others wait")
    losing.lose()
    assert losing.exits == []  # who found out goes on at once, and may have to answer the call
    assert [refusal(call) for call in waiting] == [("DEVICE_LOST", 5.0)] * 3
    losing.device.let_all_go()
    assert BlockingDevice.result in running.result(PATIENCE)
    losing.wait_for_the_end()


def test_the_process_ends_once_a_call_in_frames_is_answered_and_has_its_line(
    losing: Losing,
) -> None:
    with connected(losing.served) as peer:
        peer.execute()
        until(lambda: losing.device.running == 1, "it runs")
        losing.lose()
        until(lambda: losing.served.events("device lost"), "the thread that ends the process")
        losing.device.let_all_go()
        assert peer.receive().response
        losing.wait_for_the_end()
    assert [line["event"] for line in losing.served.lines()] == ["device lost", "call", "exit"]


def test_health_says_so_to_whoever_watches(losing: Losing) -> None:
    stub = health_pb2_grpc.HealthStub(losing.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    losing.lose()
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_the_log_says_what_broke_once_and_the_ready_file_is_gone(
    losing: Losing, tmp_path: Path
) -> None:
    """However many threads find out."""
    assert (tmp_path / "ready").exists()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: losing.lose(), range(8)))
    losing.wait_for_the_end()
    assert [line["event"] for line in losing.served.lines()] == ["device lost", "exit"]
    (lost,), (ended,) = losing.served.events("device lost"), losing.served.events("exit")
    assert lost["message"] == "device: broken"
    assert lost["device_status"] == "507015"
    assert lost["function"] == "aclrtSynchronizeStream"
    assert ended["code"] == 70
    assert not (tmp_path / "ready").exists()


def test_a_call_that_never_ends_keeps_nobody_and_is_cut(
    losing: Losing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_LAST_ANSWERS_SECONDS", 0.1)
    hanging = losing.begin_running()
    losing.lose()
    losing.wait_for_the_end()
    assert losing.device.running == 1
    code = hanging.exception(PATIENCE).code()
    assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

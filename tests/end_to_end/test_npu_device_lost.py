"""An NPU that breaks or hangs: who is told what, and how the process ends."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.more import every_third
from tests.npu import running_npu_server

import npucall_client
from npucall.errors import DeviceError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.wire.status import BEGUN, TRAILER

from . import wire

if TYPE_CHECKING:
    import grpc

    from npucall_client.testing import ServerProcess

ONE = np.ones(1, np.float32)
DEVICE_TIMEOUT = 1.0
KERNEL_US = 800_000
FEW_SECONDS = 8.0
"""Beyond the device's timeout: 1 that the watchdog grants, 2 for the last answers, 5 spare."""

# What the second launch of a server meets.
BREAKS = {
    "the kernel fails": "aclnnKlDivBackward:2:at_sync:507015",
    "every function of the device fails": "aclnnKlDivBackward:2:sticky:507018",
    "the kernel does not end": "aclnnKlDivBackward:2:stall:0",
    "phase one does not return": "aclnnKlDivBackwardGetWorkspaceSize:2:hang:507000",
    "phase two does not return": "aclnnKlDivBackward:2:hang:507000",
    "the synchronise does not return": "aclrtSynchronizeStreamWithTimeout:2:hang:507000",
}


@pytest.fixture(params=every_third(BREAKS))
def fault(request: pytest.FixtureRequest) -> str:
    return BREAKS[request.param]


def kl_request() -> bytes:
    """-1.0 for its only element."""
    return wire.long_call(1)


def in_this_order(channel: grpc.Channel, calls: int) -> list[grpc.Future]:
    """Calls of which each came after the one before."""
    started: list[grpc.Future] = []
    for number in range(1, calls + 1):
        started.append(wire.method(channel, "Execute").future(kl_request()))
        wire.until(lambda: wire.calls_in_flight(channel) == number, "it came")  # noqa: B023  # now
    return started


def events(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def refusal_of(call: grpc.Future) -> tuple[str, str, float | None]:
    """gRPC's code, the reason, and the seconds after which to come back."""
    error: Any = call.exception(wire.PATIENCE)
    status = Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    retry = RetryInfo()
    told = any(detail.Unpack(retry) for detail in status.details)
    seconds = retry.retry_delay.ToTimedelta().total_seconds() if told else None
    return error.code().name, wire.reason_of(error), seconds


def begun_of(call: grpc.Future) -> str:
    """What a call is told of whether it had the device."""
    error: Any = call.exception(wire.PATIENCE)
    status, info = Status.FromString(dict(error.trailing_metadata())[TRAILER]), ErrorInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    return str(info.metadata[BEGUN])


def test_the_call_gets_its_error_those_that_wait_are_sent_back_and_the_process_ends_with_70(
    fault: str,
) -> None:
    """Four wait while a first one runs; the second one breaks the device."""
    slow = {"NPUCALL_SIM_FAULTS": fault, "NPUCALL_SIM_KERNEL_US": str(KERNEL_US)}
    with (
        running_npu_server(f"--device-timeout={DEVICE_TIMEOUT}", "--lanes=1", **slow) as server,
        wire.bare_channel(server.target) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        first, second, *others = in_this_order(channel, 5)
        assert first.result(wire.PATIENCE)
        assert refusal_of(second) == ("INTERNAL", "DEVICE_ERROR", None)
        assert [refusal_of(call) for call in others] == [("UNAVAILABLE", "DEVICE_LOST", 5.0)] * 3
        assert [begun_of(call) for call in others] == ["none"] * 3
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        assert server.process.wait(DEVICE_TIMEOUT + FEW_SECONDS) == 70
        log = events(server)
    reasons = [line["reason"] for line in log if line["event"] == "call"]
    assert sorted(r for r in reasons if r != "OK") == ["DEVICE_ERROR", *["DEVICE_LOST"] * 3]
    assert [line["event"] for line in log if line["event"] in ("device lost", "exit")] == [
        "device lost", "exit",
    ]  # fmt: skip
    assert log[-1]["code"] == 70


@pytest.mark.more
@pytest.mark.parametrize(
    ("what", "facts"),
    [
        (
            "the kernel fails",
            {"device_status": "507015", "function": "aclrtSynchronizeStreamWithTimeout"},
        ),
        (
            "the kernel does not end",
            {"device_status": "507046", "function": "aclrtSynchronizeStreamWithTimeout"},
        ),
        ("phase one does not return", {"setting": "device_timeout", "limit": "1"}),
    ],
)
def test_error_and_log_say_what_broke(what: str, facts: dict[str, str]) -> None:
    with (
        running_npu_server(
            f"--device-timeout={DEVICE_TIMEOUT}",
            NPUCALL_SIM_FAULTS=BREAKS[what].replace(":2:", ":1:"),
        ) as server,
        npucall_client.connect(server.target) as client,
    ):
        with pytest.raises(DeviceError) as caught:
            client.run(kl_div_backward, ONE, ONE, ONE, reduction=2)
        assert server.process.wait(DEVICE_TIMEOUT + FEW_SECONDS) == 70
        (lost,) = (line for line in events(server) if line["event"] == "device lost")
    assert caught.value.details.items() >= facts.items()
    assert lost.items() >= facts.items()
    assert lost["message"] == str(caught.value)


def test_a_plan_that_meets_a_broken_device_loses_it_too() -> None:
    fault = "aclnnKlDivBackwardGetWorkspaceSize:1:sticky:507015"
    with (
        running_npu_server(NPUCALL_SIM_FAULTS=fault) as server,
        npucall_client.connect(server.target) as client,
    ):
        with pytest.raises(DeviceError):
            client.plan(kl_div_backward, ONE, ONE, ONE)
        assert server.process.wait(FEW_SECONDS) == 70


def test_a_crash_in_a_kernels_library_ends_the_process_and_the_next_one_answers() -> None:
    with ThreadPoolExecutor() as pool:
        with running_npu_server(NPUCALL_SIM_FAULTS="aclnnKlDivBackward:1:crash:0") as server:
            client = npucall_client.connect(server.target)
            answer = pool.submit(client.run, kl_div_backward, ONE, ONE, ONE, reduction=2)
            assert server.process.wait(wire.PATIENCE) == -signal.SIGSEGV
        with running_npu_server(listen=server.target), client:
            assert answer.result(wire.PATIENCE).tolist() == [-1.0]


@pytest.mark.more
def test_a_call_that_was_sent_back_is_answered_by_the_next_server() -> None:
    fault = "aclnnL1LossBackward:1:at_sync:507015"
    with ThreadPoolExecutor() as pool:
        with (
            running_npu_server(
                "--lanes=1", NPUCALL_SIM_FAULTS=fault, NPUCALL_SIM_KERNEL_US=str(KERNEL_US)
            ) as server,
            wire.bare_channel(server.target) as channel,
        ):
            client = npucall_client.connect(server.target)
            call = (client.run, kl_div_backward, ONE, ONE, ONE, 2)
            running = pool.submit(*call)  # so that the other caller's is next, whoever waits
            wire.until(lambda: wire.calls_in_flight(channel) == 1, "it runs")
            breaking = wire.method(channel, "Execute").future(l1_request())
            wire.until(lambda: wire.calls_in_flight(channel) == 2, "it waits")
            answer = pool.submit(*call)
            assert running.result(wire.PATIENCE).tolist() == [-1.0]
            assert refusal_of(breaking)[1] == "DEVICE_ERROR"
            assert server.process.wait(FEW_SECONDS) == 70
            assert '"reason": "DEVICE_LOST"' in server.log.read_text()
        with running_npu_server(listen=server.target), client:
            assert answer.result(wire.PATIENCE).tolist() == [-1.0]


def l1_request() -> bytes:
    names = ("grad_output", "self", "target")
    return wire.request_of(
        "aclnnL1LossBackward", [wire.tensor(name, 1) for name in names], *[ONE.tobytes()] * 3
    )


def test_a_call_that_hangs_keeps_no_server_that_is_asked_to_stop() -> None:
    fault = "aclrtSynchronizeStreamWithTimeout:1:hang:507000"
    with (
        running_npu_server("--drain-timeout=0.2", NPUCALL_SIM_FAULTS=fault) as server,
        wire.bare_channel(server.target) as channel,
    ):
        hanging = wire.method(channel, "Execute").future(kl_request())
        wire.until(lambda: wire.calls_in_flight(channel) == 1, "it hangs")
        assert server.stop() == 75
        assert hanging.exception(wire.PATIENCE) is not None

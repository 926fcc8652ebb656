"""Below the client: requests as bytes over a bare channel, calls that do not end, servers here."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tests.client.pool.heard import until

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

if TYPE_CHECKING:
    from npucall_server.serving.app import Server

SERVICE = "npucall.v1.OperatorService"
METHODS = (
    "Execute", "Plan", "ExecuteProgram", "PlanProgram", "ListOperators", "GetOperator",
    "GetServerInfo",
)  # fmt: skip
FLOAT = tensor_pb2.DATA_TYPE_FLOAT

PATIENCE = 120.0
"""Seconds after which a test gives up; none takes so long unless something is broken."""

LANES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
"""Turns of a CPU server on this machine: one a core."""

ENDLESS = (4096, 4096, 32768)
"""2**39 elements: about ten minutes. A server takes it with a memory limit of ENDLESS_LIMIT."""

ENDLESS_LIMIT = ("--memory-limit=16TiB", "--overcommit")

__all__ = ["until"]  # beside what is defined here


@contextmanager
def server_here(listen: str = "127.0.0.1:0", **settings: Any) -> Iterator[Server]:
    """A server in this process, for what does not need one of its own. At the end it drains."""
    from npucall_server.devices import open_device
    from npucall_server.serving.app import Server, build
    from npucall_server.settings.server import ServerSettings
    from npucall_server.telemetry.log import Log

    given = ServerSettings(listen=listen, **settings)
    device = open_device(given, print)
    server = Server(build(given, device, Log(stream=io.StringIO())))
    server.start()
    try:
        yield server
    finally:
        server.drain()
        device.close()


def free_address() -> str:
    """Free a moment ago. A server that starts again is known by an address that it is told."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def bare_channel(target: str, *options: tuple[str, Any]) -> Iterator[grpc.Channel]:
    """A connection of its own, without retries."""
    own = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(target, [*own, *options]) as channel:
        yield channel


def method(channel: Any, name: str) -> Any:
    """A method from bytes to bytes."""
    return channel.unary_unary(f"/{SERVICE}/{name}")


def ask(channel: grpc.Channel, name: str, request: bytes) -> bytes:
    answer: bytes = method(channel, name)(request, timeout=PATIENCE)
    return answer


def refusal(channel: grpc.Channel, name: str, request: bytes) -> str:
    """The reason that the server gives for refusing a request; OK if it does not."""
    try:
        ask(channel, name, request)
    except grpc.RpcError as error:
        return reason_of(error)
    return "OK"


class Details(NamedTuple):
    """An error as its details tell it; ``reason`` is gRPC's own code where there are none."""

    reason: str
    message: str
    facts: dict[str, str]


def details_in(status: Status) -> Details | None:
    """Read with google.rpc's own classes."""
    info = ErrorInfo()
    if not any(detail.Unpack(info) for detail in status.details):
        return None
    return Details(info.reason, status.message, dict(info.metadata))


def details_of(error: Any) -> Details:
    trailers = dict(error.trailing_metadata() or ())
    status = Status.FromString(trailers.get("grpc-status-details-bin", b""))
    return details_in(status) or Details(error.code().name, str(error.details()), {})


def reason_of(error: Any) -> str:
    return details_of(error).reason


def server_info(channel: grpc.Channel) -> pb.GetServerInfoResponse:
    return pb.GetServerInfoResponse.FromString(ask(channel, "GetServerInfo", b""))


def calls_in_flight(channel: grpc.Channel) -> int:
    return server_info(channel).calls_in_flight


def resident_bytes(process_id: int) -> int:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(process_id: int) -> int:
    """The most that a process ever had in memory."""
    return _bytes_of(process_id, "VmHWM:")


def own_bytes(process_id: int) -> int:
    """What a process has in memory that no file and no other process has."""
    return _bytes_of(process_id, "RssAnon:")


def shared_bytes(process_id: int) -> int:
    """What a process has in memory that others may have too, such as its callers."""
    return _bytes_of(process_id, "RssShmem:")


def _bytes_of(process_id: int, name: str) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024  # in kB, which proc(5) means as KiB


def tensor(name: str, *shape: int, stored: bool = True, **spec: Any) -> pb.Argument:
    message = tensor_pb2.TensorSpec(dtype=spec.pop("dtype", FLOAT), shape=shape, **spec)
    return pb.Argument(name=name, stored=stored, tensor=message)


def request_of(operator: str, arguments: list[pb.Argument], *storage: bytes) -> bytes:
    return pb.ExecuteRequest(
        call=pb.Call(operator=operator, arguments=arguments),
        storage=[tensor_pb2.Storage(data=data) for data in storage],
    ).SerializeToString()


def long_call(*shape: int) -> bytes:
    """An Execute of a few bytes that computes as many elements as the shape has."""
    strides = [0] * len(shape)
    arguments = [
        tensor("grad_output"),
        tensor("self", 1, stored=False),
        tensor("target", *shape, strides=strides, storage_shape=[1]),
        pb.Argument(name="reduction", integer=2),
    ]
    one = b"\0\0\x80\x3f"  # 1.0
    return request_of("aclnnKlDivBackward", arguments, one, one)


@contextmanager
def endless_call(channel: grpc.Channel) -> Iterator[Any]:
    """A call that runs, and does not end before it is cancelled."""
    call = method(channel, "Execute").future(long_call(*ENDLESS))
    until(lambda: calls_in_flight(channel) > 0, "the call runs")
    try:
        yield call
    finally:
        call.cancel()

"""Any bytes, to any method: a status or an answer, and the server lives on as it was."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npucall.v1 import operator_service_pb2 as pb
from npucall_client.testing import running_server

from . import wire
from .wire import request_of, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

    from npucall_client.testing import ServerProcess

ONE = b"\0\0\x80\x3f"
MIB = 2**20

# What a request can be refused for; neither INTERNAL nor gRPC's UNKNOWN nor UNAVAILABLE.
REASONS = {
    "OK",
    "OPERATOR_UNKNOWN",
    "MESSAGE_MALFORMED",
    "TENSOR_LAYOUT",
    "ARGUMENT_UNKNOWN",
    "ARGUMENT_MISSING",
    "ATTRIBUTE_INVALID",
    "DTYPE_UNSUPPORTED",
    "SHAPE_MISMATCH",
    "FORMAT_UNSUPPORTED",
    "TOO_LARGE",
}

INPUTS = ("grad_output", "self", "target")
VALID = [
    wire.long_call(2, 3),
    request_of("aclnnL1LossBackward", [tensor(name, 2) for name in INPUTS], *[ONE * 2] * 3),
    request_of(
        "aclnnL1LossBackward",
        [tensor(name, 2) for name in INPUTS]
        + [tensor("grad_input", 2, strides=[3], offset=1, storage_shape=[6])]
        + [pb.Argument(name="reduction", integer=1)],
        *[ONE * 2] * 3,
        ONE * 6,
    ),
    request_of(
        "aclnnKlDivTargetBackward",
        [tensor(name, 2, 1, dtype=2) for name in INPUTS]
        + [pb.Argument(name="log_target", boolean=True)],
        *[ONE] * 3,
    ),
    pb.GetOperatorRequest(operator="aclnnKlDivBackward").SerializeToString(),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Bounded, so that a mutant that asks for much is refused instead of computed."""
    with running_server("--memory-limit=4MiB", "--max-message-bytes=1MiB") as server:
        yield server


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with wire.bare_channel(server.target) as channel:
        yield channel


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """A valid request with some of its bytes changed, taken out, doubled or cut off."""
    request = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(request)))
        end = min(start + draw(st.integers(0, 12)), len(request))
        match draw(st.sampled_from(["change", "remove", "double", "insert", "end"])):
            case "change" if start < len(request):
                request[start] = draw(st.integers(0, 255))
            case "remove":
                del request[start:end]
            case "double":
                request[start:start] = request[start:end]
            case "insert":
                request[start:start] = draw(st.binary(max_size=12))
            case "end":
                del request[max(start, 1) :]
    return bytes(request)


def check(channel: grpc.Channel, method: str, request: bytes) -> None:
    assert wire.refusal(channel, method, request) in REASONS
    info = wire.server_info(channel)
    assert (info.calls_in_flight, info.bytes_in_flight) == (0, 0)


FUZZ = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
FULL_FUZZ = settings(FUZZ, max_examples=5000)


@pytest.mark.parametrize("method", wire.METHODS)
@FUZZ
@given(request_bytes=st.binary(max_size=300))
def test_any_bytes_are_answered(channel: grpc.Channel, method: str, request_bytes: bytes) -> None:
    check(channel, method, request_bytes)


@pytest.mark.parametrize("method", wire.METHODS)
@FUZZ
@given(request_bytes=mutants())
def test_a_valid_request_with_wrong_bytes_is_answered(
    channel: grpc.Channel, method: str, request_bytes: bytes
) -> None:
    check(channel, method, request_bytes)


@pytest.mark.long
@pytest.mark.parametrize("method", wire.METHODS)
@FULL_FUZZ
@given(request_bytes=st.binary(max_size=2000) | mutants())
def test_many_more_bytes_are_answered(
    channel: grpc.Channel, method: str, request_bytes: bytes
) -> None:
    check(channel, method, request_bytes)


@pytest.mark.parametrize("request_bytes", VALID[:-1])
def test_what_the_mutants_come_from_is_valid(channel: grpc.Channel, request_bytes: bytes) -> None:
    assert wire.refusal(channel, "Execute", request_bytes) == "OK"


def test_a_method_that_does_not_exist_is_unimplemented(channel: grpc.Channel) -> None:
    assert wire.refusal(channel, "Erase", b"") == "UNIMPLEMENTED"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_hostile_bytes_leave_no_memory_behind(server: ServerProcess, channel: grpc.Channel) -> None:
    """8 MiB in all, all of which the server would have to keep to grow by so much."""
    junk = [bytes([byte]) * 2**19 for byte in (0x00, 0x0A, 0x12, 0x1A, 0x0B, 0x7A, 0x80, 0xFF)]

    def send_all() -> None:
        for method in wire.METHODS:
            for request in junk:
                assert wire.refusal(channel, method, request) in REASONS

    send_all()
    before = wire.resident_bytes(server.process.pid)
    for _ in range(4):
        send_all()
    assert wire.resident_bytes(server.process.pid) - before < 32 * MIB


def test_none_of_it_was_a_bug(server: ServerProcess) -> None:
    """The last test of this module: the server's log has no traceback."""
    assert server.stop() == 0
    assert '"traceback"' not in server.log.read_text()

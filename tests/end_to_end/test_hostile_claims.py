"""Requests that claim what cannot be: each is refused for its own reason, and costs nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from npucall.v1 import operator_service_pb2 as pb
from npucall_client.testing import running_server

from . import wire
from .wire import request_of, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

    from npucall_client.testing import ServerProcess

pytestmark = pytest.mark.more

KL, L1 = "aclnnKlDivBackward", "aclnnL1LossBackward"
HUGE = 2**60
ONE = b"\0\0\x80\x3f"
MIB = 2**20
LONG = "--max-message-bytes=64MiB"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--memory-limit=64MiB", LONG) as server:
        yield server


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with wire.bare_channel(server.target) as channel:
        yield channel


def l1(*target: int, storage: bytes = ONE, **spec: object) -> bytes:
    """A valid call of L1 on tensors of rank 0, but for ``target``."""
    return request_of(
        L1,
        [tensor("grad_output"), tensor("self"), tensor("target", *target, **spec)],
        ONE,
        ONE,
        storage,
    )


def output(*shape: int, storage: bytes | None = None, **spec: object) -> bytes:
    """A valid call of L1 on 4 elements, but for the output that it gives."""
    out = tensor("grad_input", *shape, stored=storage is not None, **spec)
    inputs = [tensor(name, 4) for name in ("grad_output", "self", "target")]
    data = [ONE * 4] * 3 + ([] if storage is None else [storage])
    return request_of(L1, [*inputs, out], *data)


CLAIMS = {
    "more elements than bytes": (l1(HUGE), "TENSOR_LAYOUT"),
    "2^60 elements of one byte sequence": (l1(HUGE, strides=[0]), "TOO_LARGE"),
    "2^60 elements in many dimensions": (l1(*[2**12] * 5, strides=[0] * 5), "TOO_LARGE"),
    "more than 2^63 bytes": (l1(2**61), "TENSOR_LAYOUT"),
    "an extent below 0": (l1(-1), "TENSOR_LAYOUT"),
    "two extents below 0": (l1(-2, -2), "TENSOR_LAYOUT"),
    "the smallest extent there is": (l1(-(2**63)), "TENSOR_LAYOUT"),
    "a stride below 0": (l1(2, strides=[-1], offset=1, storage_shape=[2]), "TENSOR_LAYOUT"),
    "a huge stride": (l1(2, strides=[HUGE], storage_shape=[1]), "TENSOR_LAYOUT"),
    "a huge stride and nothing said of its storage": (l1(2, strides=[HUGE]), "TENSOR_LAYOUT"),
    "an offset below 0": (l1(1, offset=-1), "TENSOR_LAYOUT"),
    "an offset behind the storage": (l1(1, offset=1, storage_shape=[1]), "TENSOR_LAYOUT"),
    "a huge offset": (l1(1, offset=2**63 - 1), "TENSOR_LAYOUT"),
    "33 dimensions": (l1(*[1] * 33), "TENSOR_LAYOUT"),
    "32 dimensions": (l1(*[1] * 32), "SHAPE_MISMATCH"),  # travels, but the operator takes 8
    "10,000 dimensions": (l1(*[1] * 10_000), "TENSOR_LAYOUT"),
    "fewer strides than dimensions": (l1(1, 1, strides=[1]), "TENSOR_LAYOUT"),
    "a huge storage": (l1(1, storage_shape=[HUGE]), "TENSOR_LAYOUT"),
    "a storage below 0": (l1(1, storage_shape=[-1]), "TENSOR_LAYOUT"),
    "a byte too few": (l1(storage=ONE[:3]), "TENSOR_LAYOUT"),
    "a byte too many": (l1(storage=ONE + b"\0"), "TENSOR_LAYOUT"),
    "no bytes": (l1(storage=b""), "TENSOR_LAYOUT"),
    "an unknown dtype": (l1(dtype=6), "DTYPE_UNSUPPORTED"),
    "a dtype below 0": (l1(dtype=-1), "DTYPE_UNSUPPORTED"),
    "no dtype": (l1(dtype=0), "DTYPE_UNSUPPORTED"),
    "an unknown format": (l1(format=10_000), "TENSOR_LAYOUT"),
    "an output whose elements are one": (output(4, strides=[0]), "TENSOR_LAYOUT"),
    "an output whose rows overlap": (output(2, 2, strides=[1, 1]), "TENSOR_LAYOUT"),
    "an output of another shape": (output(5), "SHAPE_MISMATCH"),
    "a huge output": (output(HUGE), "SHAPE_MISMATCH"),
    "a huge output's storage": (output(4, storage=ONE, storage_shape=[HUGE]), "TENSOR_LAYOUT"),
    "an output's storage that is not sent": (
        request_of(L1, [tensor(n, 4) for n in ("grad_output", "self", "target", "grad_input")]),
        "TENSOR_LAYOUT",
    ),
    "one storage too few": (request_of(L1, [tensor("self")]), "ARGUMENT_MISSING"),
    "one storage too many": (wire.long_call(1) + b"\x12\x02\x7a\x00", "TENSOR_LAYOUT"),
    "4,000 storages too many": (wire.long_call(1) + b"\x12\x02\x7a\x00" * 4_000, "TENSOR_LAYOUT"),
    "10,000 storages too many": (
        wire.long_call(1) + b"\x12\x02\x7a\x00" * 10_000,
        "MESSAGE_MALFORMED",
    ),
    "a storage without data": (wire.long_call(1) + b"\x12\x00", "MESSAGE_MALFORMED"),
    "a call in 4,000 pieces": (b"\x0a\x02\x78\x00" * 4_000 + wire.long_call(1), "OK"),
    "a call in 30,000 pieces": (
        b"\x0a\x02\x78\x00" * 30_000 + wire.long_call(1),
        "MESSAGE_MALFORMED",
    ),
    "a call of more than 64 KiB": (request_of("x" * 65536, []), "MESSAGE_MALFORMED"),
    "a name of 60 KiB": (request_of("x" * 60_000, []), "OPERATOR_UNKNOWN"),
    "a name of 60 KiB of four-byte characters": (
        request_of("😀" * 15_000, []),
        "OPERATOR_UNKNOWN",
    ),
    "a parameter of 60 KiB": (request_of(L1, [tensor("x" * 60_000)]), "ARGUMENT_UNKNOWN"),
    "a parameter of 60 KiB of control characters": (
        request_of(L1, [tensor("\1" * 60_000)]),
        "ARGUMENT_UNKNOWN",
    ),
    "no operator": (b"", "OPERATOR_UNKNOWN"),
    "an argument twice": (request_of(L1, [tensor("self")] * 2, ONE, ONE), "MESSAGE_MALFORMED"),
    "an argument 10,000 times": (request_of(L1, [tensor("self")] * 3_000), "MESSAGE_MALFORMED"),
}


@pytest.mark.parametrize(("request_bytes", "reason"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_refused_for_its_own_reason(
    channel: grpc.Channel, request_bytes: bytes, reason: str
) -> None:
    assert wire.refusal(channel, "Execute", request_bytes) == reason


@pytest.mark.parametrize("axes", [(0, HUGE), (HUGE, 0), (0, 2**20, 2**20), (2**20, 0, 2**20)])
def test_a_huge_tensor_without_elements_sums_to_zero_at_once(
    channel: grpc.Channel, axes: tuple[int, ...]
) -> None:
    answer = pb.ExecuteResponse.FromString(
        wire.ask(
            channel,
            "Execute",
            request_of(
                KL,
                [
                    tensor("grad_output"),
                    tensor("self", *[1] * len(axes), stored=False),
                    tensor("target", *axes),
                ],
                ONE,
                b"",
            ),
        )
    )
    assert np.frombuffer(answer.storage[0].data, np.float32).tolist() == [0.0]


def test_a_call_in_half_a_million_pieces_is_put_together_in_time(channel: grpc.Channel) -> None:
    """One after the other, 2^19 joins of half a MiB on average would copy 256 GiB."""
    pieces = b"\x0a\x02\x78\x00" * 2**19
    assert wire.refusal(channel, "Execute", pieces + wire.long_call(1)) == "MESSAGE_MALFORMED"


@LINUX
def test_plan_refuses_a_large_call_before_it_reads_it() -> None:
    """Each of the 8 million arguments would be an object of many times its 2 bytes."""
    arguments = b"\x1a\x00" * (8 * MIB)
    request = b"\x0a" + b"\x80\x80\x80\x08" + arguments  # the length is 2^24
    with running_server(LONG) as server, wire.bare_channel(server.target) as channel:
        assert wire.refusal(channel, "Plan", wire.long_call(1)) != "MESSAGE_MALFORMED"
        before = wire.peak_bytes(server.process.pid)
        assert wire.refusal(channel, "Plan", request) == "MESSAGE_MALFORMED"
        assert wire.peak_bytes(server.process.pid) - before < 8 * len(request)


@LINUX
def test_claims_cost_no_memory(server: ServerProcess, channel: grpc.Channel) -> None:
    """All claims, again and again. The first round fills caches and threads."""

    def send_all() -> None:
        for request, _ in CLAIMS.values():
            wire.refusal(channel, "Execute", request)

    for _ in range(5):
        send_all()
    before = wire.resident_bytes(server.process.pid)
    for _ in range(10):
        send_all()
    assert wire.resident_bytes(server.process.pid) - before < 32 * MIB
    info = wire.server_info(channel)
    assert (info.calls_in_flight, info.bytes_in_flight) == (0, 0)


def test_the_server_says_of_none_of_them_that_it_is_a_bug(server: ServerProcess) -> None:
    assert server.stop() == 0
    assert '"traceback"' not in server.log.read_text()

"""Any bytes, claims that cannot be, a million mutants: a status or an answer, and nothing stays."""

import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc.status_pb2 import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.summary import figures

from npucall.exchange import Begin, Chunk, Error
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.frames import (
    join_begin,
    join_cancel,
    join_chunk,
    join_end,
    split_response_frame,
)
from npucall_client.testing import ServerProcess, running_server

from . import wire
from .wire import request_of, tensor

KL, L1 = "aclnnKlDivBackward", "aclnnL1LossBackward"
INPUTS = ("grad_output", "self", "target")
ONE = b"\0\0\x80\x3f"
HUGE = 2**60
MIB = 2**20
LONG = "--max-message-bytes=64MiB"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
GROWTH = 32 * MIB
"""Far less than the bytes that are sent, all of which a server would have to keep to grow so."""

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


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """Bounded, so that a mutant that asks for much is refused instead of computed.

    In the end none of what it got was a bug: the log has no traceback.
    """
    flags = "--memory-limit=64MiB", LONG, "--log-calls=errors"
    with running_server(*flags) as server:
        yield server
        assert server.stop() == 0
        assert '"traceback"' not in server.log.read_text()


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with wire.bare_channel(server.target) as channel:
        yield channel
        info = wire.server_info(channel)
        assert (info.calls_in_flight, info.bytes_in_flight) == (0, 0)


VALID = [
    wire.long_call(2, 3),
    request_of(L1, [tensor(name, 2) for name in INPUTS], *[ONE * 2] * 3),
    request_of(
        L1,
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
    pb.GetOperatorRequest(operator=KL).SerializeToString(),
]


def mutant(chance: random.Random, message: bytes, most: int = 2) -> bytes:
    """Some of its bytes changed, taken out, doubled, put in or cut off."""
    found = bytearray(message)
    for _ in range(chance.randint(1, most)):
        start = chance.randint(0, len(found))
        end = min(start + chance.randint(0, 12), len(found))
        match chance.randrange(6):
            case 0 | 1 if start < len(found):
                found[start] = chance.randrange(256)
            case 2:
                del found[start:end]
            case 3:
                found[start:start] = found[start:end]
            case 4:
                found[start:start] = chance.randbytes(chance.randint(1, 12))
            case 5:
                del found[max(start, 1) :]
    return bytes(found)


MUTANTS = st.builds(
    mutant, st.randoms(use_true_random=False), st.sampled_from(VALID), st.integers(1, 6)
)


@pytest.mark.parametrize("examples", [100, pytest.param(100_000, marks=pytest.mark.long)])
def test_any_bytes_to_any_method_are_answered(channel: grpc.Channel, examples: int) -> None:
    for request in VALID[:-1]:  # what the mutants come from
        assert wire.refusal(channel, "Execute", request) == "OK"
    assert wire.refusal(channel, "Erase", b"") == "UNIMPLEMENTED"

    @settings(max_examples=examples)
    @given(method=st.sampled_from(wire.METHODS), request=st.binary(max_size=2000) | MUTANTS)
    def check(method: str, request: bytes) -> None:
        assert wire.refusal(channel, method, request) in REASONS

    check()


def l1(*target: int, storage: bytes = ONE, **spec: Any) -> bytes:
    """A valid call of L1 on tensors of rank 0, but for ``target``."""
    tensors = [tensor("grad_output"), tensor("self"), tensor("target", *target, **spec)]
    return request_of(L1, tensors, ONE, ONE, storage)


def output(*shape: int, storage: bytes | None = None, **spec: object) -> bytes:
    """A valid call of L1 on 4 elements, but for the output that it gives."""
    out = tensor("grad_input", *shape, stored=storage is not None, **spec)
    data = [ONE * 4] * 3 + ([] if storage is None else [storage])
    return request_of(L1, [*(tensor(name, 4) for name in INPUTS), out], *data)


STORAGE, PIECE = b"\x12\x02\x7a\x00", b"\x0a\x02\x78\x00"
"""A further storage, and a piece of a call."""
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
        request_of(L1, [tensor(name, 4) for name in (*INPUTS, "grad_input")]),
        "TENSOR_LAYOUT",
    ),
    "one storage too few": (request_of(L1, [tensor("self")]), "ARGUMENT_MISSING"),
    "one storage too many": (wire.long_call(1) + STORAGE, "TENSOR_LAYOUT"),
    "4,000 storages too many": (wire.long_call(1) + STORAGE * 4_000, "TENSOR_LAYOUT"),
    "10,000 storages too many": (wire.long_call(1) + STORAGE * 10_000, "MESSAGE_MALFORMED"),
    "a storage without data": (wire.long_call(1) + b"\x12\x00", "MESSAGE_MALFORMED"),
    "a call in 4,000 pieces": (PIECE * 4_000 + wire.long_call(1), "OK"),
    # One after the other, 2^19 joins of half a MiB on average would copy 256 GiB.
    "a call in half a million pieces": (PIECE * 2**19 + wire.long_call(1), "MESSAGE_MALFORMED"),
    "a call of more than 64 KiB": (request_of("x" * 65536, []), "MESSAGE_MALFORMED"),
    "a name of 60 KiB": (request_of("x" * 60_000, []), "OPERATOR_UNKNOWN"),
    "a name of four-byte characters": (request_of("😀" * 15_000, []), "OPERATOR_UNKNOWN"),
    "a parameter of 60 KiB": (request_of(L1, [tensor("x" * 60_000)]), "ARGUMENT_UNKNOWN"),
    "one of control characters": (request_of(L1, [tensor("\1" * 60_000)]), "ARGUMENT_UNKNOWN"),
    "no operator": (b"", "OPERATOR_UNKNOWN"),
    "an argument twice": (request_of(L1, [tensor("self")] * 2, ONE, ONE), "MESSAGE_MALFORMED"),
    "an argument 3,000 times": (request_of(L1, [tensor("self")] * 3_000), "MESSAGE_MALFORMED"),
}


JUNK = [bytes([byte]) * 2**19 for byte in (0x00, 0x0A, 0x12, 0x1A, 0x0B, 0x7A, 0x80, 0xFF)]


@pytest.mark.more
@LINUX
def test_a_claim_is_refused_for_its_own_reason_and_costs_no_memory(
    server: ServerProcess, channel: grpc.Channel
) -> None:
    """Nor does junk to any method. The first rounds fill caches and threads."""

    def send_all() -> None:
        for method in wire.METHODS:
            assert {wire.refusal(channel, method, junk) for junk in JUNK} <= REASONS
        found = {name: wire.refusal(channel, "Execute", claim) for name, (claim, _) in rows}
        assert found == {name: reason for name, (_, reason) in rows}

    rows = CLAIMS.items()
    for _ in range(4):
        send_all()
    before = wire.resident_bytes(server.process.pid)
    for _ in range(8):
        send_all()
    assert wire.resident_bytes(server.process.pid) - before < GROWTH


@pytest.mark.more
def test_a_huge_tensor_without_elements_sums_to_zero_at_once(channel: grpc.Channel) -> None:
    for axes in (0, HUGE), (HUGE, 0), (0, 2**20, 2**20), (2**20, 0, 2**20):
        unread = tensor("self", *[1] * len(axes), stored=False)
        tensors = [tensor("grad_output"), unread, tensor("target", *axes)]
        answer = wire.ask(channel, "Execute", request_of(KL, tensors, ONE, b""))
        (storage,) = pb.ExecuteResponse.FromString(answer).storage
        assert np.frombuffer(storage.data, np.float32).tolist() == [0.0]


@pytest.mark.more
@LINUX
def test_plan_refuses_a_large_call_before_it_reads_it(
    server: ServerProcess, channel: grpc.Channel
) -> None:
    """Each of the 8 million arguments would be an object of many times its 2 bytes."""
    request = b"\x0a" + b"\x80\x80\x80\x08" + b"\x1a\x00" * (8 * MIB)  # the length is 2^24
    assert wire.refusal(channel, "Plan", wire.long_call(1)) != "MESSAGE_MALFORMED"
    before = wire.peak_bytes(server.process.pid)
    assert wire.refusal(channel, "Plan", request) == "MESSAGE_MALFORMED"
    assert wire.peak_bytes(server.process.pid) - before < 8 * len(request)


FRAMES = 1_000_000
FRAMES_A_STREAM = 300
ALLOWED = REASONS | {"SHARED_MEMORY", "CANCELLED", "DEADLINE", "STALLED", "QUEUE_FULL", "BUSY"}
"""A mutant may name a region, and a call of a stream may be cancelled, or its time be over."""
CHUNKED = pb.ExecuteRequest(call=pb.ExecuteRequest.FromString(VALID[1]).call).SerializeToString()
"""A call of three storages of 8 bytes, which follow."""


def frames(chance: random.Random, count: int) -> Iterator[bytes]:
    """Of which most can be read, so that the stream lives; it ends with some that cannot."""
    for call_id in range(1, count - 5):
        if call_id % 5:
            request = mutant(chance, chance.choice(VALID))
            yield join_begin(call_id, Begin(request, timeout_ns=10**10))
        elif call_id % 2:
            yield join_begin(call_id, Begin(mutant(chance, VALID[0]), chunked=True))
        else:
            yield join_cancel(call_id - 5)
    chunks = [join_chunk(count, Chunk(number, 0, bytes(8))) for number in range(3)]
    whole = [join_begin(count, Begin(CHUNKED, chunked=True)), *chunks, join_end(count)]
    yield from (frame if chance.randrange(4) else mutant(chance, frame) for frame in whole)
    yield mutant(chance, join_begin(count + 1, Begin(VALID[1])))


def send_frames(channel: Any, seed: int, count: int, seen: Counter[str]) -> None:
    chance, sent = random.Random(seed), 0
    method = channel.stream_stream(f"/{wire.SERVICE}/ExecuteStream")
    while sent < count:
        given = list(frames(chance, FRAMES_A_STREAM))
        try:
            for answer in method(iter(given), timeout=60):
                _, frame = split_response_frame(answer)
                details = None
                if isinstance(frame, Error):
                    details = wire.details_in(Status.FromString(frame.status))
                seen[details.reason if details else "OK"] += 1
        except grpc.RpcError as error:
            seen[wire.reason_of(error)] += 1
        sent += len(given)


@LINUX
@pytest.mark.long
def test_a_million_mutated_frames_are_answered_and_leave_nothing_behind(
    server: ServerProcess, channel: grpc.Channel
) -> None:
    seen: Counter[str] = Counter()
    send_frames(channel, 1, 5_000, seen)
    before = wire.resident_bytes(server.process.pid)
    send_frames(channel, 2, FRAMES - 5_000, seen)
    grown = wire.resident_bytes(server.process.pid) - before
    figures(f"{FRAMES:,} frames", dict(seen), f"+{grown / MIB:.1f} MiB")
    assert grown < 2 * GROWTH
    assert seen.keys() <= ALLOWED

"""ExecuteStream with ``early_outputs``: outputs go while the call's own chunks still come."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npucall.compute import evaluate
from npucall.exchange import Event, State, after
from npucall.limits import INLINE_BYTES
from npucall.operators import DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC
from npucall.v1 import operator_service_pb2 as pb
from npucall_server.arrivals import Computed
from npucall_server.devices.cpu import CpuDevice
from npucall_server.services.streams.early import EarlyFrames

from .scripted import PATIENCE, prepared, until
from .streams import INPUTS, MANY, Served, serving, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .streams import Peer

KIB = 2**10
CHUNK = 512 * KIB
ROUNDS = 3
SIZE = ROUNDS * CHUNK - 4
"""Of a tensor: the last chunk is shorter."""
ELEMENTS = SIZE // 4
CALL = prepared(ELEMENTS)
DATA = [
    np.random.default_rng(seed).standard_normal(ELEMENTS).astype(np.float32).tobytes()
    for seed in range(3)
]
EXPECTED = bytes(evaluate.run(CALL, dict(zip(INPUTS, DATA, strict=True)))[0])


@contextmanager
def serving_cpu(lanes: int = 1, **given: Any) -> Iterator[Served]:
    device = CpuDevice(DEFAULT_SOC, DEFAULT_VARIANT, lanes)
    with serving(device, **{"chunk_bytes": CHUNK, **given}) as served:  # type: ignore[arg-type]
        yield served
    device.close()


def begin(peer: Peer, call_id: int = 1, **more: Any) -> None:
    peer.begin_chunked(call_id, elements=ELEMENTS, early_outputs=True, **more)


def send(peer: Peer, *rounds: int, call_id: int = 1) -> None:
    """A chunk of each storage, for each of these rounds."""
    for start in (number * CHUNK for number in rounds):
        for storage, data in enumerate(DATA):
            peer.chunk(call_id, storage, start, data[start : start + CHUNK])


def kinds(frames: Sequence[pb.ExecuteStreamResponse]) -> list[str | None]:
    return [frame.WhichOneof("frame") for frame in frames]


def received(frames: Sequence[pb.ExecuteStreamResponse]) -> bytes:
    """What chunks of the only output say, each of which comes next."""
    data = bytearray()
    for frame in frames:
        if frame.HasField("chunk"):
            assert (frame.chunk.storage, frame.chunk.offset) == (0, len(data))
            data += frame.chunk.data
    return bytes(data)


class Gate:
    """Has the formula wait before a block, or fail at one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.opened.set()
        self.failing_from: int | None = None
        work = type(evaluate.recipe_of(CALL).work)
        results = work._results  # type: ignore[union-attr]
        self.blocks = 0

        def watched(subject: Any, inputs: Any, index: Any) -> Any:
            self.blocks += 1
            if self.failing_from is not None and self.blocks >= self.failing_from:
                raise ValueError("a bug of the formula")
            self.opened.wait(PATIENCE)
            return results(subject, inputs, index)

        monkeypatch.setattr(work, "_results", watched)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_chunk_of_the_output_comes_before_the_next_chunks_are_sent(lanes: int) -> None:
    with serving_cpu(lanes) as served, stream(served) as peer:
        begin(peer)
        send(peer, 0)
        frames = [peer.receive(), peer.receive()]
        for number in range(1, ROUNDS):
            send(peer, number)
            frames.append(peer.receive())
        peer.end(1)
        frames.append(peer.receive())
    assert kinds(frames) == ["resolved", "chunk", "chunk", "chunk", "reply"]
    assert received(frames) == EXPECTED
    reply = frames[-1].reply
    assert frames[0].resolved == reply.reply
    assert not reply.storage
    assert reply.timings.run_ns > 0
    assert [line["reason"] for line in served.lines()] == ["OK"]


def test_without_being_asked_no_output_comes_before_the_reply(gate: Gate) -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        send(peer, 0)
        until(lambda: gate.blocks > 0, "a block is computed")
        send(peer, *range(1, ROUNDS))
        peer.end(1)
        frames = [peer.receive() for _ in range(ROUNDS + 2)]
    assert kinds(frames) == ["reply", "chunk", "chunk", "chunk", "end"]
    assert received(frames) == EXPECTED


def test_outputs_that_have_room_in_the_reply_stand_there() -> None:
    elements = INLINE_BYTES // 4
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=elements, early_outputs=True)
        for storage in range(3):
            for start in range(0, INLINE_BYTES, CHUNK):
                peer.chunk(1, storage, start, bytes(CHUNK))
        peer.end(1)
        (frame,) = [peer.receive()]
    assert len(frame.reply.storage[0].data) == INLINE_BYTES


def test_a_call_that_is_not_computed_piece_by_piece_is_answered_as_ever() -> None:
    """Its inputs have the shape of the output twice, and so are computed when all have come."""
    with serving_cpu() as served, stream(served) as peer:
        request = pb.ExecuteRequest()
        request.call.operator = "aclnnSoftmaxBackward"
        for name in ("grad_output", "output"):
            argument = request.call.arguments.add(name=name, stored=True)
            argument.tensor.dtype, argument.tensor.shape[:] = 1, [ELEMENTS // 64, 64]
        request.call.arguments.add(name="dim", integer=1)
        peer.send(1, begin=pb.Begin(request=request, chunked=True, early_outputs=True))
        size = ELEMENTS // 64 * 64 * 4
        for storage in range(2):
            for start in range(0, size, CHUNK):
                peer.chunk(1, storage, start, bytes(min(CHUNK, size - start)))
        peer.end(1)
        frames = [peer.receive() for _ in range(ROUNDS + 2)]
    assert kinds(frames) == ["reply", "chunk", "chunk", "chunk", "end"]


def test_an_error_in_the_last_block_comes_behind_outputs_and_ends_the_call_alone(
    gate: Gate,
) -> None:
    with serving_cpu() as served, stream(served) as peer:
        begin(peer)
        send(peer, *range(ROUNDS - 1))
        frames = [peer.receive() for _ in range(ROUNDS)]
        gate.failing_from = gate.blocks + 1
        send(peer, ROUNDS - 1)
        assert peer.reason(1) == "INTERNAL"
        peer.end(1)
        gate.failing_from = None
        peer.begin(2)
        assert peer.receive().call_id == 2
        until(served.is_idle, "its room is free")
    assert kinds(frames) == ["resolved", "chunk", "chunk"]
    assert [line["reason"] for line in served.lines()] == ["INTERNAL", "OK"]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_call_that_ends_between_two_chunks_sends_nothing_behind_its_error(how: str) -> None:
    with serving_cpu() as served, stream(served) as peer:
        begin(peer, timeout_ns=0 if how == "cancel" else 1_500_000_000)
        send(peer, 0)
        assert kinds([peer.receive(), peer.receive()]) == ["resolved", "chunk"]
        if how == "cancel":
            peer.cancel(1)
        assert peer.reason(1) == ("CANCELLED" if how == "cancel" else "DEADLINE")
        send(peer, *range(1, ROUNDS))
        peer.end(1)
        peer.begin(2)
        assert peer.receive().call_id == 2
        until(served.is_idle, "its room is free")


def test_bytes_that_do_not_come_end_a_call_whose_outputs_have_begun() -> None:
    with serving_cpu(peer_timeout=1) as served, stream(served) as peer:
        begin(peer)
        send(peer, 0)
        assert kinds([peer.receive(), peer.receive()]) == ["resolved", "chunk"]
        assert peer.reason(1) == "STALLED"


def test_a_peer_that_goes_away_between_two_chunks_leaves_nothing() -> None:
    with serving_cpu() as served:
        with stream(served) as peer:
            begin(peer)
            send(peer, 0)
            assert kinds([peer.receive(), peer.receive()]) == ["resolved", "chunk"]
        until(served.is_at_rest, "nothing is left")
    assert [line["reason"] for line in served.lines() if line["operator"]] == ["CANCELLED"]


def test_a_peer_that_goes_away_while_a_block_is_computed_leaves_nothing(gate: Gate) -> None:
    with serving_cpu() as served:
        with stream(served) as peer:
            begin(peer)
            send(peer, 0)
            assert kinds([peer.receive(), peer.receive()]) == ["resolved", "chunk"]
            gate.opened.clear()
            blocks = gate.blocks
            send(peer, 1)
            until(lambda: gate.blocks > blocks, "a block is being computed")
        until(lambda: not served.streams._streams, "its stream has ended")
        gate.opened.set()
        until(served.is_at_rest, "nothing is left")


def test_bytes_that_are_missing_at_the_end_end_the_stream_behind_outputs() -> None:
    with serving_cpu() as served, stream(served) as peer:
        begin(peer)
        send(peer, 0)
        assert kinds([peer.receive(), peer.receive()]) == ["resolved", "chunk"]
        peer.end(1)
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"
        until(served.is_idle, "its room is free")


def test_other_calls_are_answered_between_outputs() -> None:
    with serving_cpu() as served, stream(served) as peer:
        begin(peer)
        send(peer, 0)
        assert kinds([peer.receive(), peer.receive()]) == ["resolved", "chunk"]
        peer.begin(2)
        assert peer.receive().call_id == 2
        begin(peer, 3)
        send(peer, 0, call_id=3)
        assert [(f.call_id, f.WhichOneof("frame")) for f in (peer.receive(), peer.receive())] == [
            (3, "resolved"),
            (3, "chunk"),
        ]
        send(peer, *range(1, ROUNDS))
        peer.end(1)
        first = pb.ExecuteStreamResponse(chunk=pb.Chunk(data=EXPECTED[:CHUNK]))
        assert received([first, peer.receive(), peer.receive()]) == EXPECTED
        assert peer.receive().HasField("reply")


@pytest.mark.more
def test_who_does_not_read_outputs_is_cut() -> None:
    """They are more than gRPC's windows hold."""
    many, length = 2**24, 2**20
    with serving_cpu(peer_timeout=5, chunk_bytes=length) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=many, early_outputs=True)
        for start in range(0, 4 * many, length):
            for storage in range(3):
                peer.chunk(1, storage, start, bytes(length))
        until(lambda: any(line["event"] == "cut" for line in served.lines()), "it is cut")
        until(served.is_idle, "its room is free")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    edges=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, SIZE - 1)), max_size=12, unique=True
    ),
    metadata=st.sampled_from([(), MANY]),
    chance=st.randoms(use_true_random=False),
)
def test_chunks_of_any_length_in_any_order_give_the_same_bytes(
    shared_cpu: Served, edges: list[tuple[int, int]], metadata: Any, chance: Any
) -> None:
    cuts = [sorted({0, SIZE, *(at for of, at in edges if of == storage)}) for storage in range(3)]
    ranges = [list(pairwise(each)) for each in cuts]
    with stream(shared_cpu, metadata=metadata) as peer:
        begin(peer)
        while left := [storage for storage in range(3) if ranges[storage]]:
            storage = chance.choice(left)
            start, stop = ranges[storage].pop(0)
            peer.chunk(1, storage, start, DATA[storage][start:stop])
        peer.end(1)
        peer.close()
        answers, reason = peer.answers()
    frames = answers[1]
    assert (kinds(frames), reason) == (["resolved", *["chunk"] * ROUNDS, "reply"], "OK")
    assert received(frames) == EXPECTED
    assert obeys_the_table(frames)


@pytest.fixture(scope="module")
def shared_cpu() -> Iterator[Served]:
    with serving_cpu() as served:
        yield served


EVENTS = {
    "resolved": Event.RESOLVED, "chunk": Event.OUTPUT_CHUNK, "error": Event.ERROR,
    "end": Event.OUTPUT_END,
}  # fmt: skip


def obeys_the_table(frames: Sequence[pb.ExecuteStreamResponse]) -> bool:
    """Whether these frames lead from a complete call to one that has ended."""
    state: State | None = State.COMPLETE
    for number, frame in enumerate(frames):
        kind = frame.WhichOneof("frame")
        follows = number + 1 < len(frames)
        chunked = Event.REPLY_CHUNKED if follows else Event.REPLY
        state = after(state, EVENTS.get(str(kind), chunked)) if state is not None else None
    return state is State.ENDED


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 2), st.sampled_from(["begin", "chunk", "end", "cancel"])),
        max_size=16,
    )
)
def test_every_call_of_any_order_of_frames_is_answered_as_the_table_says(
    shared_cpu: Served, steps: list[tuple[int, str]]
) -> None:
    """Only orders that break no rule; ``end`` sends what is missing before it."""
    sent: dict[int, int] = {}
    open_calls: set[int] = set()
    with stream(shared_cpu) as peer:
        for call_id, step in [*steps, (1, "end"), (2, "end")]:
            if step == "begin" and call_id not in sent:
                begin(peer, call_id)
                sent[call_id] = 0
                open_calls.add(call_id)
            elif step == "chunk" and call_id in open_calls and sent[call_id] < ROUNDS:
                send(peer, sent[call_id], call_id=call_id)
                sent[call_id] += 1
            elif step == "cancel":
                peer.cancel(call_id)
            elif step == "end" and call_id in open_calls:
                send(peer, *range(sent[call_id], ROUNDS), call_id=call_id)
                peer.end(call_id)
                open_calls.remove(call_id)
        peer.close()
        answers, reason = peer.answers()
    assert reason == "OK"
    assert answers.keys() == sent.keys()
    for frames in answers.values():
        assert obeys_the_table(frames)
        whole = frames[-1].HasField("reply")
        assert not whole or received(frames) == EXPECTED
        assert EXPECTED.startswith(received(frames))


@given(
    length=st.integers(1, 9),
    size=st.integers(1, 40),
    dones=st.lists(st.integers(1, 40), max_size=6),
    takes=st.lists(st.integers(0, 4), max_size=6),
)
def test_frames_that_are_taken_at_any_time_are_all_chunks_in_order(
    length: int, size: int, dones: list[int], takes: list[int]
) -> None:
    output = bytes(range(size))
    frames, found = EarlyFrames(7, b"", length), list[bytes]()
    told = sorted({min(done, size) for done in dones} | {size})
    for number, done in enumerate(told):
        before = frames.has_more
        assert frames.add(Computed([output], done, size)) or frames.has_more == before
        found += islice(frames, takes[number] if number < len(takes) else 0)
    frames.end(iter([b"the reply"]))
    found += frames
    assert found.pop() == b"the reply"
    read = [pb.ExecuteStreamResponse.FromString(frame) for frame in found]
    assert kinds(read[:1]) == ["resolved"]
    assert received(read) == output
    assert {len(frame.chunk.data) for frame in read[1:-1]} <= {length}


def test_frames_that_were_not_taken_before_a_failure_are_not_sent() -> None:
    frames = EarlyFrames(7, b"", 1)
    frames.add(Computed([b"abcd"], 3, 4))
    assert kinds([pb.ExecuteStreamResponse.FromString(next(frames)) for _ in range(2)]) == [
        "resolved",
        "chunk",
    ]
    frames.end(iter([b"the error"]), failed=True)
    assert frames.has_more
    assert list(frames) == [b"the error"]
    assert not frames.has_more

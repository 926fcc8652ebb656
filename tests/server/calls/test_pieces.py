"""ExecuteStream on the device ``cpu``: calls that are computed while their chunks come.

With ``early_outputs`` outputs go while the call's own chunks still come.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.server.fakes import INPUTS, PATIENCE, prepared, until
from tests.server.raw import RawStream, stream
from tests.server.serving import Served, serving

from npucall.compute import evaluate
from npucall.compute.recipes import recipe_of
from npucall.errors import ArgumentError, DeviceLostError
from npucall.limits import INLINE_BYTES
from npucall.operators import DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC
from npucall.v1 import operator_service_pb2 as pb
from npucall_server.carriers.multiplex.call import StreamCall
from npucall_server.devices.cpu import CpuDevice

CHUNK, ROUNDS = 512 * 2**10, 3
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
def serving_cpu(lanes: int = 1, **settings: Any) -> Iterator[Served]:
    """A server on the real device, which is closed when nothing is left."""
    device = CpuDevice(DEFAULT_SOC, DEFAULT_VARIANT, lanes)
    with serving(device, **{"chunk_bytes": CHUNK, **settings}) as served:
        yield served
    device.close()


def begin(peer: RawStream, call_id: int = 1, *, early: bool = False, **more: Any) -> None:
    peer.begin_chunked(call_id, elements=ELEMENTS, early_outputs=early, **more)


def send(peer: RawStream, *rounds: int, call_id: int = 1) -> None:
    """A chunk of each storage, for each of these rounds."""
    for start in (number * CHUNK for number in rounds):
        for storage, data in enumerate(DATA):
            peer.chunk(call_id, storage, start, data[start : start + CHUNK])


def received(frames: Sequence[pb.ExecuteStreamResponse]) -> bytes:
    """What chunks of the only output say, each of which comes next."""
    data = bytearray()
    for frame in frames:
        if frame.HasField("chunk"):
            assert (frame.chunk.storage, frame.chunk.offset) == (0, len(data))
            data += frame.chunk.data
    return bytes(data)


def the_call(served: Served, call_id: int = 1) -> StreamCall:
    """A call that is open, once it is computed piece by piece."""

    def found() -> list[StreamCall]:
        calls = [stream._calls._open.get(call_id) for stream in tuple(served.streams._streams)]
        return [call for call in calls if call and call.execution._arrivals is not None]

    until(lambda: bool(found()), "it is computed piece by piece")
    return found()[0]


def computed(call: StreamCall) -> int:
    """Bytes of each input that have been handed to the formula."""
    assert call.execution._arrivals is not None
    return 4 * call.execution._arrivals._taken


def half_computed(served: Served, peer: RawStream, *, early: bool) -> None:
    """A call of which one round is computed, and sent."""
    begin(peer, early=early)
    send(peer, 0)
    call = the_call(served)
    until(lambda: computed(call) == CHUNK, "the first round is computed")
    assert not early or peer.kinds(2) == ["resolved", "chunk"]


class Formula:
    """The operator's own formula, that waits before a block or refuses from one on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.opened.set()
        self.blocks, self.failing_from = 0, 10**9
        work = type(recipe_of(CALL).work)
        results = work.results  # type: ignore[union-attr]

        def watched(subject: Any, inputs: Any, index: Any) -> Any:
            self.blocks += 1
            if self.blocks >= self.failing_from:
                raise ArgumentError("a value that the formula refuses")
            assert self.opened.wait(PATIENCE)
            return results(subject, inputs, index)

        monkeypatch.setattr(work, "results", watched)


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> Formula:
    return Formula(monkeypatch)


both = pytest.mark.parametrize("early", [False, True])


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_chunk_of_the_output_comes_before_the_next_chunks_are_sent(lanes: int) -> None:
    with serving_cpu(lanes) as served, stream(served) as peer:
        begin(peer, early=True)
        send(peer, 0)
        frames = [peer.receive(), peer.receive()]
        for number in range(1, ROUNDS):
            send(peer, number)
            frames.append(peer.receive())
        peer.end(1)
        frames.append(peer.receive())
    kinds = [frame.WhichOneof("frame") for frame in frames]
    assert kinds == ["resolved", "chunk", "chunk", "chunk", "reply"]
    assert received(frames) == EXPECTED
    assert frames[0].resolved == frames[-1].reply.reply
    assert not frames[-1].reply.storage
    assert frames[-1].reply.timings.run_ns > 0
    assert served.reasons() == ["OK"]


def test_without_being_asked_no_output_comes_before_the_reply_though_it_is_computed() -> None:
    """What has been computed is freed; waiting for bytes is no time of the device."""
    with serving_cpu() as served, stream(served) as peer:
        begin(peer)
        call = the_call(served)
        arrivals = call.execution._arrivals
        assert arrivals is not None
        for number in range(ROUNDS):
            send(peer, number)
            done = min((number + 1) * CHUNK, SIZE)
            state = done, 0
            until(lambda state=state: (computed(call), arrivals.held_bytes) == state, "it is freed")  # type: ignore[misc]
        assert not call.execution._storages
        peer.begin(2)
        assert peer.ids(1) == [2]
        peer.end(1)
        frames = [peer.receive() for _ in range(ROUNDS + 2)]
    kinds = [frame.WhichOneof("frame") for frame in frames]
    assert kinds == ["reply", "chunk", "chunk", "chunk", "end"]
    assert received(frames) == EXPECTED
    timings, line = frames[0].reply.timings, served.events("call")[-1]
    assert arrivals.waited_ns > 0
    assert timings.run_ns > 0
    assert timings.run_ns + timings.queue_ns + arrivals.waited_ns <= line["total_ns"]


@both
def test_other_calls_are_answered_while_a_large_one_is_not_whole(early: bool) -> None:
    with serving_cpu() as served, stream(served) as peer:
        half_computed(served, peer, early=early)
        peer.begin(2)
        assert peer.ids(1) == [2]
        begin(peer, 3, early=True)
        send(peer, 0, call_id=3)
        found = [peer.receive(), peer.receive()]
        assert [frame.call_id for frame in found] == [3, 3]
        assert [frame.WhichOneof("frame") for frame in found] == ["resolved", "chunk"]
        send(peer, *range(1, ROUNDS))
        peer.end(1)
        first = pb.ExecuteStreamResponse(chunk=pb.Chunk(data=EXPECTED[:CHUNK] if early else b""))
        frames = [peer.receive() for _ in range(ROUNDS + (0 if early else 2))]
        assert {frame.call_id for frame in frames} == {1}
        assert received([first, *frames]) == EXPECTED


def test_the_reader_goes_on_while_a_block_is_computed(formula: Formula) -> None:
    formula.opened.clear()
    with serving_cpu(lanes=2) as served, stream(served) as peer:
        begin(peer)
        call = the_call(served)
        send(peer, 0)
        until(lambda: formula.blocks > 0, "the first block is computed")
        send(peer, *range(1, ROUNDS))
        arrivals: Any = call.execution._arrivals
        until(lambda: arrivals.held_bytes == 3 * (SIZE - CHUNK), "two chunks wait")
        formula.opened.set()
        peer.end(1)
        assert peer.kinds(1) == ["reply"]


def test_outputs_that_have_room_in_the_reply_stand_there() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=INLINE_BYTES // 4, early_outputs=True)
        peer.chunks(1, INLINE_BYTES)
        assert len(peer.receive().reply.storage[0].data) == INLINE_BYTES


def test_a_call_that_is_not_computed_piece_by_piece_is_answered_as_ever() -> None:
    """Its inputs have the shape of the output twice, and so are computed when all have come."""
    with serving_cpu() as served, stream(served) as peer:
        request = pb.ExecuteRequest()
        request.call.operator = "aclnnSoftmaxBackward"
        for name in ("grad_output", "output"):
            argument: Any = request.call.arguments.add(name=name, stored=True)
            argument.tensor.dtype, argument.tensor.shape[:] = 1, [ELEMENTS // 64, 64]
        request.call.arguments.add(name="dim", integer=1)
        peer.send(1, begin=pb.Begin(request=request, chunked=True, early_outputs=True))
        for storage in range(2):
            peer.chunk(1, storage, 0, bytes(ELEMENTS // 64 * 256))
        peer.end(1)
        assert peer.kinds(ROUNDS + 2) == ["reply", "chunk", "chunk", "chunk", "end"]


# --- What ends a call in the middle ---------------------------------------------------------------


@both
def test_a_cancel_ends_a_call_that_is_half_computed_and_nothing_is_sent_behind_it(
    early: bool,
) -> None:
    with serving_cpu() as served, stream(served) as peer:
        half_computed(served, peer, early=early)
        peer.cancel(1)
        assert peer.reason(1) == "CANCELLED"
        until(served.is_idle, "its room is free")
        send(peer, *range(1, ROUNDS))
        peer.end(1)
        peer.begin(2)
        assert peer.ids(1) == [2]
    assert served.reasons() == ["CANCELLED", "OK"]


@pytest.mark.parametrize("ends", ["while it waits for bytes", "while it computes"])
def test_a_deadline_ends_a_call_that_is_half_computed(ends: str, formula: Formula) -> None:
    if ends == "while it computes":
        formula.opened.clear()
    with serving_cpu() as served, stream(served) as peer:
        begin(peer, timeout_ns=100_000_000)
        send(peer, 0)
        assert peer.reason(1) == "DEADLINE"
        formula.opened.set()
        until(served.is_idle, "its room is free")
    assert served.reasons() == ["DEADLINE"]


@both
def test_a_formula_that_refuses_ends_its_call_alone_and_once(early: bool, formula: Formula) -> None:
    with serving_cpu() as served, stream(served) as peer:
        half_computed(served, peer, early=early)
        arrivals: Any = the_call(served).execution._arrivals
        formula.failing_from = formula.blocks + 1
        send(peer, 1)
        assert peer.reason(1) == "ARGUMENT_INVALID"
        until(served.is_idle, "its room is free")
        send(peer, 2)
        peer.end(1)
        formula.failing_from = 10**9
        peer.begin(2)
        assert peer.ids(1) == [2]
        assert arrivals.held_bytes == 0
    assert served.reasons() == ["ARGUMENT_INVALID", "OK"]


def test_a_device_that_is_lost_ends_a_call_at_its_next_block() -> None:
    with serving_cpu() as served, stream(served) as peer:
        begin(peer)
        the_call(served)
        served.executor.lose(lambda: DeviceLostError("lost"))
        send(peer, 0)
        assert peer.reason(1) == "DEVICE_LOST"


@both
def test_a_peer_that_goes_away_while_a_block_is_computed_leaves_nothing(
    early: bool, formula: Formula
) -> None:
    with serving_cpu() as served:
        with stream(served) as peer:
            half_computed(served, peer, early=early)
            formula.opened.clear()
            blocks = formula.blocks
            send(peer, 1)
            until(lambda: formula.blocks > blocks, "a block is being computed")
        until(lambda: not served.streams._streams, "its stream has ended")
        formula.opened.set()
        until(served.is_at_rest, "nothing is left")


def test_a_call_is_not_late_before_it_has_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody would give the room back."""
    late: list[object] = []
    with serving_cpu() as served, stream(served) as peer:
        admit = served.executor.admit

        def watched(*arguments: Any) -> None:
            admit(*arguments)
            (open_stream,) = served.streams._streams
            late.extend(open_stream._calls.late(served.core.peers)[0])

        monkeypatch.setattr(served.executor, "admit", watched)
        begin(peer, timeout_ns=1)
        assert peer.reason(1) == "DEADLINE"
        until(served.is_idle, "its room is free")
    assert late == []

"""ExecuteStream on the device ``cpu``: calls that are computed while their chunks come."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.compute import evaluate
from npucall.errors import ArgumentError, DeviceLostError
from npucall.exchange import State
from npucall.operators import DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC
from npucall_server.devices.cpu import CpuDevice

from .scripted import PATIENCE, prepared, until
from .streams import INPUTS, Served, serving, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.executor import Admission
    from npucall_server.services.streams.call import StreamCall

    from .streams import Peer

ELEMENTS = 65_536
CHUNK = 65_536
CHUNKS = 4 * ELEMENTS // CHUNK
CALL = prepared(ELEMENTS)
DATA = [
    np.random.default_rng(seed).standard_normal(ELEMENTS).astype(np.float32).tobytes()
    for seed in range(3)
]


@contextmanager
def serving_cpu(lanes: int = 1, **settings: Any) -> Iterator[Served]:
    """A server on the real device, which is closed when nothing is left."""
    device = CpuDevice(DEFAULT_SOC, DEFAULT_VARIANT, lanes)
    with serving(device, **settings) as served:  # type: ignore[arg-type]  # another device
        yield served
    device.close()


def send(peer: Peer, chunk: int, call_id: int = 1) -> None:
    """A chunk of each storage."""
    start = chunk * CHUNK
    for storage, data in enumerate(DATA):
        peer.chunk(call_id, storage, start, data[start : start + CHUNK])


def the_call(served: Served, call_id: int = 1) -> StreamCall:
    """A call that is open, once it is."""
    until(lambda: any(call_id in s._calls._open for s in served.streams._streams), "it is open")
    (call,) = [
        s._calls._open[call_id] for s in served.streams._streams if call_id in s._calls._open
    ]
    until(lambda: call.execution._arrivals is not None, "it is computed piece by piece")
    return call


def computed(call: StreamCall) -> int:
    """Elements that have been handed to the formula."""
    assert call.execution._arrivals is not None
    return call.execution._arrivals._taken


def has_computed(call: StreamCall, elements: int) -> bool:
    return computed(call) == elements


def reasons_of_calls(served: Served) -> list[str]:
    """Without those of streams: gRPC may tell the end of a connection as the end of its frames."""
    return [line["reason"] for line in served.lines() if line["operator"]]


class Formula:
    """Stands for the operator's own formula in a test's call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks = 0
        self.failing_at = 10**9
        self.gate: threading.Event | None = None
        work = evaluate.recipe_of
        results = type(work(CALL).work)._results  # type: ignore[union-attr]

        def watched(subject: Any, inputs: Any, index: Any) -> Any:
            self.blocks += 1
            if self.blocks >= self.failing_at:
                raise ArgumentError("a value that the formula refuses")
            if self.gate is not None:
                self.gate.wait(PATIENCE)
            return results(subject, inputs, index)

        monkeypatch.setattr(type(work(CALL).work), "_results", watched)


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> Formula:
    return Formula(monkeypatch)


def test_a_call_is_computed_while_its_chunks_come() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        send(peer, 0)
        send(peer, 1)
        call = the_call(served)
        until(lambda: computed(call) == 32_768, "half of it is computed")
        assert not call.execution._storages
        send(peer, 2)
        send(peer, 3)
        peer.end(1)
        reply = peer.receive().reply
    (expected,) = evaluate.run(CALL, dict(zip(INPUTS, DATA, strict=True)))
    assert reply.storage[0].data == bytes(expected)
    assert reply.timings.run_ns > 0


def test_no_answer_comes_before_the_end(formula: Formula) -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        for chunk in range(CHUNKS):
            send(peer, chunk)
        until(lambda: formula.blocks == CHUNKS, "all is computed")
        peer.begin(2)
        assert peer.receive().call_id == 2
        peer.end(1)
        assert peer.receive().call_id == 1


def test_what_has_been_computed_is_freed() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        call = the_call(served)
        assert call.execution._arrivals is not None
        for chunk, elements in enumerate((16_384, 32_768, 49_152, 65_536)):
            send(peer, chunk)
            until(partial(has_computed, call, elements), "the chunk is computed")
            assert call.execution._arrivals.held_bytes == 0
        peer.end(1)
        peer.receive()


def test_time_spent_waiting_for_bytes_is_no_time_of_the_device() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        call = the_call(served)
        for chunk in range(CHUNKS):
            send(peer, chunk)
        until(lambda: computed(call) == ELEMENTS, "all is computed")
        peer.end(1)
        timings = peer.receive().reply.timings
    (line,) = served.lines()
    assert call.execution._arrivals is not None
    waited = call.execution._arrivals.waited_ns
    assert waited > 0
    assert timings.run_ns + timings.queue_ns + waited <= line["total_ns"]


def test_a_small_call_never_waits_for_a_large_one_that_is_not_whole() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        send(peer, 0)
        the_call(served)
        peer.begin(2)
        assert peer.receive().call_id == 2


def test_the_reader_goes_on_while_a_block_is_computed(formula: Formula) -> None:
    formula.gate = threading.Event()
    with serving_cpu(lanes=2) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        call = the_call(served)
        send(peer, 0)
        until(lambda: formula.blocks == 1, "the first block is computed")
        send(peer, 1)
        send(peer, 2)
        assert call.execution._arrivals is not None
        until(lambda: call.execution._arrivals.held_bytes == 6 * CHUNK, "two chunks wait")  # type: ignore[union-attr]
        formula.gate.set()
        send(peer, 3)
        peer.end(1)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_a_cancel_ends_a_call_that_is_half_computed() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        send(peer, 0)
        call = the_call(served)
        until(lambda: computed(call) == 16_384, "the first chunk is computed")
        peer.cancel(1)
        assert peer.reason(1) == "CANCELLED"
        until(served.is_idle, "its room is free")
        send(peer, 1)
        peer.end(1)
        peer.begin(2)
        assert peer.receive().call_id == 2
    assert [line["reason"] for line in served.lines()] == ["CANCELLED", "OK"]


@pytest.mark.parametrize("ends", ["while it waits for bytes", "while it computes"])
def test_a_deadline_ends_a_call_that_is_half_computed(ends: str, formula: Formula) -> None:
    if ends == "while it computes":
        formula.gate = threading.Event()
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS, timeout_ns=100_000_000)
        send(peer, 0)
        assert peer.reason(1) == "DEADLINE"
        if formula.gate is not None:
            formula.gate.set()
        until(served.is_idle, "its room is free")
    assert [line["reason"] for line in served.lines()] == ["DEADLINE"]


def test_a_formula_that_refuses_ends_its_call_alone_and_once(formula: Formula) -> None:
    formula.failing_at = 2
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        send(peer, 0)
        call = the_call(served)
        send(peer, 1)
        assert peer.reason(1) == "ARGUMENT_INVALID"
        until(served.is_idle, "its room is free")
        send(peer, 2)
        send(peer, 3)
        peer.end(1)
        formula.failing_at = 10**9
        peer.begin(2)
        assert peer.receive().call_id == 2
        assert call.execution._arrivals is not None
        assert call.execution._arrivals.held_bytes == 0
    assert [line["reason"] for line in served.lines()] == ["ARGUMENT_INVALID", "OK"]


def test_a_formula_that_refuses_when_all_has_come_ends_its_call(formula: Formula) -> None:
    formula.gate, formula.failing_at = threading.Event(), 2
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        call = the_call(served)
        for chunk in range(CHUNKS):
            send(peer, chunk)
        peer.end(1)
        until(lambda: call.state is State.COMPLETE, "all has come")
        formula.gate.set()
        assert peer.reason(1) == "ARGUMENT_INVALID"


def test_a_device_that_is_lost_ends_a_call_at_its_next_block() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        the_call(served)
        served.executor.lose(lambda: DeviceLostError("lost"))
        send(peer, 0)
        assert peer.reason(1) == "DEVICE_LOST"


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_a_peer_that_goes_away_in_the_middle_leaves_nothing_behind(chunks: int) -> None:
    with serving_cpu() as served:
        with stream(served) as peer:
            peer.begin_chunked(1, elements=ELEMENTS)
            for chunk in range(chunks):
                send(peer, chunk)
            call = the_call(served)
            until(lambda: computed(call) == chunks * CHUNK // 4, "what has come is computed")
        until(served.is_at_rest, "nothing is left")
    assert reasons_of_calls(served) == ["CANCELLED"]


def test_a_peer_that_goes_away_while_a_block_is_computed_leaves_nothing(formula: Formula) -> None:
    formula.gate = threading.Event()
    with serving_cpu() as served:
        with stream(served) as peer:
            peer.begin_chunked(1, elements=ELEMENTS)
            send(peer, 0)
            until(lambda: formula.blocks == 1, "the first block is computed")
        formula.gate.set()
        until(served.is_at_rest, "nothing is left")
    assert reasons_of_calls(served) == ["CANCELLED"]


def test_a_server_that_drains_computes_what_it_has_begun() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        send(peer, 0)
        the_call(served)
        served.executor.drain()
        served.streams.drain()
        for chunk in range(1, CHUNKS):
            send(peer, chunk)
        peer.end(1)
        assert peer.receive().call_id == 1
        assert peer.end_of_stream() == "DRAINING"


def test_missing_bytes_end_the_stream() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        send(peer, 0)
        peer.end(1)
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"


def test_bytes_beyond_the_end_end_the_stream() -> None:
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=ELEMENTS)
        for chunk in range(CHUNKS):
            send(peer, chunk)
        peer.chunk(1, 0, 4 * ELEMENTS, b"x")
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"


def test_a_call_of_another_kind_has_memory_of_its_own() -> None:
    """One element: nothing is gained."""
    with serving_cpu() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=1)
        until(lambda: served.executor.calls_in_flight == 1, "it is taken in")
        (open_stream,) = served.streams._streams
        call = open_stream._calls._open[1]
        until(lambda: len(call.execution._storages) == 3, "it has its memory")
        assert call.execution._arrivals is None
        for storage in range(3):
            peer.chunk(1, storage, 0, bytes(4))
        peer.end(1)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_a_call_is_not_late_before_it_has_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody would give the room back."""
    late: list[object] = []
    with serving_cpu() as served, stream(served) as peer:
        admit = served.executor.admit

        def watched(*arguments: Any) -> Admission:
            admission = admit(*arguments)
            (open_stream,) = served.streams._streams
            late.extend(open_stream._late()[0])
            return admission

        monkeypatch.setattr(served.executor, "admit", watched)
        peer.begin_chunked(1, elements=ELEMENTS, timeout_ns=1)
        assert peer.reason(1) == "DEADLINE"
        until(served.is_idle, "its room is free")
    assert late == []

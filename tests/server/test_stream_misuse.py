"""ExecuteStream against peers that break its rules, cancel, or go away: nothing stays behind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from npucall.errors import MessageError
from npucall_server.services.streams.ids import Ids

from .scripted import until, waiting
from .streams import Peer, serving, stream
from .test_stream import MIB, Gate, device_that_answers

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[[Peer], None]


def twice(peer: Peer) -> None:
    peer.begin_chunked(1)
    peer.begin_chunked(1)


def twice_after_its_answer(peer: Peer) -> None:
    peer.begin(1)
    assert peer.receive().call_id == 1
    peer.begin(1)


def chunk_in(storage: int, offset: int, size: int) -> Act:
    def act(peer: Peer) -> None:
        peer.begin_chunked(1)
        peer.chunk(1, 0, 0, bytes(4))
        peer.chunk(1, storage, offset, bytes(size))

    return act


def end_too_soon(peer: Peer) -> None:
    peer.begin_chunked(1)
    peer.chunk(1, 0, 0, bytes(8))
    peer.chunk(1, 1, 0, bytes(8))
    peer.chunk(1, 2, 0, bytes(7))
    peer.end(1)


def close_too_soon(peer: Peer) -> None:
    peer.begin_chunked(1)
    peer.close()


def large_chunk(peer: Peer) -> None:
    peer.begin_chunked(1, elements=8 * MIB)
    peer.chunk(1, 0, 0, bytes(16 * MIB + 1))


MISUSES: dict[str, Act] = {
    "a frame of nothing": lambda peer: peer.send_bytes(b""),
    "a frame that is no message": lambda peer: peer.send_bytes(b"\x08"),
    "an id that is used twice": twice,
    "an id that is used again after its answer": twice_after_its_answer,
    "a chunk of a call that was not begun": lambda peer: peer.chunk(1, 0, 0, b""),
    "an end of a call that was not begun": lambda peer: peer.end(1),
    "a chunk of a storage that is not there": chunk_in(3, 0, 4),
    "a chunk of a storage far away": chunk_in(2**32 - 1, 0, 4),
    "a chunk that leaves a gap": chunk_in(0, 5, 1),
    "a chunk that comes twice": chunk_in(0, 0, 4),
    "a chunk beyond the end": chunk_in(0, 4, 5),
    "a chunk far away": chunk_in(1, 2**64 - 1, 1),
    "a chunk of more than 16 MiB": large_chunk,
    "an end where bytes are missing": end_too_soon,
    "the end of the stream where bytes are missing": close_too_soon,
}


@pytest.mark.parametrize("act", MISUSES.values(), ids=MISUSES)
def test_a_misuse_ends_the_stream(act: Act) -> None:
    with serving(max_message_bytes="32MiB") as served, stream(served) as peer:
        act(peer)
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"


def late_chunk(peer: Peer, call_id: int) -> None:
    peer.chunk(call_id, 0, 0, b"x")


@pytest.mark.parametrize("late", [late_chunk, Peer.end], ids=["chunk", "end"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("answered", [False, True], ids=["while it runs", "after its answer"])
def test_bytes_for_a_call_that_has_all_of_them_are_passed_over(
    late: Callable[[Peer, int], None], chunked: bool, answered: bool
) -> None:
    """Whenever they come: neither this call nor one beside it is lost."""
    gate = Gate()
    with serving(gate.device) as served, stream(served) as peer:
        if chunked:
            peer.begin_chunked(1)
            for storage in range(3):
                peer.chunk(1, storage, 0, bytes(8))
            peer.end(1)
        else:
            peer.begin(1)
        until(lambda: gate.running == 1, "it runs")
        peer.begin(2)
        if answered:
            gate.let_go(3)
            assert {peer.receive().call_id, peer.receive().call_id} == {1, 2}
        late(peer, 1)
        peer.begin(3)
        until(lambda: served.executor.calls_admitted == 3, "the late frame was read")
        gate.let_go(3)
        left = {3} if answered else {1, 2, 3}
        assert {peer.receive().call_id for _ in left} == left
        peer.close()
        assert peer.end_of_stream() == "OK"


def test_a_misuse_ends_the_calls_beside_it() -> None:
    gate = Gate()
    with serving(gate.device) as served, stream(served) as peer:
        peer.begin(1)
        peer.begin(2)
        peer.begin_chunked(3)
        until(lambda: served.executor.calls_in_flight == 3, "all are taken in")
        peer.send_bytes(b"")
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"
        until(served.is_at_rest, "all have ended")
    reasons = sorted(line["reason"] for line in served.lines())
    assert reasons == ["CANCELLED", "CANCELLED", "CANCELLED", "MESSAGE_MALFORMED"]


def test_ids_that_skip_about_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npucall_server.services.streams.calls.Ids", partial(Ids, 3))
    with serving() as served, stream(served) as peer:
        for call_id in (30, 10, 20, 21, 22, 11, 0):
            peer.begin(call_id)
            if call_id:
                assert peer.receive().call_id == call_id
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"


def test_gaps_of_any_ids_take_16_bytes_each() -> None:
    ids = Ids()
    for call_id in range(0, 65_536 * 2, 2):
        ids.add(2**64 - 1 - call_id)
    with pytest.raises(MessageError, match="consecutive numbers"):
        ids.add(0)
    kept = sum(each.itemsize * len(each) for each in (ids._firsts, ids._lasts))
    assert kept == 65_536 * 16


def receiving(peer: Peer) -> None:
    peer.begin_chunked(1)
    peer.chunk(1, 0, 0, bytes(4))


STAGES: dict[str, tuple[Act, Callable[[Gate], bool]]] = {
    "receiving": (receiving, lambda gate: True),
    "running": (lambda peer: peer.begin(1), lambda gate: gate.running == 1),
}


@pytest.mark.parametrize(("begin", "is_there"), STAGES.values(), ids=STAGES)
def test_a_cancel_ends_a_call(begin: Act, is_there: Callable[[Gate], bool]) -> None:
    gate = Gate()
    with serving(gate.device) as served, stream(served) as peer:
        begin(peer)
        until(lambda: served.executor.calls_in_flight == 1, "it is taken in")
        until(lambda: is_there(gate), "it is there")
        peer.cancel(1)
        assert peer.reason(1) == "CANCELLED"
        until(served.is_idle, "its room is free")


def test_a_cancel_takes_a_call_out_that_waits() -> None:
    gate = Gate()
    with serving(gate.device) as served, stream(served) as peer:
        peer.begin(1)
        peer.begin(2)
        until(lambda: waiting(served.executor) == 1, "the second one waits")
        peer.cancel(2)
        assert peer.reason(2) == "CANCELLED"
        gate.let_go()
        assert peer.receive().call_id == 1


@pytest.mark.parametrize("call_id", [1, 2])
def test_a_cancel_of_a_call_that_is_answered_or_was_never_begun_does_nothing(call_id: int) -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1)
        assert peer.receive().call_id == 1
        peer.cancel(call_id)
        peer.begin(3)
        assert peer.receive().call_id == 3


def test_bytes_of_a_cancelled_call_are_passed_over() -> None:
    with serving() as served, stream(served) as peer:
        receiving(peer)
        peer.cancel(1)
        peer.chunk(1, 0, 4, bytes(4))
        peer.end(1)
        assert peer.reason(1) == "CANCELLED"
        peer.begin(2)
        assert peer.receive().call_id == 2


@pytest.mark.parametrize(("begin", "is_there"), STAGES.values(), ids=STAGES)
def test_a_peer_that_goes_away_leaves_nothing_behind(
    begin: Act, is_there: Callable[[Gate], bool]
) -> None:
    gate = Gate()
    with serving(gate.device) as served:
        with stream(served) as peer:
            begin(peer)
            until(lambda: served.executor.calls_in_flight == 1, "it is taken in")
            until(lambda: is_there(gate), "it is there")
        until(served.is_at_rest, "nothing is left")
    assert [line["reason"] for line in served.lines()] == ["CANCELLED"]


def test_a_peer_that_goes_away_in_the_middle_of_an_answer_leaves_nothing_behind() -> None:
    with serving(device_that_answers(64 * MIB)) as served:
        with stream(served) as peer:
            peer.begin(1)
            peer.begin(2)
            peer.receive()
            assert served.executor.calls_in_flight > 0
        until(served.is_at_rest, "nothing is left")


def test_a_peer_that_goes_away_while_the_window_is_full_leaves_nothing_behind() -> None:
    gate = Gate()
    with serving(gate.device, stream_window=1) as served:
        with stream(served) as peer:
            peer.begin(1)
            peer.begin(2)
            until(lambda: gate.running == 1, "the first one runs")
        until(served.is_at_rest, "nothing is left")

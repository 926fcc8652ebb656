"""npucall.exchange: the table of a stream's calls, and storages in chunks."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.errors import MessageError
from npucall.exchange import (
    PASSED_OVER,
    TRANSITIONS,
    Begin,
    Cancel,
    Chunk,
    End,
    Event,
    Receiving,
    Sending,
    State,
    after,
    event_of,
    into,
)

PROTO = Path(__file__).parents[3] / "proto/npucall/v1/operator_service.proto"
CALLERS = {Event.BEGIN, Event.BEGIN_CHUNKED, Event.CHUNK, Event.END, Event.CANCEL}


def test_the_proto_prints_the_table() -> None:
    rows = [("state", "frame", "next state")]
    for state in State:
        for event in Event:
            if event in PASSED_OVER[state]:
                rows.append((state.value, event.value, "passed over"))
            elif event in TRANSITIONS[state]:
                rows.append((state.value, event.value, TRANSITIONS[state][event].value))
    expected = "\n".join(f"  //   {a:<10} {b:<22} {c}" for a, b, c in rows)
    assert expected + "\n  //\n" in PROTO.read_text()


def test_only_what_a_caller_sends_is_passed_over() -> None:
    """A server knows what it has answered."""
    assert all(events <= CALLERS for events in PASSED_OVER.values())
    assert not any(PASSED_OVER[state] & TRANSITIONS[state].keys() for state in State)
    frames = [Begin(b""), Begin(b"", chunked=True), Chunk(0, 0, b""), End(), Cancel()]
    assert {event_of(frame) for frame in frames} == CALLERS


def test_every_state_but_the_last_has_a_way_out_and_is_reached() -> None:
    reached = {State.NEW} | {end for row in TRANSITIONS.values() for end in row.values()}
    assert reached == set(State)
    for state in set(State) - {State.ENDED}:
        assert any(end is not state for end in TRANSITIONS[state].values())
    assert not TRANSITIONS[State.ENDED]


@each(
    ("state", "event", "expected"),
    [
        (State.NEW, Event.CHUNK, None),
        (State.COMPLETE, Event.CHUNK, State.COMPLETE),  # passed over
        (State.CROSSING, Event.ERROR, State.ENDED),
        (State.ENDED, Event.REPLY, None),
    ],
)
def test_what_is_in_no_table_must_not_come(state: State, event: Event, expected: Any) -> None:
    assert after(state, event) is expected


STORAGES = st.lists(st.one_of(st.none(), st.binary(max_size=50)), max_size=4)


@given(STORAGES, st.integers(1, 60))
def test_chunks_of_any_length_arrive_as_what_was_sent(
    storages: list[bytes | None], length: int
) -> None:
    """Storages of which nothing travels stay as they are."""
    memories = [bytearray(len(data or b"")) for data in storages]
    sizes = [len(memory) for memory in memories]
    sending, receiving = Sending(storages), Receiving("call 1", sizes, into(memories))
    for chunk in sending.chunks(length):
        assert len(chunk.data) > 0
        receiving.take(chunk)
    receiving.end()
    assert [bytes(memory) for memory in memories] == [data or b"" for data in storages]
    assert receiving.received == receiving.nbytes == sending.nbytes == sum(sizes)


def test_each_storage_sends_a_chunk_in_turn() -> None:
    chunks = Sending([b"aabb", None, b"cc"]).chunks(2)
    found = [(chunk.storage, chunk.offset, bytes(chunk.data)) for chunk in chunks]
    assert found == [(0, 0, b"aa"), (2, 0, b"cc"), (0, 2, b"bb")]


@given(STORAGES, st.integers(1, 60), st.lists(st.integers(0, 100), max_size=4))
def test_rounds_of_chunks_are_all_chunks_and_of_what_is_done_alone(
    storages: list[bytes | None], length: int, dones: list[int]
) -> None:
    sending, first, found = Sending(storages), 0, []
    for done in sorted({*dones, 100}):
        stop = sending.rounds(length, done, 100)
        for chunk in sending.chunks(length, first, stop):
            end = chunk.offset + len(chunk.data)
            assert end <= len(storages[chunk.storage] or b"") * done // 100
            found.append(chunk)
        first = max(first, stop)
    assert found == list(sending.chunks(length))


def test_storages_have_room_in_a_message_up_to_a_limit() -> None:
    assert not Sending([bytes(6), bytes(4)]).is_chunked(10)
    assert Sending([bytes(6), bytes(5)]).is_chunked(10)
    assert not Sending([bytes(10), None]).is_chunked(10)


@each(
    ("chunk", "match"),
    [
        (Chunk(2, 0, b""), r"one of the 2 storages of call 7, found 2"),
        (
            Chunk(0, 1, b"x"),
            "storage 0 of call 7 from 2 on, of 4 in all, found those from 1 to 2",
        ),
        (Chunk(0, 3, b"x"), "from 3 to 4"),
        (Chunk(0, 2, b"xyz"), "from 2 to 5"),
        (Chunk(1, 2**64 - 1, b"x"), "bytes of storage 1 of call 7 from 0 on, of 4 in all"),
    ],
)
def test_a_chunk_that_does_not_come_next_is_refused_and_leaves_the_memory(
    chunk: Chunk, match: str
) -> None:
    memories = [bytearray(4), bytearray(4)]
    receiving = Receiving("call 7", (4, 4), into(memories))
    receiving.take(Chunk(0, 0, b"ab"))
    with pytest.raises(MessageError, match=match):
        receiving.take(chunk)
    assert (memories, receiving.received) == ([bytearray(b"ab\0\0"), bytearray(4)], 2)


def test_an_end_where_bytes_are_missing_is_refused() -> None:
    receiving = Receiving("call 7", (4, 4), into([bytearray(4), bytearray(4)]))
    receiving.take(Chunk(0, 0, b"abcd"))
    with pytest.raises(MessageError, match="4 bytes of storage 1 of call 7, found 0"):
        receiving.end()

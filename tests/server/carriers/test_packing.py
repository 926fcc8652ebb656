"""Answers in messages: how many frames in one, in which order; outputs that come early."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.calls.test_pieces import EXPECTED, ROUNDS, begin, received, send, serving_cpu
from tests.server.fakes import until
from tests.server.raw import stream

from npucall.exchange import Event, State, after
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.frames import join_end
from npucall.wire.stream_messages import response_frames
from npucall_server.access.callers import Caller
from npucall_server.calls.arrivals import Computed
from npucall_server.carriers.multiplex.call import StreamCall
from npucall_server.carriers.multiplex.early_outputs import EarlyFrames
from npucall_server.carriers.multiplex.packing import Packing

if TYPE_CHECKING:
    from tests.server.serving import Served

KIB, MIB = 2**10, 2**20


def number(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def long_frame(size: int) -> bytes:
    """An error whose status has so many bytes."""
    return b"\x08\x01\x2a" + number(size) + bytes(size)


class Answered:
    """Calls with an answer, and a packing that takes them."""

    def __init__(self, most: int, *answers: Sequence[bytes]) -> None:
        self.calls = [
            SimpleNamespace(
                frames=iter(frames),
                execution=SimpleNamespace(record=SimpleNamespace(response_bytes=0)),
            )
            for frames in answers
        ]
        self._left = deque(self.calls)
        self.packing = Packing(most, cast("Any", self.next))

    def next(self) -> StreamCall | None:
        return cast("StreamCall", self._left.popleft()) if self._left else None

    def messages(self) -> list[tuple[list[bytes], list[int]]]:
        """The frames of each message, and which calls have been sent whole with it."""
        found = []
        while self.packing.has_more() or self.packing.add(self.next()):
            frames = list(response_frames(self.packing.message()))
            sent = [self.calls.index(cast("Any", call)) for call in self.packing.sent()]
            found.append((frames, sent))
        assert self.packing.unsent() == []
        return found


SHORT = join_end(1)
LONG = long_frame(100 * KIB)
LONGEST = long_frame(2 * MIB)


def test_answers_that_are_there_go_in_one_message() -> None:
    answered = Answered(64, [SHORT], [SHORT], [SHORT])
    assert answered.messages() == [([SHORT] * 3, [0, 1, 2])]


def test_a_message_has_no_more_frames_than_the_caller_takes() -> None:
    answered = Answered(2, [SHORT], [SHORT], [SHORT])
    assert answered.messages() == [([SHORT] * 2, [0, 1]), ([SHORT], [2])]


def test_of_a_caller_that_takes_one_each_answer_is_settled_behind_its_own_message() -> None:
    answered = Answered(1, [SHORT, LONG], [SHORT])
    assert answered.messages() == [([SHORT], []), ([LONG], [0]), ([SHORT], [1])]


def test_frames_that_are_long_together_go_in_several_messages() -> None:
    answered = Answered(64, *[[LONG]] * 25)
    messages = answered.messages()
    assert [len(frames) for frames, _ in messages] == [10, 10, 5]
    assert [call for _, sent in messages for call in sent] == list(range(25))


def test_a_frame_longer_than_a_message_goes_alone_and_in_its_place() -> None:
    answered = Answered(64, [SHORT, LONGEST, LONGEST, SHORT], [SHORT])
    assert answered.messages() == [
        ([SHORT], []), ([LONGEST], []), ([LONGEST], []), ([SHORT, SHORT], [0, 1]),
    ]  # fmt: skip


def test_a_long_frame_is_not_made_before_those_before_it_have_gone() -> None:
    """Else two of them would be held at a time."""
    made = []

    def frames() -> Any:
        for index in range(3):
            made.append(index)
            yield LONGEST

    answered = Answered(64, cast("Any", frames()))
    assert answered.packing.add(answered.next())
    answered.packing.message()
    assert made == [0]
    assert answered.packing.sent() == []
    assert made == [0, 1]


def test_what_a_call_was_answered_with_is_counted() -> None:
    answered = Answered(64, [SHORT, LONG], [SHORT])
    answered.messages()
    counted = [call.execution.record.response_bytes for call in answered.calls]
    assert counted == [len(SHORT) + len(LONG), len(SHORT)]


def test_calls_whose_answer_has_not_gone_are_told() -> None:
    answered = Answered(1, [SHORT, SHORT])
    assert answered.packing.add(answered.next())
    answered.packing.message()
    assert answered.packing.sent() == []
    assert len(answered.packing.unsent()) == 1


def test_a_caller_gets_as_many_frames_as_it_says() -> None:
    for said, most in (
        (None, 1), ("1", 1), ("7", 7), ("64", 64), ("65", 64), ("9" * 5000, 64), ("0", 1),
        ("", 1), ("x", 1), ("-3", 1), ("\u00b2", 1), (b"8", 1),
    ):  # fmt: skip
        metadata = {} if said is None else {"npucall-frames-per-message": said}
        answered = Answered(1, *[[SHORT]] * 100)
        caller = cast("Caller", SimpleNamespace(metadata=metadata))
        packing = Packing.for_caller(caller, cast("Any", answered.next))
        packing.add(answered.next())
        assert len(list(response_frames(packing.message()))) == most


# --- The frames of early_outputs: in the order of the table, whatever comes when ------------------

EVENTS = {
    "resolved": Event.RESOLVED, "chunk": Event.OUTPUT_CHUNK, "error": Event.ERROR,
    "end": Event.OUTPUT_END,
}  # fmt: skip


def kinds(frames: Sequence[pb.ExecuteStreamResponse]) -> list[str | None]:
    return [frame.WhichOneof("frame") for frame in frames]


def obeys_the_table(frames: Sequence[pb.ExecuteStreamResponse]) -> bool:
    """Whether these frames lead from a complete call to one that has ended."""
    state: State | None = State.COMPLETE
    for number, frame in enumerate(frames):
        kind = frame.WhichOneof("frame")
        follows = number + 1 < len(frames)
        chunked = Event.REPLY_CHUNKED if follows else Event.REPLY
        state = after(state, EVENTS.get(str(kind), chunked)) if state is not None else None
    return state is State.ENDED


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving_cpu() as served:
        yield served


@pytest.mark.more
def test_who_does_not_read_outputs_is_cut() -> None:
    """They are more than gRPC's windows hold."""
    many, length = 2**24, 2**20
    with serving_cpu(chunk_bytes=length) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=many, early_outputs=True)
        for start in range(0, 4 * many, length):
            for storage in range(3):
                peer.chunk(1, storage, start, bytes(length))

        def is_cut() -> bool:
            served.clock.advance(0.05)  # a second every 40 ms
            served.look()
            return bool(served.events("cut"))

        until(is_cut, "it is cut")
        until(served.is_idle, "its room is free")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 2), st.sampled_from(["begin", "chunk", "end", "cancel"])),
        max_size=16,
    )
)
def test_every_call_of_any_order_of_frames_is_answered_as_the_table_says(
    served: Served, steps: list[tuple[int, str]]
) -> None:
    """Only orders that break no rule; ``end`` sends what is missing before it."""
    sent: dict[int, int] = {}
    open_calls: set[int] = set()
    with stream(served) as peer:
        for call_id, step in [*steps, (1, "end"), (2, "end")]:
            if step == "begin" and call_id not in sent:
                begin(peer, call_id, early=True)
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

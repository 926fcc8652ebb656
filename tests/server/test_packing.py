"""Answers in messages: how many frames in one, in which order, and which calls it settles."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from npucall.wire.frames import join_end
from npucall.wire.stream_messages import response_frames
from npucall_server.services.streams.packing import Packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall_server.callers import UnaryCaller
    from npucall_server.services.streams.call import StreamCall

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
        caller = cast("UnaryCaller", SimpleNamespace(metadata=metadata))
        packing = Packing.for_caller(caller, cast("Any", answered.next))
        packing.add(answered.next())
        assert len(list(response_frames(packing.message()))) == most

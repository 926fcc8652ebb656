"""Packs answers into messages: a message has as many frames as are ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Self

from npucall.limits import FRAMES_PER_MESSAGE, MIB
from npucall.wire.status import FRAMES_PER_MESSAGE as METADATA
from npucall.wire.stream_messages import join_frames
from npucall_server.access.callers import Caller
from npucall_server.carriers.multiplex.call import StreamCall

_MESSAGE_BYTES = MIB
"""The most bytes of frames in one message, except a single longer frame. Joining frames copies
them once more. By default a client of gRPC receives up to 4 MiB."""
_DIGITS = 9
"""How many digits of a caller's number are read."""


class Packing:
    """The frames of answers in messages, in the order of the answers. One thread uses it.

    ``most``: frames in a message. ``next_answer``: the next call with an answer, if there is one.
    """

    def __init__(self, most: int, next_answer: Callable[[], StreamCall | None]) -> None:
        self._most, self._next_answer = most, next_answer
        self._calls: deque[StreamCall] = deque()
        """Calls that were taken and not sent whole. Frames of the last may be left."""
        self._frame: bytes | None = None
        """The next frame of the last call, if it was looked for."""

    @classmethod
    def for_caller(cls, caller: Caller, next_answer: Callable[[], StreamCall | None]) -> Self:
        """Packs as many frames in a message as the caller takes: one, unless it asks for more."""
        said = str(caller.metadata.get(METADATA, ""))
        most = int(said[:_DIGITS]) if said.isascii() and said.isdigit() else 1
        return cls(max(1, min(most, FRAMES_PER_MESSAGE)), next_answer)

    def add(self, call: StreamCall | None) -> bool:
        """Takes a call with an answer, if there is one."""
        if call is not None:
            self._calls.append(call)
        return call is not None

    def has_more(self) -> bool:
        """Whether frames are left of an answer of which some have been sent."""
        return self._frame is not None

    def message(self) -> bytes:
        """The next message, with the frames that are ready: at least one of the last call."""
        frames: list[bytes] = []
        size = 0
        while len(frames) < self._most and size < _MESSAGE_BYTES and self._look():
            frame, call = self._frame, self._calls[-1]
            assert frame is not None  # noqa: S101  # there is one
            if frames and size + len(frame) > _MESSAGE_BYTES:
                break
            frames.append(frame)
            size += len(frame)
            call.execution.record.response_bytes += len(frame)
            self._frame = None
        return join_frames(frames)

    def sent(self) -> list[StreamCall]:
        """The message was sent. Answers the calls whose answers are now sent whole."""
        self._frame = self._frame or next(self._calls[-1].frames, None)
        calls = list(self._calls)
        self._calls.clear()
        if self._frame is not None:
            self._calls.append(calls.pop())
        return calls

    def unsent(self) -> list[StreamCall]:
        """Nothing more is sent: the calls that were taken and have not been sent whole."""
        return list(self._calls)

    def _look(self) -> bool:
        """Whether there is another frame, of the last call or of another one."""
        self._frame = self._frame or next(self._calls[-1].frames, None)
        while self._frame is None and self.add(self._next_answer()):
            self._frame = next(self._calls[-1].frames, None)
        return self._frame is not None

"""Messages of ``ExecuteStream`` <-> their frames: the first one, then those in ``more``.

A frame means the same in any message, and has limits of its own. So a message of several frames is
split into separate bytes; then no frame keeps the memory of the others. Code here splits messages
that npucall and the generated classes write; the class splits every other encoding, and then the
limits of a frame hold for the whole message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from npucall.errors import MessageError
from npucall.limits import FRAMES_PER_MESSAGE
from npucall.wire.frames import read_request, read_response
from npucall.wire.protobuf import Malformed, bytes_at, content_at, header, number_at

_CALL_ID, _MORE = 0x08, 0x7A
"""Tags."""


def join_frames(frames: Sequence[bytes]) -> bytes:
    """One message of these frames, in their order; of a single frame, that frame."""
    if len(frames) == 1:
        return frames[0]
    parts = [frames[0]]
    for frame in frames[1:]:
        parts += (header(_MORE >> 3, len(frame)), frame)
    return b"".join(parts)


def request_frames(message: bytes) -> Iterable[bytes]:
    """The frames in an ``ExecuteStreamRequest``, in their order; a frame alone is not copied.

    Raises MessageError for more than ``FRAMES_PER_MESSAGE``, and where the class would refuse it.
    """
    return _frames(message, read_request)


def response_frames(message: bytes) -> Iterable[bytes]:
    """The frames in an ``ExecuteStreamResponse``; see ``request_frames``."""
    return _frames(message, read_response)


def _frames(message: bytes, read: Callable[[bytes], Any]) -> Iterable[bytes]:
    try:
        spans = _spans(message)
    except (Malformed, IndexError):
        return _frames_of_class(message, read(message))
    if len(spans) == 1:
        return (message,)
    return (message[start:end] for start, end in spans)


def _spans(message: bytes) -> list[tuple[int, int]]:
    """Where each frame begins and ends."""
    end = len(message)
    _, position = number_at(message, 0, end, _CALL_ID)
    if message[position] & 7 != _MORE & 7 or message[position] == _MORE:
        raise Malformed("another spelling")
    start, position = content_at(message, position)
    spans = [(0, position)]
    while position < end:
        if message[position] != _MORE:
            raise Malformed("another spelling")
        start, position = bytes_at(message, position, end, _MORE)
        spans.append((start, position))
    if position != end:
        raise Malformed("cut off")
    _check_count(len(spans))
    return spans


def _frames_of_class(message: bytes, parsed: Any) -> Sequence[bytes]:
    if not parsed.more:
        return (message,)
    _check_count(1 + len(parsed.more))
    more = [frame.SerializeToString() for frame in parsed.more]
    parsed.ClearField("more")
    return [parsed.SerializeToString(), *more]


def _check_count(frames: int) -> None:
    if frames > FRAMES_PER_MESSAGE:
        raise MessageError(
            f"more: expected at most {FRAMES_PER_MESSAGE} frames in one message, found {frames}"
        )

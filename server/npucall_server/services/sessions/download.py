"""The bytes of a handle, on their way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npucall.exchange import Chunk
from npucall.limits import HANDLE_BYTES
from npucall.places import HandlePart
from npucall.wire.frames import join_chunk
from npucall.wire.uploads import check_id
from npucall_server.access.callers import Caller
from npucall_server.devices.base import ResidentPart
from npucall_server.services.sessions.kept import Kept
from npucall_server.telemetry.log import Record

_NO_CALL = 0
_NAME = "part"


def downloaded(asked: Any, record: Record, caller: Caller, kept: Kept) -> Iterator[bytes]:
    """The frames that answer a ``HandlePart``, once its handle is filled.

    The handle stays until the last frame has been taken. A caller that reads nothing is cut.
    """
    part = HandlePart(check_id("part.id", asked.id, HANDLE_BYTES), asked.offset, asked.length)
    session = kept.sessions.of(caller, [part.id])
    with session.use():
        reading = session.read(part, _NAME)
        try:
            found = reading.wait(caller)
            for frame in _frames(found, caller, kept):
                kept.guard.check(caller.identity)
                record.response_bytes += len(frame)
                yield frame
        finally:
            reading.give_back()


def _frames(part: ResidentPart, caller: Caller, kept: Kept) -> Iterator[bytes]:
    """The frames, one at a time. Each is a copy in the host's memory."""
    size = min(kept.chunk_bytes, part.length)
    room = kept.executor.memory.take(caller, size, caller.cancel)
    try:
        for start in range(0, part.length, size or 1):
            data = part.memory.read(part.offset + start, min(size, part.length - start))
            yield join_chunk(_NO_CALL, Chunk(0, start, data))
    finally:
        room.give_back()

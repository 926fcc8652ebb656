"""Messages with bulk data <-> bytes: protobuf's wire format, framed by hand.

The protobuf class copies bulk bytes on each side, which costs more than the network. So the top
level of ``ExecuteRequest`` and ``ExecuteResponse``, and ``Storage``, are read and written here:
the small messages inside stay bytes, for the class to read, and storages are views of what was
received. The result is ordinary protobuf, of which any generated client is the other end; what the
class refuses is refused here too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import MessageError
from npucall.wire_format import Malformed, fields, header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.tensors import Buffer

ALIGNMENT = 16
"""Data starts at a multiple of this within a message. CPython's bytes objects start at one too."""

_REQUEST_CALL, _REQUEST_STORAGE = 1, 2
_RESPONSE_REPLY, _RESPONSE_TIMINGS, _RESPONSE_STORAGE = 1, 2, 3
_STORAGE_PADDING, _STORAGE_DATA = 1, 15
_MAX_LENGTH = 2**31 - 1


class Request(NamedTuple):
    """An ``ExecuteRequest``: the bytes of its call, and its storages."""

    call: bytes
    storage: list[memoryview]


class Response(NamedTuple):
    """An ``ExecuteResponse``: the bytes of its reply and its timings, and its storages."""

    reply: bytes
    timings: bytes
    storage: list[memoryview]


def join_request(call: bytes, storage: Sequence[Buffer]) -> bytes:
    """The bytes of an ``ExecuteRequest``. Copies each storage once, into the message."""
    parts: list[Buffer] = [header(_REQUEST_CALL, len(call)), call]
    return _join(parts, _REQUEST_STORAGE, storage)


def join_response(reply: bytes, timings: bytes, storage: Sequence[Buffer]) -> bytes:
    """The bytes of an ``ExecuteResponse``. Copies each storage once, into the message."""
    parts: list[Buffer] = [
        header(_RESPONSE_REPLY, len(reply)),
        reply,
        header(_RESPONSE_TIMINGS, len(timings)),
        timings,
    ]
    return _join(parts, _RESPONSE_STORAGE, storage)


def split_request(message: bytes) -> Request:
    """Finds call and storages in an ``ExecuteRequest``; the storages are views of it.

    Raises MessageError where the protobuf class would refuse the message, and where a storage has
    no data.
    """
    small, storage = _split(message, "ExecuteRequest", _REQUEST_STORAGE)
    return Request(small.get(_REQUEST_CALL, b""), storage)


def split_response(message: bytes) -> Response:
    """Finds reply, timings and storages in an ``ExecuteResponse``; see ``split_request``."""
    small, storage = _split(message, "ExecuteResponse", _RESPONSE_STORAGE)
    reply, timings = small.get(_RESPONSE_REPLY, b""), small.get(_RESPONSE_TIMINGS, b"")
    return Response(reply, timings, storage)


def _join(parts: list[Buffer], field: int, storage: Sequence[Buffer]) -> bytes:
    position = sum(map(len, parts))
    for data in storage:
        before = _storage_header(field, len(data), position % ALIGNMENT)
        parts += (before, data)
        position += len(before) + len(data)
    return b"".join(parts)


@lru_cache(1024)
def _storage_header(field: int, length: int, position: int) -> bytes:
    """Everything of a storage before its data, padded so that the data is aligned."""
    data_header = header(_STORAGE_DATA, length)
    padding = 0
    while True:
        inner = b"%b%b%b" % (header(_STORAGE_PADDING, padding), bytes(padding), data_header)
        before = header(field, len(inner) + length) + inner
        if not (short := -(position + len(before)) % ALIGNMENT):
            return before
        padding += short  # once more if a length now takes one byte more


def _split(
    message: bytes, name: str, storage_field: int
) -> tuple[dict[int, bytes], list[memoryview]]:
    """The fields before storage, merged as protobuf merges messages; and the storages."""
    if len(message) > _MAX_LENGTH:
        raise MessageError(f"{name}: expected less than 2 GiB, found {len(message)} bytes")
    view = memoryview(message)
    parts: dict[int, list[bytes]] = {}
    storage = []
    try:
        for field, start, end in fields(message, 0, len(message)):
            if field == storage_field:
                storage.append(_storage(message, view, start, end))
            elif field < storage_field:
                parts.setdefault(field, []).append(message[start:end])
        return {field: _merged(data) for field, data in parts.items()}, storage
    except Malformed as fault:
        raise MessageError(f"{name}: expected a protobuf message, found {fault}") from None


def _merged(parts: list[bytes]) -> bytes:
    """A message from its parts. Each must be a message, or bytes of two could make one field."""
    if len(parts) > 1:
        for part in parts:
            for _ in fields(part, 0, len(part), depth=1):
                pass
    return b"".join(parts)


def _storage(message: bytes, view: memoryview, start: int, end: int) -> memoryview:
    data = None
    for field, inner_start, inner_end in fields(message, start, end, depth=1):
        if field == _STORAGE_DATA:
            data = view[inner_start:inner_end]
    if data is None:
        raise Malformed("a storage without data")
    return data

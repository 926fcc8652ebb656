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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npucall.tensors import Buffer

ALIGNMENT = 16
"""Data starts at a multiple of this within a message. CPython's bytes objects start at one too."""

# Field numbers and wire types of protobuf; tags are `number << 3 | type`.
_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_REQUEST_CALL, _REQUEST_STORAGE = 1, 2
_RESPONSE_REPLY, _RESPONSE_TIMINGS, _RESPONSE_STORAGE = 1, 2, 3
_STORAGE_PADDING, _STORAGE_DATA = 1, 15
_MAX_LENGTH = 2**31 - 1
_MAX_TAG = 2**32 - 1
_MAX_DEPTH = 100
_MAX_FIELDS = 4096
"""In a message, a storage or an unknown group: what bounds the time that hostile bytes can take."""
# Most bytes of a number on the wire: of 64 bits, or of 32 for a tag or a length.
_NUMBER_BYTES, _SHORT_NUMBER_BYTES = 10, 5


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
    parts: list[Buffer] = [_header(_REQUEST_CALL, len(call)), call]
    return _join(parts, _REQUEST_STORAGE, storage)


def join_response(reply: bytes, timings: bytes, storage: Sequence[Buffer]) -> bytes:
    """The bytes of an ``ExecuteResponse``. Copies each storage once, into the message."""
    parts: list[Buffer] = [
        _header(_RESPONSE_REPLY, len(reply)),
        reply,
        _header(_RESPONSE_TIMINGS, len(timings)),
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
        header = _storage_header(field, len(data), position % ALIGNMENT)
        parts += (header, data)
        position += len(header) + len(data)
    return b"".join(parts)


@lru_cache(1024)
def _storage_header(field: int, length: int, position: int) -> bytes:
    """Everything of a storage before its data, padded so that the data is aligned."""
    data_header = _header(_STORAGE_DATA, length)
    padding = 0
    while True:
        inner = b"%b%b%b" % (_header(_STORAGE_PADDING, padding), bytes(padding), data_header)
        header = _header(field, len(inner) + length) + inner
        if not (short := -(position + len(header)) % ALIGNMENT):
            return header
        padding += short  # once more if a length now takes one byte more


def _header(field: int, length: int) -> bytes:
    """Tag and length of a field of bytes."""
    encoded = bytearray((field << 3 | _LENGTH,))
    while length > 0x7F:  # noqa: PLR2004  # seven bits a byte
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


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
        for field, start, end in _fields(message, 0, len(message)):
            if field == storage_field:
                storage.append(_storage(message, view, start, end))
            elif field < storage_field:
                parts.setdefault(field, []).append(message[start:end])
        return {field: _merged(data) for field, data in parts.items()}, storage
    except _Malformed as fault:
        raise MessageError(f"{name}: expected a protobuf message, found {fault}") from None


def _merged(parts: list[bytes]) -> bytes:
    """A message from its parts. Each must be a message, or bytes of two could make one field."""
    if len(parts) > 1:
        for part in parts:
            for _ in _fields(part, 0, len(part), depth=1):
                pass
    return b"".join(parts)


def _storage(message: bytes, view: memoryview, start: int, end: int) -> memoryview:
    data = None
    for field, inner_start, inner_end in _fields(message, start, end, depth=1):
        if field == _STORAGE_DATA:
            data = view[inner_start:inner_end]
    if data is None:
        raise _Malformed("a storage without data")
    return data


class _Malformed(Exception):  # noqa: N818  # turned into MessageError, which has a name for it
    """Bytes that are no protobuf message."""


def _fields(
    message: bytes, position: int, end: int, depth: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of every field of bytes; all others are passed over."""
    for _ in range(_MAX_FIELDS):
        if position >= end:
            return
        tag, position = _tag(message, position, end)
        if tag & 7 == _LENGTH:
            length, position = _varint(message, position, end, _SHORT_NUMBER_BYTES)
            if length > end - position:
                raise _Malformed("a field that is longer than what holds it")
            yield tag >> 3, position, position + length
            position += length
        elif tag & 7 == _START_GROUP:
            position = _skip_group(message, position, end, tag, depth)
        else:
            position = _skip(message, position, end, tag)
    if position < end:
        raise _Malformed(f"more than {_MAX_FIELDS} fields")


def _skip(message: bytes, position: int, end: int, tag: int) -> int:
    """The position behind a field that is not wanted."""
    wire_type = tag & 7
    if wire_type == _VARINT:
        return _varint(message, position, end)[1]
    if wire_type == _LENGTH:
        length, position = _varint(message, position, end, _SHORT_NUMBER_BYTES)
        return _within(position + length, end)
    if wire_type in _FIXED_SIZES:
        return _within(position + _FIXED_SIZES[wire_type], end)
    raise _Malformed(f"wire type {wire_type} out of place")


def _skip_group(message: bytes, position: int, end: int, tag: int, depth: int) -> int:
    """The position behind a group and all groups in it."""
    opened = [tag >> 3]
    for _ in range(_MAX_FIELDS):
        if depth + len(opened) > _MAX_DEPTH:
            raise _Malformed("groups too deep")
        inner, position = _tag(message, position, end)
        if inner & 7 == _START_GROUP:
            opened.append(inner >> 3)
        elif inner & 7 == _END_GROUP:
            if opened.pop() != inner >> 3:
                raise _Malformed("a group that another one ends")
            if not opened:
                return position
        else:
            position = _skip(message, position, end, inner)
    raise _Malformed(f"more than {_MAX_FIELDS} fields")


def _within(position: int, end: int) -> int:
    if position > end:
        raise _Malformed("a field that is longer than what holds it")
    return position


def _tag(message: bytes, position: int, end: int) -> tuple[int, int]:
    tag, after = _varint(message, position, end, _SHORT_NUMBER_BYTES)
    if tag >> 3 == 0 or tag > _MAX_TAG:
        raise _Malformed(f"field number {tag >> 3}")
    return tag, after


def _varint(message: bytes, position: int, end: int, most: int = _NUMBER_BYTES) -> tuple[int, int]:
    """A number of seven bits a byte, and the position behind it."""
    if position < end and message[position] < 0x80:  # noqa: PLR2004  # most have one byte
        return message[position], position + 1
    value = shift = 0
    end = min(end, position + most)
    while position < end:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  # the top bit says that more follows
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise _Malformed("a number that does not end")

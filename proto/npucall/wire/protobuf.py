"""Protobuf's wire format, as far as messages with bulk data are read and written by hand.

What the protobuf class refuses is refused here too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Field numbers and wire types of protobuf; tags are `number << 3 | type`.
_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_TAG = 2**32 - 1
_MAX_DEPTH = 100
_MAX_FIELDS = 4096
"""In a message, a storage or an unknown group: what bounds the time that hostile bytes can take."""
# Most bytes of a number on the wire: of 64 bits, or of 32 for a tag or a length.
_NUMBER_BYTES, _SHORT_NUMBER_BYTES = 10, 5


@lru_cache(4096)
def header(field: int, length: int) -> bytes:
    """Tag and length of a field of bytes."""
    return number(field << 3 | _LENGTH) + number(length)


def number(value: int) -> bytes:
    """A number of seven bits a byte."""
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004  # seven bits a byte
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Malformed(Exception):  # noqa: N818  # turned into MessageError, which has a name for it
    """Bytes that are no protobuf message."""


def fields(
    message: bytes, position: int, end: int, depth: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of every field of bytes; all others are passed over.

    Raises Malformed.
    """
    for _ in range(_MAX_FIELDS):
        if position >= end:
            return
        tag, position = _tag(message, position, end)
        if tag & 7 == _LENGTH:
            length, position = varint(message, position, end, _SHORT_NUMBER_BYTES)
            if length > end - position:
                raise Malformed("a field that is longer than what holds it")
            yield tag >> 3, position, position + length
            position += length
        elif tag & 7 == _START_GROUP:
            position = _skip_group(message, position, end, tag, depth)
        else:
            position = _skip(message, position, end, tag)
    if position < end:
        raise Malformed(f"more than {_MAX_FIELDS} fields")


def _skip(message: bytes, position: int, end: int, tag: int) -> int:
    """The position behind a field that is not wanted."""
    wire_type = tag & 7
    if wire_type == _VARINT:
        return varint(message, position, end)[1]
    if wire_type == _LENGTH:
        length, position = varint(message, position, end, _SHORT_NUMBER_BYTES)
        return _within(position + length, end)
    if wire_type in _FIXED_SIZES:
        return _within(position + _FIXED_SIZES[wire_type], end)
    raise Malformed(f"wire type {wire_type} out of place")


def _skip_group(message: bytes, position: int, end: int, tag: int, depth: int) -> int:
    """The position behind a group and all groups in it."""
    opened = [tag >> 3]
    for _ in range(_MAX_FIELDS):
        if depth + len(opened) > _MAX_DEPTH:
            raise Malformed("groups too deep")
        inner, position = _tag(message, position, end)
        if inner & 7 == _START_GROUP:
            opened.append(inner >> 3)
        elif inner & 7 == _END_GROUP:
            if opened.pop() != inner >> 3:
                raise Malformed("a group that another one ends")
            if not opened:
                return position
        else:
            position = _skip(message, position, end, inner)
    raise Malformed(f"more than {_MAX_FIELDS} fields")


def _within(position: int, end: int) -> int:
    if position > end:
        raise Malformed("a field that is longer than what holds it")
    return position


def _tag(message: bytes, position: int, end: int) -> tuple[int, int]:
    tag, after = varint(message, position, end, _SHORT_NUMBER_BYTES)
    if tag >> 3 == 0 or tag > _MAX_TAG:
        raise Malformed(f"field number {tag >> 3}")
    return tag, after


def varint(message: bytes, position: int, end: int, most: int = _NUMBER_BYTES) -> tuple[int, int]:
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
    raise Malformed("a number that does not end")

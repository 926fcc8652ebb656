"""Protobuf's wire format, as far as messages with bulk data are read and written by hand.

Messages are read by position in the encoding of npucall and the generated classes: each field once,
in the order of the numbers. ``Malformed`` means that a message is encoded in another way, or is
none; then the protobuf class decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from npucall.limits import MAX_DEPTH, MAX_FIELDS

# Wire types of protobuf; tags are `number << 3 | type`.
_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4, _START_GROUP: 0, _END_GROUP: 0}
_MAX_TAG = 2**32 - 1
DATA = 15
"""The number of the field ``data``, in storages and chunks."""
# Most bytes of a number on the wire: of 64 bits, or of 32 for a tag or a length.
_NUMBER_BYTES, _SHORT_NUMBER_BYTES = 10, 5

_ONE_BYTE = [bytes([value]) for value in range(0x80)]


class Malformed(Exception):  # noqa: N818  # the caller decides what is an error
    """Bytes that are no message, or a message in another encoding."""


@lru_cache(4096)
def header(field: int, length: int) -> bytes:
    """Tag and length of a field of bytes."""
    return number(field << 3 | _LENGTH) + number(length)


def number(value: int) -> bytes:
    """A number of seven bits a byte."""
    if value <= 0x7F:  # noqa: PLR2004  # most have one byte
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004  # seven bits a byte
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint(message: bytes, position: int, end: int, most: int = _NUMBER_BYTES) -> tuple[int, int]:
    """A number of seven bits a byte, and the position after it."""
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


def tag_at(message: bytes, position: int, end: int) -> tuple[int, int]:
    """A tag, and the position after it."""
    tag, position = varint(message, position, end, _SHORT_NUMBER_BYTES)
    if tag >> 3 == 0 or tag > _MAX_TAG:
        raise Malformed(f"field number {tag >> 3}")
    return tag, position


def number_at(message: bytes, position: int, end: int, tag: int) -> tuple[int, int]:
    """The number in the field with this one-byte tag, else 0; and the position after it."""
    if position < end and message[position] == tag:
        return varint(message, position + 1, end)
    return 0, position


def bytes_at(message: bytes, position: int, end: int, tag: int) -> tuple[int, int]:
    """Where the bytes begin and end in the field with this one-byte tag, if it is here.

    Else nothing, from ``position`` to ``position``.
    """
    if position >= end or message[position] != tag:
        return position, position
    position += 1
    if position < end and message[position] < 0x80:  # noqa: PLR2004  # as in varint
        length, position = message[position], position + 1
    else:
        length, position = varint(message, position, end, _SHORT_NUMBER_BYTES)
    if length > end - position:
        raise Malformed("a field that is longer than what holds it")
    return position, position + length


def content_at(message: bytes, position: int) -> tuple[int, int]:
    """Where the content of the field of bytes begins and ends; its one-byte tag is here.

    Does not check the end of the message: raises IndexError, or returns an end after it.
    """
    length = message[position + 1]
    if length < 0x80:  # noqa: PLR2004  # seven bits a byte
        return position + 2, position + 2 + length
    high = message[position + 2]
    if high < 0x80:  # noqa: PLR2004
        return position + 3, position + 3 + (high << 7) + length - 0x80
    length, position = varint(message, position + 1, len(message), _SHORT_NUMBER_BYTES)
    return position, position + length


def skim(message: bytes) -> Iterator[tuple[int, int]]:
    """Number and length of every field at the top of a message, those inside groups among them.

    For checks before the class takes memory for the whole message; does not look inside fields.
    Raises Malformed for more than ``MAX_FIELDS``.
    """
    position, end = 0, len(message)
    for _ in range(MAX_FIELDS):
        if position >= end:
            return
        tag, start = tag_at(message, position, end)
        position = _behind(message, start, end, tag & 7)
        yield tag >> 3, position - start
    if position < end:
        raise Malformed(f"more than {MAX_FIELDS} fields")


def data_bytes_in(message: bytes, kind: Any, most: int) -> int:
    """How many bytes the ``data`` fields of a message have, at any depth.

    ``kind``: its descriptor. Raises Malformed for more than ``most`` fields, including those
    inside, and if groups and messages are nested too deep, before the class takes time and memory
    for them.
    """
    counted = data = position = 0
    inside: list[tuple[int, int, Any]] = [(len(message), 0, kind)]
    """What is open: its end, its number if it is a group, its descriptor if it is known."""
    while inside:
        end, group, kind = inside[-1]
        if position >= end and not group:
            inside.pop()
            continue
        tag, position = tag_at(message, position, end)
        number, wire_type = tag >> 3, tag & 7
        counted += 1
        if counted > most or len(inside) > MAX_DEPTH + 1:
            raise Malformed(f"more than {most} fields or {MAX_DEPTH} levels")
        if wire_type == _START_GROUP:
            inside.append((end, number, None))
        elif wire_type == _END_GROUP:
            if number != group:
                raise Malformed("the end of a group that is not open")
            inside.pop()
        else:
            start, position = position, _behind(message, position, end, wire_type)
            known = kind and wire_type == _LENGTH and kind.fields_by_number.get(number)
            if known and known.message_type:
                inside.append((position, 0, known.message_type))
                position = varint(message, start, end)[1]
            elif known and number == DATA:
                data += position - varint(message, start, end)[1]
    return data


def _behind(message: bytes, position: int, end: int, wire_type: int) -> int:
    """The position after the content of a field."""
    if wire_type == _VARINT:
        return varint(message, position, end)[1]
    if wire_type == _LENGTH:
        length, position = varint(message, position, end, _SHORT_NUMBER_BYTES)
    elif wire_type in _FIXED_SIZES:
        length = _FIXED_SIZES[wire_type]
    else:
        raise Malformed(f"wire type {wire_type} out of place")
    if length > end - position:
        raise Malformed("a field that is longer than what holds it")
    return position + length

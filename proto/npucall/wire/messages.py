"""Messages with bulk data <-> bytes: ``ExecuteRequest`` and ``ExecuteResponse``.

The protobuf class copies bulk bytes on each side, which costs more than the network
[src:hand-framing]. So this module writes the top level of these two, and ``Storage``. It also reads
them if they are encoded as npucall and the generated classes encode them: the small messages inside
stay bytes, which the class reads, and storages are views of the received bytes. The class reads
every other encoding.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from npucall.errors import MessageError
from npucall.limits import (
    ALIGNMENT,
    MAX_CALL_BYTES,
    MAX_FIELDS,
    MAX_MESSAGE_BYTES,
    MAX_NESTED_FIELDS,
    MAX_OVERHEAD_BYTES,
)
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.places import (
    field_of,
    join_place,
    output_place,
    output_places_of_class,
    place_of_class,
)
from npucall.wire.protobuf import (
    DATA,
    Malformed,
    bytes_at,
    content_at,
    data_bytes_in,
    header,
    skim,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from npucall.places import OutputPlace, Place
    from npucall.tensors import Buffer
    from npucall.wire.places import ReceivedPlace

# Numbers of fields, and the tags `number << 3 | 2` of those that are read by position.
_CALL, _REQUEST_STORAGE, _OUTPUT_PLACES = 1, 2, 3
_REPLY, _TIMINGS, _RESPONSE_STORAGE = 1, 2, 3
_PADDING = 1
_PLACE_OUTPUT = 1
_SMALL_BYTES = 1024
"""Of a place without data, as npucall and the generated classes encode it."""
_FIRST_TAG, _SECOND_TAG, _THIRD_TAG, _DATA_TAG = 0x0A, 0x12, 0x1A, 0x7A
_NOWHERE: Mapping[str, OutputPlace] = MappingProxyType({})


class RequestParts(NamedTuple):
    """An ``ExecuteRequest``: the bytes of its call, its storages, and places for its outputs."""

    call: bytes
    storage: list[ReceivedPlace]
    output_places: Mapping[str, OutputPlace] = _NOWHERE

    @property
    def is_placed(self) -> bool:
        """Whether any part of the call is not in the message."""
        return bool(self.output_places) or not all(
            type(each) is memoryview for each in self.storage
        )

    @property
    def data_bytes(self) -> int:
        """Of the storages in the message."""
        return sum(len(each) for each in self.storage if isinstance(each, memoryview))


class KnownMessage:
    """Messages of which only some parts differ, and those have always as many bytes.

    So nothing of them has to be parsed, or written anew.
    """

    __slots__ = ("_parts", "_sizes", "_stays", "data_bytes", "length")

    def __init__(self, parts: Iterable[tuple[bytes, int]]) -> None:
        """``parts``: bytes that stay, each with how many follow them that differ."""
        self._parts: list[tuple[slice, bytes, slice]] = []
        self._sizes: list[int] = []
        self._stays: list[Buffer] = []
        self.data_bytes = position = 0
        for stays, size in parts:
            start = position + len(stays)
            self._parts.append((slice(position, start), stays, slice(start, start + size)))
            self._stays += (stays, b"")
            self._sizes.append(size)
            self.data_bytes += size
            position = start + size
        self.length = position

    @property
    def begins(self) -> bytes:
        """What stays at their beginning."""
        return self._parts[0][1]

    def fits(self, data: Collection[Buffer]) -> bool:
        """Whether these parts have the lengths that it says."""
        return list(map(len, data)) == self._sizes

    def parts(self, data: Collection[Buffer]) -> list[Buffer]:
        """The message with these parts that differ."""
        parts = self._stays.copy()
        parts[1::2] = data
        return parts

    def join(self, data: Collection[Buffer]) -> bytes:
        """Its bytes. Copies each of the parts once."""
        return b"".join(self.parts(data))

    def split(self, message: bytes) -> list[memoryview] | None:
        """The parts that differ, views of the message; None if it looks otherwise."""
        if len(message) != self.length:
            return None
        view, found = memoryview(message), []
        for place, stays, data in self._parts:
            if message[place] != stays:
                return None
            found.append(view[data])
        return found


def known_request(call: bytes, sizes: Sequence[int]) -> KnownMessage | None:
    """The requests of one call as npucall writes them, with all of its storages in the message.

    None if there are none, or if npucall would refuse them. ``sizes``: of the storages, in bytes.
    """
    known = KnownMessage(known_request_parts(call, sizes))
    overhead = known.length - known.data_bytes
    is_short = overhead <= MAX_OVERHEAD_BYTES and known.length <= MAX_MESSAGE_BYTES
    return known if sizes and is_short else None


def known_request_parts(
    call: bytes, sizes: Sequence[int], position: int = 0
) -> Iterator[tuple[bytes, int]]:
    """What stays of a request that begins there, each part with the bytes of the storage behind."""
    return _storage_parts(header(_CALL, len(call)) + call, _REQUEST_STORAGE, sizes, position)


def known_answers(reply: bytes, timings: int, sizes: Sequence[int]) -> KnownMessage:
    """The answers to one call as npucall writes them: timings and outputs of these sizes differ."""
    before = header(_REPLY, len(reply)) + reply + header(_TIMINGS, timings)
    outputs = _storage_parts(b"", _RESPONSE_STORAGE, sizes, len(before) + timings)
    return KnownMessage([(before, timings), *outputs])


def known_answer(message: bytes, answer: Response) -> KnownMessage | None:
    """The answers that differ from this one in their timings and data alone.

    None if npucall would not have written it so, or if it has places.
    """
    sizes = [len(each) for each in answer.storage if isinstance(each, memoryview)]
    if not sizes or len(sizes) != len(answer.storage):
        return None
    known = known_answers(answer.reply, len(answer.timings), sizes)
    return None if known.split(message) is None else known


def _storage_parts(
    before: bytes, field: int, sizes: Iterable[int], position: int = 0
) -> Iterator[tuple[bytes, int]]:
    """What stays of the storages of a message, after what comes before them."""
    position += len(before)
    for size in sizes:
        stays = _storage_header(field, size, position % ALIGNMENT)
        yield before + stays, size
        position += len(stays) + size
        before = b""


def call_in(message: bytes) -> bytes:
    """The bytes of the call in an ``ExecuteRequest``, if it begins with them; else others.

    Only for calls of less than 16 KiB, as those that are kept are.
    """
    try:
        start, length = 2, message[1]
        if length >= 0x80:  # noqa: PLR2004  # seven bits a byte, the lowest first
            start, length = 3, (message[2] << 7) + length - 0x80
        return bytes(message[start : start + length]) if message[0] == _FIRST_TAG else b""
    except IndexError:
        return b""


class Response(NamedTuple):
    """An ``ExecuteResponse``: the bytes of its reply and its timings, and its storages."""

    reply: bytes
    timings: bytes
    storage: list[ReceivedPlace]


def join_request(
    call: bytes, storage: Sequence[Place], output_places: Mapping[str, OutputPlace] = _NOWHERE
) -> bytes:
    """The bytes of an ``ExecuteRequest``. Copies each storage once, into the message."""
    return b"".join(request_parts(call, storage, output_places))


def request_parts(
    call: bytes,
    storage: Sequence[Place],
    output_places: Mapping[str, OutputPlace] = _NOWHERE,
    position: int = 0,
) -> list[Buffer]:
    """What ``join_request`` joins; ``position``: where it begins in the message that holds it."""
    before: list[Buffer] = [header(_CALL, len(call)), call]
    parts = _parts(before, _REQUEST_STORAGE, storage, position)
    for name, place in output_places.items():
        parts.append(field_of(_OUTPUT_PLACES, _output_name(name) + output_place(place)))
    return parts


@lru_cache(1024)
def _output_name(name: str) -> bytes:
    return field_of(_PLACE_OUTPUT, name.encode())


def join_response(reply: bytes, timings: bytes, storage: Sequence[Place]) -> bytes:
    """The bytes of an ``ExecuteResponse``. Copies each storage once, into the message."""
    return b"".join(response_parts(reply, timings, storage))


def response_parts(
    reply: bytes, timings: bytes, storage: Sequence[Place], position: int = 0
) -> list[Buffer]:
    """What ``join_response`` joins; ``position``: where it begins in the message that holds it."""
    before: list[Buffer] = [header(_REPLY, len(reply)), reply]
    if timings:
        before += (header(_TIMINGS, len(timings)), timings)
    return _parts(before, _RESPONSE_STORAGE, storage, position)


def split_request(message: bytes) -> RequestParts:
    """Finds call and storages in an ``ExecuteRequest``; the storages are views of it.

    Raises MessageError where the protobuf class would refuse the message, where an output has two
    places or none, for more than ``MAX_FIELDS``, ``MAX_NESTED_FIELDS`` or
    ``MAX_DEPTH``, and for more than ``MAX_OVERHEAD_BYTES`` without data.
    """
    check_length(message, "ExecuteRequest")
    return split_request_in(message, 0, len(message))


def split_request_in(message: bytes, start: int, end: int) -> RequestParts:
    """``split_request`` for one that stands within a longer message."""
    request = _split_request(message, start, end)
    if end - start > MAX_OVERHEAD_BYTES:
        check_overhead("ExecuteRequest", end - start - request.data_bytes)
    return request


def check_overhead(name: str, size: int, most: int = MAX_OVERHEAD_BYTES) -> None:
    """Raises MessageError if a message without its data has too many bytes."""
    if size > most:
        raise MessageError(
            f"{name}: expected at most {most} bytes without the data of storages, found {size}"
        )


def _split_request(message: bytes, begin: int, end: int) -> RequestParts:
    try:
        start, position = bytes_at(message, begin, end, _FIRST_TAG)
        call = bytes(message[start:position])
        storage, position = _storages(message, position, end, _SECOND_TAG)
        if position == end:
            return RequestParts(call, storage)
        places, position = _output_places(message, position, end, MAX_FIELDS - len(storage))
        if position == end:
            return RequestParts(call, storage, places)
    except (Malformed, IndexError):
        pass  # another spelling, or no message: the class decides
    return _request_of_class(bytes(message[begin:end]))


def split_response(message: bytes) -> Response:
    """Finds reply, timings and storages in an ``ExecuteResponse``; see ``split_request``."""
    check_length(message, "ExecuteResponse")
    return split_response_in(message, 0, len(message))


def split_response_in(message: bytes, begin: int, end: int) -> Response:
    """``split_response`` for one that stands within a longer message."""
    try:
        start, position = bytes_at(message, begin, end, _FIRST_TAG)
        reply = bytes(message[start:position])
        start, position = bytes_at(message, position, end, _SECOND_TAG)
        timings = bytes(message[start:position])
        storage, position = _storages(message, position, end, _THIRD_TAG)
        if position == end:
            return Response(reply, timings, storage)
    except (Malformed, IndexError):
        pass
    parsed = parsed_as(pb.ExecuteResponse, message[begin:end])
    storage = [place_of_class(each) for each in parsed.storage]
    return Response(parsed.reply.SerializeToString(), parsed.timings.SerializeToString(), storage)


def _parts(
    parts: list[Buffer],
    field: int,
    storage: Sequence[Place],
    position: int,
) -> list[Buffer]:
    position += sum(map(len, parts))
    for data in storage:
        if isinstance(data, tuple) or data is None:
            place = field_of(field, b"" if data is None else join_place(data))
            parts.append(place)
            position += len(place)
            continue
        before = _storage_header(field, len(data), position % ALIGNMENT)
        parts += (before, data)
        position += len(before) + len(data)
    return parts


@lru_cache(1024)
def _storage_header(field: int, length: int, position: int) -> bytes:
    """Everything of a storage before its data, padded so that the data is aligned."""
    data_header = header(DATA, length)
    padding = 0
    while True:
        inner = b"%b%b%b" % (header(_PADDING, padding), bytes(padding), data_header)
        before = header(field, len(inner) + length) + inner
        if not (short := -(position + len(before)) % ALIGNMENT):
            return before
        padding += short  # once more if a length now takes one byte more


def _storages(message: bytes, position: int, end: int, tag: int) -> tuple[list[ReceivedPlace], int]:
    """The storages that follow each other here, and the position after them."""
    view = memoryview(message)
    storages: list[ReceivedPlace] = []
    while position < end and message[position] == tag:
        start, position = content_at(message, position)
        inner = start
        if start < position and message[inner] == _FIRST_TAG:
            inner = content_at(message, inner)[1]
        if inner < position and message[inner] == _DATA_TAG:
            data, behind = content_at(message, inner)
            storages.append(view[data:behind])
        else:  # another place; small
            behind = position
            storages.append(_place_in(_small(message, start, position)))
        if behind != position or position > end or len(storages) >= MAX_FIELDS:
            raise Malformed("another spelling")
    return storages, position


def _small(message: bytes, start: int, end: int) -> bytes:
    """What the class may read before its fields are counted."""
    if end - start > _SMALL_BYTES:
        raise Malformed("another spelling")
    return bytes(message[start:end])


def _place_in(storage: bytes) -> ReceivedPlace:
    place = place_of_class(parsed_as(tensor_pb2.Storage, storage)) if storage else None
    if isinstance(place, memoryview):
        raise Malformed("another spelling")
    return place


def _output_places(
    message: bytes, position: int, end: int, most: int
) -> tuple[Mapping[str, OutputPlace], int]:
    """The places for outputs here, and the position after them."""
    places: list[pb.OutputPlace] = []
    while position < end and message[position] == _THIRD_TAG and len(places) < most:
        start, position = bytes_at(message, position, end, _THIRD_TAG)
        places.append(parsed_as(pb.OutputPlace, _small(message, start, position)))
    return output_places_of_class(places), position


def _request_of_class(message: bytes) -> RequestParts:
    call_bytes = 0
    try:
        for field, length in skim(message):
            call_bytes += length if field == _CALL else 0
        data_bytes = data_bytes_in(message, pb.ExecuteRequest.DESCRIPTOR, MAX_NESTED_FIELDS)
    except Malformed as fault:
        raise _refusal("ExecuteRequest", fault) from None
    if call_bytes > 2 * MAX_CALL_BYTES:  # its parts may be longer than the call that they make
        raise MessageError(f"call: expected at most {MAX_CALL_BYTES} bytes, found {call_bytes}")
    check_overhead("ExecuteRequest", len(message) - data_bytes)
    parsed = parsed_as(pb.ExecuteRequest, message)
    return RequestParts(
        parsed.call.SerializeToString(),
        [place_of_class(storage) for storage in parsed.storage],
        output_places_of_class(parsed.output_places),
    )


def check_length(message: bytes, name: str) -> None:
    """Raises MessageError for more than protobuf can hold."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise MessageError(f"{name}: expected less than 2 GiB, found {len(message)} bytes")


def _refusal(name: str, fault: object) -> MessageError:
    return MessageError(f"{name}: expected a protobuf message, found {fault}")


def parsed_as(kind: Any, data: bytes) -> Any:
    """The message that the class reads. Raises MessageError."""
    try:
        return kind.FromString(bytes(data))
    except DecodeError as error:
        name = kind.DESCRIPTOR.name
        raise MessageError(f"{name}: expected a serialised npucall.v1.{name}") from error

"""Messages with bulk data <-> bytes: ``ExecuteRequest`` and ``ExecuteResponse``.

The protobuf class copies bulk bytes on each side, which costs more than the network. So the top
level of these two, and ``Storage``, are written here, and read here where they are spelled as
npucall and the generated classes spell them: the small messages inside stay bytes, for the class to
read, and storages are views of what was received. Every other spelling is read by the class.
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
from npucall.places import RegionPart
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.protobuf import (
    DATA,
    Malformed,
    bytes_at,
    content_at,
    data_bytes_in,
    header,
    number,
    skim,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.places import Place
    from npucall.tensors import Buffer

# Numbers of fields, and the tags `number << 3 | 2` of those that are read by position.
_CALL, _REQUEST_STORAGE, _OUTPUT_PLACES = 1, 2, 3
_REPLY, _TIMINGS, _RESPONSE_STORAGE = 1, 2, 3
_PADDING, _REGION = 1, 2
_PLACE_OUTPUT, _PLACE_REGION, _REGION_ID = 1, 2, 1
_SMALL_BYTES = 1024
"""Of a region, or of an output's place, as npucall and the generated classes spell them."""
_FIRST_TAG, _SECOND_TAG, _THIRD_TAG, _DATA_TAG = 0x0A, 0x12, 0x1A, 0x7A
_NOWHERE: Mapping[str, RegionPart] = MappingProxyType({})


class Request(NamedTuple):
    """An ``ExecuteRequest``: the bytes of its call, its storages, and places for its outputs."""

    call: bytes
    storage: list[memoryview | RegionPart]
    output_places: Mapping[str, RegionPart] = _NOWHERE

    @property
    def is_placed(self) -> bool:
        """Whether anything of the call is in shared memory."""
        return bool(self.output_places) or RegionPart in map(type, self.storage)


class Response(NamedTuple):
    """An ``ExecuteResponse``: the bytes of its reply and its timings, and its storages."""

    reply: bytes
    timings: bytes
    storage: list[memoryview | RegionPart]


def join_request(
    call: bytes, storage: Sequence[Place], output_places: Mapping[str, RegionPart] = _NOWHERE
) -> bytes:
    """The bytes of an ``ExecuteRequest``. Copies each storage once, into the message."""
    places = [
        _field(_OUTPUT_PLACES, _field(_PLACE_OUTPUT, name.encode()) + _region(_PLACE_REGION, part))
        for name, part in output_places.items()
    ]
    return _join([header(_CALL, len(call)), call], _REQUEST_STORAGE, storage, places)


def join_response(reply: bytes, timings: bytes, storage: Sequence[Place]) -> bytes:
    """The bytes of an ``ExecuteResponse``. Copies each storage once, into the message."""
    before: list[Buffer] = [header(_REPLY, len(reply)), reply]
    before += (header(_TIMINGS, len(timings)), timings)
    return _join(before, _RESPONSE_STORAGE, storage)


def split_request(message: bytes) -> Request:
    """Finds call and storages in an ``ExecuteRequest``; the storages are views of it.

    Raises MessageError where the protobuf class would refuse the message, where a storage has no
    place, where an output has two, for more than ``MAX_FIELDS``, ``MAX_NESTED_FIELDS`` or
    ``MAX_DEPTH``, and for more than ``MAX_OVERHEAD_BYTES`` besides data.
    """
    _check_length(message, "ExecuteRequest")
    request = _split_request(message)
    if len(message) > MAX_OVERHEAD_BYTES:
        data = (len(each) for each in request.storage if not isinstance(each, RegionPart))
        check_overhead("ExecuteRequest", len(message) - sum(data))
    return request


def check_overhead(name: str, size: int, most: int = MAX_OVERHEAD_BYTES) -> None:
    """Raises MessageError where a message has too many bytes besides data."""
    if size > most:
        raise MessageError(
            f"{name}: expected at most {most} bytes besides the data of storages, found {size}"
        )


def _split_request(message: bytes) -> Request:
    end = len(message)
    try:
        start, position = bytes_at(message, 0, end, _FIRST_TAG)
        call = message[start:position]
        storage, position = _storages(message, position, _SECOND_TAG)
        if position == end:
            return Request(call, storage)
        places, position = _output_places(message, position, MAX_FIELDS - len(storage))
        if position == end:
            return Request(call, storage, places)
    except (Malformed, IndexError):
        pass  # another spelling, or no message: the class decides
    return _request_of_class(message)


def split_response(message: bytes) -> Response:
    """Finds reply, timings and storages in an ``ExecuteResponse``; see ``split_request``."""
    _check_length(message, "ExecuteResponse")
    end = len(message)
    try:
        start, position = bytes_at(message, 0, end, _FIRST_TAG)
        reply = message[start:position]
        start, position = bytes_at(message, position, end, _SECOND_TAG)
        timings = message[start:position]
        storage, position = _storages(message, position, _THIRD_TAG)
        if position == end:
            return Response(reply, timings, storage)
    except (Malformed, IndexError):
        pass
    parsed = _parsed(pb.ExecuteResponse, message)
    storage = [_place_of_class(each, "ExecuteResponse") for each in parsed.storage]
    return Response(parsed.reply.SerializeToString(), parsed.timings.SerializeToString(), storage)


def _join(
    parts: list[Buffer], field: int, storage: Sequence[Place], behind: Sequence[bytes] = ()
) -> bytes:
    position = sum(map(len, parts))
    for data in storage:
        if isinstance(data, RegionPart):
            place = _field(field, _region(_REGION, data))
            parts.append(place)
            position += len(place)
            continue
        before = _storage_header(field, len(data), position % ALIGNMENT)
        parts += (before, data)
        position += len(before) + len(data)
    parts += behind
    return b"".join(parts)


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


def _storages(message: bytes, position: int, tag: int) -> tuple[list[memoryview | RegionPart], int]:
    """The storages that stand here one behind the other, and the position behind them."""
    view, end = memoryview(message), len(message)
    storages: list[memoryview | RegionPart] = []
    while position < end and message[position] == tag:
        start, position = content_at(message, position)
        inner = start
        if message[inner] == _FIRST_TAG:
            inner = content_at(message, inner)[1]
        if message[inner] == _DATA_TAG:
            data, behind = content_at(message, inner)
            storages.append(view[data:behind])
        else:  # a region; small
            behind = position
            storages.append(_region_in(_small(message, start, position)))
        if behind != position or position > end or len(storages) >= MAX_FIELDS:
            raise Malformed("another spelling")
    return storages, position


def _small(message: bytes, start: int, end: int) -> bytes:
    """What the class may read before its fields are counted."""
    if end - start > _SMALL_BYTES:
        raise Malformed("another spelling")
    return message[start:end]


def _region_in(storage: bytes) -> RegionPart:
    parsed = _parsed(tensor_pb2.Storage, storage)
    if parsed.WhichOneof("place") != "region":
        raise Malformed("another spelling")
    return _region_of(parsed.region)


def _output_places(
    message: bytes, position: int, most: int
) -> tuple[Mapping[str, RegionPart], int]:
    """The places for outputs that stand here, and the position behind them."""
    places: list[pb.OutputPlace] = []
    end = len(message)
    while position < end and message[position] == _THIRD_TAG and len(places) < most:
        start, position = bytes_at(message, position, end, _THIRD_TAG)
        places.append(_parsed(pb.OutputPlace, _small(message, start, position)))
    return _places_of_class(places), position


def _request_of_class(message: bytes) -> Request:
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
    parsed = _parsed(pb.ExecuteRequest, message)
    return Request(
        parsed.call.SerializeToString(),
        [_place_of_class(storage, "ExecuteRequest") for storage in parsed.storage],
        _places_of_class(parsed.output_places),
    )


def _place_of_class(storage: tensor_pb2.Storage, name: str) -> memoryview | RegionPart:
    place = storage.WhichOneof("place")
    if place is None:
        raise _refusal(name, "a storage without a place")
    return memoryview(storage.data) if place == "data" else _region_of(storage.region)


def _places_of_class(places: Sequence[pb.OutputPlace]) -> Mapping[str, RegionPart]:
    by_output = {place.output: _region_of(place.region) for place in places}
    if len(by_output) < len(places):
        raise MessageError(f"output_places: expected each output once, found {len(places)} places")
    return by_output


def _check_length(message: bytes, name: str) -> None:
    if len(message) > MAX_MESSAGE_BYTES:
        raise MessageError(f"{name}: expected less than 2 GiB, found {len(message)} bytes")


def _refusal(name: str, fault: object) -> MessageError:
    return MessageError(f"{name}: expected a protobuf message, found {fault}")


def _field(field: int, content: bytes) -> bytes:
    return header(field, len(content)) + content


def _region(field: int, part: RegionPart) -> bytes:
    numbers = b"\x10%b\x18%b" % (number(part.offset), number(part.length))
    return _field(field, _field(_REGION_ID, part.id) + numbers)


def _region_of(message: tensor_pb2.Region) -> RegionPart:
    return RegionPart(message.id, message.offset, message.length)


def _parsed(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        name = kind.DESCRIPTOR.name
        raise MessageError(f"{name}: expected a serialised npucall.v1.{name}") from error

"""Messages with bulk data <-> bytes: protobuf's wire format, framed by hand.

The protobuf class copies bulk bytes on each side, which costs more than the network. So the top
level of ``ExecuteRequest`` and ``ExecuteResponse``, and ``Storage``, are read and written here:
the small messages inside stay bytes, for the class to read, and storages are views of what was
received. The result is ordinary protobuf, of which any generated client is the other end; what the
class refuses is refused here too.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from npucall.errors import MessageError
from npucall.shapes import Shapes
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.protobuf import Malformed, fields, header, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.shapes import Span
    from npucall.tensors import Buffer

ALIGNMENT = 16
"""Data starts at a multiple of this within a message. CPython's bytes objects start at one too."""

_REQUEST_CALL, _REQUEST_STORAGE, _REQUEST_PLACES = 1, 2, 3
_RESPONSE_REPLY, _RESPONSE_TIMINGS, _RESPONSE_STORAGE = 1, 2, 3
_STORAGE_PADDING, _STORAGE_REGION, _STORAGE_DATA = 1, 2, 15
_PLACE_OUTPUT, _PLACE_REGION = 1, 2
_MAX_LENGTH = 2**31 - 1


class Region(NamedTuple):
    """A part of memory that client and server share."""

    id: bytes
    offset: int
    length: int


Place: TypeAlias = "Buffer | Region"
"""Where a storage is: in the message, or in shared memory."""
_REQUESTS: Shapes[bytes | Request] = Shapes()
_RESPONSES: Shapes[bytes] = Shapes()
_NOWHERE: Mapping[str, Region] = MappingProxyType({})


class Request(NamedTuple):
    """An ``ExecuteRequest``: the bytes of its call, its storages, and places for its outputs."""

    call: bytes
    storage: list[memoryview | Region]
    output_places: Mapping[str, Region] = _NOWHERE


class Response(NamedTuple):
    """An ``ExecuteResponse``: the bytes of its reply and its timings, and its storages."""

    reply: bytes
    timings: bytes
    storage: list[memoryview | Region]


def join_request(
    call: bytes, storage: Sequence[Place], output_places: Mapping[str, Region] = _NOWHERE
) -> bytes:
    """The bytes of an ``ExecuteRequest``. Copies each storage once, into the message."""
    parts: list[Buffer] = [header(_REQUEST_CALL, len(call)), call]
    places = [
        _field(
            _REQUEST_PLACES, _field(_PLACE_OUTPUT, name.encode()) + _region(_PLACE_REGION, region)
        )
        for name, region in output_places.items()
    ]
    return _join(parts, _REQUEST_STORAGE, storage, places)


def join_response(reply: bytes, timings: bytes, storage: Sequence[Place]) -> bytes:
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

    Raises MessageError where the protobuf class would refuse the message, where a storage has no
    place, and where an output has two.
    """
    known = _REQUESTS.of(message)
    if known is not None:
        if not isinstance(known.kept, bytes):
            return known.kept
        view = memoryview(message)
        return Request(known.kept, [view[start:end] for start, end in known.free])
    parts = _split(message, "ExecuteRequest", _REQUEST_STORAGE, _REQUEST_PLACES)
    call = parts.merged(_REQUEST_CALL)
    places = parts.of(_REQUEST_PLACES)
    request = Request(call, parts.storages, _output_places(places) if places else _NOWHERE)
    if all(isinstance(place, Region) for place in parts.storages):
        _REQUESTS.learn(message, request, ())  # nothing of it differs from call to call
    elif not places and parts.once(_REQUEST_CALL):
        _REQUESTS.learn(message, call, parts.data)
    return request


def split_response(message: bytes) -> Response:
    """Finds reply, timings and storages in an ``ExecuteResponse``; see ``split_request``."""
    known = _RESPONSES.of(message)
    if known is not None:
        view = memoryview(message)
        (start, end), *data = known.free
        return Response(known.kept, message[start:end], [view[a:b] for a, b in data])
    parts = _split(message, "ExecuteResponse", _RESPONSE_STORAGE, _RESPONSE_STORAGE)
    reply, timings = parts.merged(_RESPONSE_REPLY), parts.merged(_RESPONSE_TIMINGS)
    if parts.once(_RESPONSE_REPLY, _RESPONSE_TIMINGS):
        free = [*parts.spans[_RESPONSE_TIMINGS], *parts.data]
        if free == sorted(free):  # else timings stand behind a storage
            _RESPONSES.learn(message, reply, free)
    return Response(reply, timings, parts.storages)


def _join(
    parts: list[Buffer], field: int, storage: Sequence[Place], behind: Sequence[bytes] = ()
) -> bytes:
    position = sum(map(len, parts))
    for data in storage:
        if isinstance(data, Region):
            place = _field(field, _region(_STORAGE_REGION, data))
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
    data_header = header(_STORAGE_DATA, length)
    padding = 0
    while True:
        inner = b"%b%b%b" % (header(_STORAGE_PADDING, padding), bytes(padding), data_header)
        before = header(field, len(inner) + length) + inner
        if not (short := -(position + len(before)) % ALIGNMENT):
            return before
        padding += short  # once more if a length now takes one byte more


class _Parts:
    """The fields of a message of the kind ``name``."""

    def __init__(self, message: bytes, name: str) -> None:
        self._message, self._view, self._name = message, memoryview(message), name
        self.spans: dict[int, list[Span]] = {}
        """Where the small fields are, by number."""
        self.storages: list[memoryview | Region] = []
        self.data: list[Span] = []
        """Where the storages are that are bytes of the message."""

    def add_storage(self, start: int, end: int) -> None:
        """A storage that the message has there. Raises Malformed."""
        data = None
        for field, inner_start, inner_end in fields(self._message, start, end, depth=1):
            if field == _STORAGE_REGION:  # small, or spelled so that the class shall judge
                self.storages.append(_place(_parsed(tensor_pb2.Storage, self._message[start:end])))
                return
            if field == _STORAGE_DATA:
                data = inner_start, inner_end
        if data is None:
            raise Malformed("a storage without a place")
        self.data.append(data)
        self.storages.append(self._view[data[0] : data[1]])

    def once(self, *small: int) -> bool:
        """Whether it has each of these fields once, and all storages in it."""
        single = all(len(self.spans.get(field, ())) == 1 for field in small)
        return single and len(self.data) == len(self.storages)

    def of(self, field: int) -> list[bytes]:
        """The bytes of a small field, as often as the message has it."""
        return [self._message[start:end] for start, end in self.spans.get(field, ())]

    def merged(self, field: int) -> bytes:
        """The bytes of a small field that is a message, parts merged as protobuf merges them.

        Each part must be a message, or bytes of two could make one field. Raises MessageError.
        """
        parts = self.of(field)
        try:
            for part in parts if len(parts) > 1 else ():
                for _ in fields(part, 0, len(part), depth=1):
                    pass
        except Malformed as fault:
            raise self.refusal(fault) from None
        return b"".join(parts)

    def refusal(self, fault: Malformed) -> MessageError:
        """What a message with this fault is refused with."""
        return MessageError(f"{self._name}: expected a protobuf message, found {fault}")


def _place(storage: tensor_pb2.Storage) -> memoryview | Region:
    if storage.WhichOneof("place") == "data":
        return memoryview(storage.data)
    return _region_of(storage.region)


def _split(message: bytes, name: str, storage_field: int, last_field: int) -> _Parts:
    if len(message) > _MAX_LENGTH:
        raise MessageError(f"{name}: expected less than 2 GiB, found {len(message)} bytes")
    parts = _Parts(message, name)
    try:
        for field, start, end in fields(message, 0, len(message)):
            if field == storage_field:
                parts.add_storage(start, end)
            elif field <= last_field:
                parts.spans.setdefault(field, []).append((start, end))
    except Malformed as fault:
        raise parts.refusal(fault) from None
    return parts


def _output_places(parts: list[bytes]) -> Mapping[str, Region]:
    places = [_parsed(pb.OutputPlace, part) for part in parts]
    by_output = {place.output: _region_of(place.region) for place in places}
    if len(by_output) < len(places):
        raise MessageError(f"output_places: expected each output once, found {len(places)} places")
    return by_output


def _field(field: int, content: bytes) -> bytes:
    return header(field, len(content)) + content


def _region(field: int, region: Region) -> bytes:
    numbers = b"\x10%b\x18%b" % (number(region.offset), number(region.length))
    return _field(field, _field(1, region.id) + numbers)


def _region_of(message: tensor_pb2.Region) -> Region:
    return Region(message.id, message.offset, message.length)


def _parsed(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MessageError(f"expected a serialised {kind.DESCRIPTOR.name}") from error

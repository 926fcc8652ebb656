"""Places <-> bytes: where storages and outputs are that a message does not contain."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from npucall.errors import MessageError
from npucall.limits import DIGEST_BYTES, HANDLE_BYTES
from npucall.places import Digest, Discard, HandlePart, Keep, OutputPlace, RegionPart, StepOutput
from npucall.wire.protobuf import header, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.v1 import operator_service_pb2 as pb
    from npucall.v1 import tensor_pb2

# Numbers of fields.
_REGION, _HANDLE, _DIGEST, _RESULT = 2, 3, 4, 5
_PLACE_REGION, _PLACE_KEEP, _PLACE_DISCARD = 2, 3, 4
_PART_ID, _RESULT_OUTPUT = 1, 2

_DISCARDED = number(_PLACE_DISCARD << 3) + b"\x01"

ReceivedPlace: TypeAlias = memoryview | RegionPart | HandlePart | Digest | StepOutput | None
"""Where a storage of a message is; see ``places.Place``."""


def place_of_class(storage: tensor_pb2.Storage) -> ReceivedPlace:
    """Where a storage is. Raises MessageError for an id or digest of another length."""
    kind = storage.WhichOneof("place")
    if kind == "data":
        return memoryview(storage.data)
    if kind == "region":
        return _region_of(storage.region)
    if kind == "handle":
        return handle_part_of(storage.handle)
    if kind == "digest":
        return Digest(checked_bytes("digest", storage.digest, DIGEST_BYTES))
    if kind == "result":
        return StepOutput(storage.result.step, storage.result.output)
    return None


def output_places_of_class(places: Sequence[pb.OutputPlace]) -> Mapping[str, OutputPlace]:
    """Where outputs go, by name. Raises MessageError where one has two places, or none."""
    by_output = {place.output: _output_place_of_class(place) for place in places}
    if len(by_output) < len(places):
        raise MessageError("output_places: expected one place for an output, found two")
    return by_output


def _output_place_of_class(place: pb.OutputPlace) -> OutputPlace:
    has_region, handle = place.HasField("region"), place.keep
    if has_region + bool(handle) + place.discard != 1:
        raise MessageError(
            f"output_places: expected exactly one of region, keep and discard for {place.output!r}"
        )
    if has_region:
        return _region_of(place.region)
    return Keep(checked_handle(handle)) if handle else Discard()


def checked_handle(handle: bytes) -> bytes:
    """The id of a handle. Raises MessageError where it has another length."""
    return checked_bytes("handle", handle, HANDLE_BYTES)


def checked_bytes(name: str, value: bytes, length: int) -> bytes:
    """Bytes of a fixed length. Raises MessageError where they have another one."""
    if len(value) != length:
        raise MessageError(f"{name}: expected {length} bytes, found {len(value)}")
    return value


def join_place(place: RegionPart | HandlePart | Digest | StepOutput) -> bytes:
    """The content of a storage that is not in the message."""
    if isinstance(place, RegionPart):
        return field_of(_REGION, _part(place))
    if isinstance(place, HandlePart):
        return field_of(_HANDLE, _part(place))
    if isinstance(place, Digest):
        return field_of(_DIGEST, place.sha256)
    return _result(place)


@lru_cache(1024)
def _result(place: StepOutput) -> bytes:
    """Cached, because programs are similar."""
    step = b"\x08" + number(place.step) if place.step else b""
    return field_of(_RESULT, step + field_of(_RESULT_OUTPUT, place.output.encode()))


def output_place(place: OutputPlace) -> bytes:
    """The content of an ``OutputPlace`` after its name."""
    if isinstance(place, RegionPart):
        return field_of(_PLACE_REGION, _part(place))
    if isinstance(place, Keep):
        return field_of(_PLACE_KEEP, place.handle)
    return _DISCARDED


def _part(part: RegionPart | HandlePart) -> bytes:
    """A ``Region`` or ``HandlePart``: their fields have the same numbers."""
    return field_of(_PART_ID, part.id) + b"\x10%b\x18%b" % (
        number(part.offset),
        number(part.length),
    )


def _region_of(message: tensor_pb2.Region) -> RegionPart:
    return RegionPart(message.id, message.offset, message.length)


def handle_part_of(message: tensor_pb2.HandlePart) -> HandlePart:
    """The part in its message. Raises MessageError where the id has another length."""
    return HandlePart(checked_handle(message.id), message.offset, message.length)


def field_of(field: int, content: bytes) -> bytes:
    """A field of bytes."""
    return header(field, len(content)) + content

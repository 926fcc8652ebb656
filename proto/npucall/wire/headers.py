"""Frames of a connection without gRPC: headers, and what is not a call; see ``frames.proto``."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import MessageError
from npucall.limits import REGION_ID_BYTES
from npucall.v1 import frames_pb2 as pb
from npucall.v1 import operator_service_pb2, shared_memory_pb2
from npucall.wire import status
from npucall.wire.messages import parsed_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.tensors import Buffer

_FIELDS = Struct("<IIBBHI")
HEADER_BYTES = _FIELDS.size
fields_at = _FIELDS.unpack_from
"""What a ``Header`` has, from bytes and a position, without making one: for each answer."""
MOST_CREDENTIAL_BYTES = 16 * 2**10
"""Of a credential, which is all that a server takes from somebody whom it does not know yet."""

MOST_METADATA_BYTES = 8 * 2**10
"""Of a call: its name, its key and its session are short."""

MOST_REQUEST_BYTES = 8 * 2**10
"""Of a request for memory."""

# As plain numbers, which are quicker to compare.
HELLO = int(pb.FRAME_KIND_HELLO)
CREDENTIAL = int(pb.FRAME_KIND_CREDENTIAL)
WELCOME = int(pb.FRAME_KIND_WELCOME)
EXECUTE = int(pb.FRAME_KIND_EXECUTE)
PROGRAM = int(pb.FRAME_KIND_PROGRAM)
CANCEL = int(pb.FRAME_KIND_CANCEL)
RESPONSE = int(pb.FRAME_KIND_RESPONSE)
ERROR = int(pb.FRAME_KIND_ERROR)
STREAM = int(pb.FRAME_KIND_STREAM)
MEMORY = int(pb.FRAME_KIND_MEMORY)
ALIVE = int(pb.FRAME_KIND_ALIVE)


class Header(NamedTuple):
    """What comes behind it, of which call, and how long that may take."""

    length: int
    """Bytes of metadata and message."""
    call_id: int
    kind: int
    flags: int = 0
    metadata: int = 0
    """Bytes of metadata."""
    timeout_ms: int = 0
    """0: no limit."""


def pack(kind: int, length: int, call_id: int = 0, metadata: int = 0, timeout_ms: int = 0) -> bytes:
    """The bytes of a header."""
    return _FIELDS.pack(length, call_id, kind, 0, metadata, timeout_ms)


def unpack(data: Buffer, position: int = 0) -> Header:
    """The header at a position, where ``HEADER_BYTES`` must be."""
    return Header._make(_FIELDS.unpack_from(data, position))


def join_hello(server: str, max_message_bytes: int, window: int) -> bytes:
    """What a server says first."""
    return pb.FrameHello(
        server=server, max_message_bytes=max_message_bytes, window=window
    ).SerializeToString()


def hello_in(data: bytes) -> tuple[str, int]:
    """The instance of a server, and the most bytes of a message for it. Raises MessageError."""
    hello: pb.FrameHello = parsed_as(pb.FrameHello, data)
    return hello.server, hello.max_message_bytes


def join_credential(authorization: str, client: int = 0) -> bytes:
    """What a client says first."""
    return operator_service_pb2.Credential(
        authorization=authorization, client=client
    ).SerializeToString()


def client_in(credential: bytes) -> int:
    """The number of a client's process; 0 if it tells none. Raises MessageError."""
    told: int = parsed_as(operator_service_pb2.Credential, credential).client
    return told


def authorization_in(credential: bytes) -> str:
    """What a credential says; may be empty. Raises MessageError."""
    told: str = parsed_as(operator_service_pb2.Credential, credential).authorization
    return told


def memory_request(data: bytes) -> shared_memory_pb2.SharedMemoryRequest:
    """What somebody wants who asks for memory. Raises MessageError where that is nothing."""
    if len(data) > MOST_REQUEST_BYTES:
        raise MessageError(f"request: expected at most {MOST_REQUEST_BYTES} bytes, found more")
    request: shared_memory_pb2.SharedMemoryRequest = parsed_as(
        shared_memory_pb2.SharedMemoryRequest, data
    )
    if bool(request.bytes) == request.credential:
        raise MessageError(
            f"bytes: expected 1 or more, or `credential` instead, found {request.bytes}"
        )
    return request


def join_memory_request(size: int) -> bytes:
    """Asks for so much of it."""
    return shared_memory_pb2.SharedMemoryRequest(bytes=size).SerializeToString()


def memory_in(response: bytes) -> bytes:
    """The id of memory that a server shares. Raises MessageError."""
    name: bytes = parsed_as(shared_memory_pb2.SharedMemoryResponse, response).id
    if len(name) != REGION_ID_BYTES:
        raise MessageError(f"id: expected {REGION_ID_BYTES} bytes, found {len(name)}")
    return name


def join_memory(name: bytes) -> bytes:
    """The memory's id, in answer to that."""
    return shared_memory_pb2.SharedMemoryResponse(id=name).SerializeToString()


def join_metadata(pairs: Mapping[str, str]) -> bytes:
    """What a call has beside its message, by gRPC's keys."""
    return pb.FrameMetadata(
        request_id=pairs.get(status.REQUEST_ID, ""),
        traceparent=pairs.get(status.TRACEPARENT, ""),
        reservation=pairs.get(status.RESERVATION, ""),
        session=pairs.get(status.SESSION, ""),
    ).SerializeToString()


def metadata_in(data: bytes) -> dict[str, str]:
    """What a call has beside its message, by gRPC's keys. Raises MessageError."""
    told: pb.FrameMetadata = parsed_as(pb.FrameMetadata, data)
    found = {
        status.REQUEST_ID: told.request_id,
        status.TRACEPARENT: told.traceparent,
        status.RESERVATION: told.reservation,
        status.SESSION: told.session,
    }
    return {key: value for key, value in found.items() if value}

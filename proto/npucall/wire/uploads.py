"""Frames of uploads <-> bytes: ``UploadRequest``; chunks and ends are those of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from npucall.dtypes import BY_WIRE, DType
from npucall.errors import DTypeError, MessageError
from npucall.exchange import Chunk, End
from npucall.limits import (
    DIGEST_BYTES,
    HANDLE_BYTES,
    MAX_ENTRIES,
    MAX_NESTED_FIELDS,
    MAX_PROGRAM_OVERHEAD_BYTES,
)
from npucall.v1 import session_service_pb2 as pb
from npucall.wire.frames import chunk_of_class, split_chunk
from npucall.wire.messages import check_overhead
from npucall.wire.protobuf import Malformed, data_bytes_in


class UploadEntry(NamedTuple):
    """Bytes that are uploaded: for a handle, to be remembered by their digest, or both."""

    handle: bytes
    length: int
    digest: bytes = b""
    dtype: DType | None = None


class UploadBegin(NamedTuple):
    """What an upload fills."""

    entries: Sequence[UploadEntry]


UploadFrame: TypeAlias = UploadBegin | Chunk | End


def split_upload_frame(message: bytes) -> UploadFrame:
    """The frame in an ``UploadRequest``. Raises MessageError, and DTypeError for an entry's dtype.

    A chunk's data is a view of the message.
    """
    chunk = split_chunk(message)
    return _of_class(message) if chunk is None else chunk


def check_id(what: str, data: bytes, length: int) -> bytes:
    """The id of a handle, or a digest. Raises MessageError where it has another length."""
    if len(data) != length:
        raise MessageError(f"{what}: expected {length} bytes, found {len(data)}")
    return data


def _of_class(message: bytes) -> UploadFrame:
    try:
        data = data_bytes_in(message, pb.UploadRequest.DESCRIPTOR, MAX_NESTED_FIELDS)
        check_overhead("frame", len(message) - data, MAX_PROGRAM_OVERHEAD_BYTES)
        parsed: Any = pb.UploadRequest.FromString(message)
    except (Malformed, DecodeError) as fault:
        raise MessageError(f"frame: expected a serialised UploadRequest, found {fault}") from fault
    kind = parsed.WhichOneof("frame")
    if kind == "chunk":
        return chunk_of_class(parsed.chunk)
    if kind == "begin":
        return _begin(parsed.begin.entries)
    if kind is None:
        raise MessageError("frame: expected a frame that this server knows, found none")
    return End()


def _begin(entries: Sequence[Any]) -> UploadBegin:
    if not 1 <= len(entries) <= MAX_ENTRIES:
        raise MessageError(f"entries: expected 1 to {MAX_ENTRIES}, found {len(entries)}")
    read = [_entry(number, entry) for number, entry in enumerate(entries)]
    handles = [entry.handle for entry in read if entry.handle]
    if len(set(handles)) < len(handles):
        raise MessageError("entries: expected each handle once, found one twice")
    return UploadBegin(read)


def _entry(number: int, entry: Any) -> UploadEntry:
    name = f"entries[{number}]"
    if not entry.handle and not entry.digest:
        raise MessageError(f"{name}: expected a handle or a digest, found neither")
    if entry.handle:
        check_id(f"{name}.handle", entry.handle, HANDLE_BYTES)
    if entry.digest:
        check_id(f"{name}.digest", entry.digest, DIGEST_BYTES)
    dtype = BY_WIRE.get(entry.dtype) if entry.dtype else None
    if entry.dtype and dtype is None:
        raise DTypeError(
            f"{name}.dtype: expected a dtype that npucall.v1.DataType lists, found {entry.dtype}"
        )
    return UploadEntry(entry.handle, entry.length, entry.digest, dtype)

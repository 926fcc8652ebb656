"""Single frames of ``ExecuteStream`` <-> bytes; see ``stream_messages`` for several.

npucall and the generated classes write each field once, in the order of the numbers. Code here
reads such frames by hand, so that a chunk's data is a view of the received bytes. The protobuf
class reads every other encoding of the same message, and copies.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError

from npucall.errors import MessageError
from npucall.exchange import (
    Begin,
    Cancel,
    Chunk,
    Credential,
    End,
    Error,
    ReplyFrame,
    RequestFrame,
    Resolved,
    ResponseFrame,
)
from npucall.limits import (
    ALIGNMENT,
    MAX_CHUNK_BYTES,
    MAX_NESTED_FIELDS,
    MAX_OVERHEAD_BYTES,
    MAX_PROGRAM_OVERHEAD_BYTES,
    MAX_REQUEST_ID_CHARACTERS,
    MAX_STORAGE_INDEX,
)
from npucall.tensors import Buffer
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import check_overhead
from npucall.wire.protobuf import (
    Malformed,
    bytes_at,
    data_bytes_in,
    header,
    number,
    number_at,
    skim,
    tag_at,
    varint,
)

Parsed = TypeVar("Parsed", pb.ExecuteStreamRequest, pb.ExecuteStreamResponse)

# Tags of the fields, `number << 3 | wire type`.
_CALL_ID = b"\x08"
_BEGIN_REQUEST, _BEGIN_CHUNKED, _BEGIN_TIMEOUT, _BEGIN_REQUEST_ID = 0x0A, 0x10, 0x18, 0x22
_BEGIN_EARLY = 0x28
_CHUNK_STORAGE, _CHUNK_OFFSET, _CHUNK_PADDING, _CHUNK_DATA = 0x08, 0x10, 0x1A, 0x7A
_OPENING, _CHUNK, _END, _LAST = 2, 3, 4, 5
_PROGRAM, _PROGRAM_REPLY, _RESOLVED = 7, 6, 7
_KINDS = range(2, 8)
"""Numbers of the fields of which a frame has one."""
_PROGRAM_FIELDS = 4 * MAX_NESTED_FIELDS
"""Of the frame of a program at any depth: its bytes without data are four times those of a call."""


def join_begin(call_id: int, begin: Begin) -> bytes:
    """The bytes of the frame that opens a call, or a program."""
    parts = [header(1, len(begin.request)), begin.request]
    if begin.chunked:
        parts.append(b"\x10\x01")
    if begin.timeout_ns:
        parts += (bytes([_BEGIN_TIMEOUT]), number(begin.timeout_ns))
    if begin.request_id:
        name = begin.request_id.encode()
        parts += (header(4, len(name)), name)
    if begin.early_outputs:
        parts.append(bytes([_BEGIN_EARLY, 1]))
    return _frame(call_id, _PROGRAM if begin.program else _OPENING, *parts)


def join_chunk(call_id: int, chunk: Chunk) -> bytes:
    """The bytes of the frame of a chunk, the same in both directions. Copies the data once."""
    return b"".join(chunk_parts(call_id, chunk))


def chunk_parts(call_id: int, chunk: Chunk) -> tuple[bytes, Buffer]:
    """What ``join_chunk`` joins.

    Padded so that the data is aligned within the frame and can be used in place.
    """
    size, padding = len(chunk.data), 0
    place = b"\x08%b\x10%b" % (number(chunk.storage), number(chunk.offset))
    while True:
        inner = b"%b%b%b%b" % (place, header(3, padding), bytes(padding), header(15, size))
        before = b"%b%b%b" % (_CALL_ID, number(call_id), header(_CHUNK, len(inner) + size))
        if not (short := -(len(before) + len(inner)) % ALIGNMENT):
            return before + inner, chunk.data
        padding += short  # once more if a length now takes one byte more


def join_end(call_id: int) -> bytes:
    """The bytes of the frame after the last chunk, the same in both directions."""
    return _frame(call_id, _END)


def join_cancel(call_id: int) -> bytes:
    """The bytes of the frame that cancels a call."""
    return _frame(call_id, _LAST)


def join_reply(call_id: int, response: bytes, *, program: bool = False) -> bytes:
    """The bytes of the frame of an answer."""
    return _frame(call_id, _PROGRAM_REPLY if program else _OPENING, response)


def join_resolved(call_id: int, reply: bytes) -> bytes:
    """The bytes of the frame before outputs that come before their reply."""
    return _frame(call_id, _RESOLVED, reply)


def join_error(call_id: int, status: bytes) -> bytes:
    """The bytes of the frame of a failure."""
    return _frame(call_id, _LAST, status)


def join_credential(credential: Credential) -> bytes:
    """The bytes of the frame that renews the credential of a stream."""
    frame = pb.Credential(authorization=credential.authorization)
    return pb.ExecuteStreamRequest(credential=frame).SerializeToString()


def split_request_frame(message: bytes) -> tuple[int, RequestFrame]:
    """The call's id and the frame in an ``ExecuteStreamRequest`` that has no ``more``.

    Raises MessageError where the protobuf class would refuse the message, where no frame is set,
    and for a chunk that is too long.
    """
    try:
        call_id, field, position = _opened(message)
        if field in (_OPENING, _PROGRAM):
            return call_id, _begin(message, position, program=field == _PROGRAM)
        if field == _CHUNK:
            return call_id, _chunk(message, position)
    except (Malformed, UnicodeDecodeError):
        pass  # another spelling, or no message: the class decides
    return _request_of_class(message)


def split_chunk(message: bytes) -> Chunk | None:
    """The chunk in a frame of any stream; None if it is no chunk, or encoded in another way."""
    try:
        _, field, position = _opened(message)
        return _chunk(message, position) if field == _CHUNK else None
    except Malformed:
        return None


def split_response_frame(message: bytes) -> tuple[int, ResponseFrame]:
    """The call's id and the frame in an ``ExecuteStreamResponse``; see ``split_request_frame``."""
    try:
        call_id, field, position = _opened(message)
        if field in (_OPENING, _PROGRAM_REPLY):
            return call_id, ReplyFrame(message[position:], field == _PROGRAM_REPLY)
        if field == _RESOLVED:
            return call_id, Resolved(message[position:])
        if field == _CHUNK:
            return call_id, _chunk(message, position)
    except Malformed:
        pass
    return _response_of_class(message)


def _frame(call_id: int, field: int, *parts: Buffer) -> bytes:
    before = _CALL_ID + number(call_id) + header(field, sum(map(len, parts)))
    return b"".join((before, *parts))


def _opened(message: bytes) -> tuple[int, int, int]:
    """The call's id, the number of the only field after it, and where its content begins."""
    end = len(message)
    call_id = position = 0
    if message[:1] == _CALL_ID:
        call_id, position = varint(message, 1, end)
    tag, position = tag_at(message, position, end)
    length, position = varint(message, position, end)
    if tag & 7 != 2 or position + length != end:  # noqa: PLR2004  # the wire type of bytes
        raise Malformed("another spelling")
    return call_id, tag >> 3, position


def _begin(message: bytes, position: int, *, program: bool) -> Begin:
    end, chunked, early = len(message), 0, 0
    start, position = bytes_at(message, position, end, _BEGIN_REQUEST)
    request = message[start:position]
    if not program:
        chunked, position = number_at(message, position, end, _BEGIN_CHUNKED)
    timeout_ns, position = number_at(message, position, end, _BEGIN_TIMEOUT)
    start, position = bytes_at(message, position, end, _BEGIN_REQUEST_ID)
    name = str(message[start:position], "utf-8")[:MAX_REQUEST_ID_CHARACTERS]
    if not program:
        early, position = number_at(message, position, end, _BEGIN_EARLY)
    if position != end:
        raise Malformed("another spelling")
    check_overhead("begin", end - len(request), _most_besides_data(program=program))
    return Begin(request, bool(chunked), timeout_ns, name, program, bool(early))


def _chunk(message: bytes, position: int) -> Chunk:
    end = len(message)
    storage, position = number_at(message, position, end, _CHUNK_STORAGE)
    offset, position = number_at(message, position, end, _CHUNK_OFFSET)
    _, position = bytes_at(message, position, end, _CHUNK_PADDING)
    start, position = bytes_at(message, position, end, _CHUNK_DATA)
    if position != end or storage > MAX_STORAGE_INDEX:
        raise Malformed("another spelling")
    check_overhead("chunk", start)
    return _checked(Chunk(storage, offset, memoryview(message)[start:position]))


def _checked(chunk: Chunk) -> Chunk:
    if len(chunk.data) > MAX_CHUNK_BYTES:
        raise MessageError(
            f"chunk: expected at most {MAX_CHUNK_BYTES} bytes, found {len(chunk.data)}"
        )
    return chunk


def read_request(message: bytes) -> pb.ExecuteStreamRequest:
    """The message as the class reads it. Raises MessageError if it is none, or over the limits."""
    try:
        program = _is_program(message)
        fields = _PROGRAM_FIELDS if program else MAX_NESTED_FIELDS
        data = data_bytes_in(message, pb.ExecuteStreamRequest.DESCRIPTOR, fields)
    except Malformed as fault:
        raise MessageError(
            f"frame: expected a serialised ExecuteStreamRequest, found {fault}"
        ) from fault
    check_overhead("frame", len(message) - data, _most_besides_data(program=program))
    return _parsed(pb.ExecuteStreamRequest, message)


def read_response(message: bytes) -> pb.ExecuteStreamResponse:
    """The message as the class reads it. Raises MessageError if it is none."""
    return _parsed(pb.ExecuteStreamResponse, message)


def _request_of_class(message: bytes) -> tuple[int, RequestFrame]:
    parsed = read_request(message)
    _check_alone(parsed)
    kind = parsed.WhichOneof("frame")
    if kind == "begin":
        begin = parsed.begin
        request = begin.request.SerializeToString()
        name = begin.request_id[:MAX_REQUEST_ID_CHARACTERS]
        timeout_ns, early = begin.timeout_ns, begin.early_outputs
        return parsed.call_id, Begin(request, begin.chunked, timeout_ns, name, early_outputs=early)
    if kind == "program":
        begun = parsed.program
        request = begun.request.SerializeToString()
        name = begun.request_id[:MAX_REQUEST_ID_CHARACTERS]
        return parsed.call_id, Begin(
            request, timeout_ns=begun.timeout_ns, request_id=name, program=True
        )
    if kind == "chunk":
        return parsed.call_id, chunk_of_class(parsed.chunk)
    if kind == "credential":
        return parsed.call_id, Credential(parsed.credential.authorization)
    if kind is None:
        raise MessageError("frame: expected a frame that this server knows, found none")
    return parsed.call_id, End() if kind == "end" else Cancel()


def _response_of_class(message: bytes) -> tuple[int, ResponseFrame]:
    parsed = read_response(message)
    _check_alone(parsed)
    kind = parsed.WhichOneof("frame")
    if kind == "reply":
        return parsed.call_id, ReplyFrame(parsed.reply.SerializeToString())
    if kind == "resolved":
        return parsed.call_id, Resolved(parsed.resolved.SerializeToString())
    if kind == "program_reply":
        return parsed.call_id, ReplyFrame(parsed.program_reply.SerializeToString(), program=True)
    if kind == "chunk":
        return parsed.call_id, chunk_of_class(parsed.chunk)
    if kind is None:
        raise MessageError("frame: expected a frame that this client knows, found none")
    return parsed.call_id, End() if kind == "end" else Error(parsed.error)


def _check_alone(parsed: pb.ExecuteStreamRequest | pb.ExecuteStreamResponse) -> None:
    if parsed.more:
        raise MessageError(
            "more: expected it only in the first frame of a message, found it in a later one"
        )


def _most_besides_data(*, program: bool) -> int:
    return MAX_PROGRAM_OVERHEAD_BYTES if program else MAX_OVERHEAD_BYTES


def _is_program(message: bytes) -> bool:
    """Whether the class takes a message for a program: of several frames the last one counts."""
    try:
        kinds = [field for field, _ in skim(message) if field in _KINDS]
    except Malformed:  # too many fields for any frame that we know, or no message
        return False
    return kinds[-1:] == [_PROGRAM]


def chunk_of_class(chunk: pb.Chunk) -> Chunk:
    """The chunk that the class has read. Raises MessageError where it is too long."""
    return _checked(Chunk(chunk.storage, chunk.offset, memoryview(chunk.data)))


def _parsed(kind: type[Parsed], message: bytes) -> Parsed:
    try:
        return kind.FromString(bytes(message))
    except DecodeError as error:
        raise MessageError(f"frame: expected a serialised {kind.__name__}") from error

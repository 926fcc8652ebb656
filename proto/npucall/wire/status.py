"""An error <-> ``google.rpc.Status``, in the trailer ``grpc-status-details-bin``."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from npucall.errors import (
    BY_REASON,
    CancelledError,
    DeadlineError,
    InternalError,
    NpucallError,
    ServerUnreachableError,
    TooLargeError,
)
from npucall.limits import MAX_TEXT_BYTES, MAX_TRAILER_BYTES
from npucall.texts import cut, shown

TRAILER = "grpc-status-details-bin"
REQUEST_ID = "npucall-request-id"
"""Metadata key by which a caller names a call."""
AUTHORIZATION = "authorization"
"""Metadata key of a credential: ``Bearer`` and a token."""
RESERVATION = "npucall-reservation"
"""Metadata key for the key of a reservation, in calls of its holder."""
SESSION = "npucall-session"
"""Metadata key for the session of the handles in a call."""
FRAMES_PER_MESSAGE = "npucall-frames-per-message"
"""Metadata key for the number of frames that a caller accepts in one message of a stream."""
TRACEPARENT = "traceparent"
"""Metadata key of the span that a call, or a stream, belongs to (W3C Trace Context)."""

_DOMAIN = "npucall"
_CODES = {code.value[0]: code for code in StatusCode}


def to_status(error: NpucallError) -> Status:
    """The error as ``google.rpc.Status``: code, sentence, and details for programs.

    Texts are cut so that the trailers always stay below gRPC's limit, and escaped so that any
    terminal may show them.
    """
    limit = MAX_TEXT_BYTES
    while _trailer_bytes(status := _to_status(error, limit)) > MAX_TRAILER_BYTES and limit:
        limit //= 2
    return status


def _to_status(error: NpucallError, limit: int) -> Status:
    message = cut(shown(str(error)), limit)
    status = Status(code=error.code.value[0], message=message)
    info = ErrorInfo(reason=error.reason, domain=_DOMAIN, metadata=_metadata(error, limit))
    status.details.add().Pack(info)
    if error.parameters:
        violations = [
            BadRequest.FieldViolation(field=cut(name, limit), description=message)
            for name in error.parameters
        ]
        status.details.add().Pack(BadRequest(field_violations=violations))
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status


def from_status(code: StatusCode, message: str, trailer: bytes | None) -> NpucallError:
    """The error that a server raised, from the status and trailers that arrived.

    Without a trailer of npucall (gRPC itself, or a proxy, answered) the code decides.
    """
    status, info, violations, retry = Status(), ErrorInfo(), BadRequest(), RetryInfo()
    with suppress(DecodeError):  # what was read until then counts
        status.ParseFromString(trailer or b"")
        for detail in status.details:
            for part in info, violations, retry:
                detail.Unpack(part)
    if info.domain != _DOMAIN:
        return _of_code(code, message)
    kind = BY_REASON.get(info.reason)
    # Of a newer server: the closest that this client knows.
    error = kind(status.message) if kind else _of_code(code, status.message)
    error.parameters = tuple(violation.field for violation in violations.field_violations)
    error.details = dict(info.metadata)
    for attribute in "aclnn_name", "parameter":
        error.details.pop(attribute, None)
    with suppress(ValueError):
        error.aclnn_status = int(error.details.pop("aclnn_status", ""))
    if retry.HasField("retry_delay"):
        error.retry_after = retry.retry_delay.ToNanoseconds() / 1e9
    return error


def is_ours(trailer: bytes | None) -> bool:
    """Whether a npucall server wrote the trailer; else gRPC itself answered, or a proxy."""
    status, info = Status(), ErrorInfo()
    with suppress(DecodeError):
        status.ParseFromString(trailer or b"")
    return any(detail.Unpack(info) and info.domain == _DOMAIN for detail in status.details)


def from_bytes(data: bytes) -> NpucallError:
    """The error in a serialised ``google.rpc.Status``, as streams carry it."""
    status = Status()
    with suppress(DecodeError):
        status.ParseFromString(data)
    return from_status(_CODES.get(status.code, StatusCode.UNKNOWN), status.message, data)


def _trailer_bytes(status: Status) -> int:
    """Bytes of the trailers at worst: the status in base64, its message in percent signs."""
    return status.ByteSize() * 4 // 3 + len(quote(status.message))


def _metadata(error: NpucallError, limit: int) -> dict[str, str]:
    metadata = {key: cut(value, limit) for key, value in error.details.items()}
    if error.aclnn_status is not None:
        metadata["aclnn_status"] = str(int(error.aclnn_status))
        metadata["aclnn_name"] = error.aclnn_name or ""
    if error.parameter is not None:
        metadata["parameter"] = cut(error.parameter, limit)
    return metadata


_BY_CODE = {
    StatusCode.UNAVAILABLE: ServerUnreachableError,
    StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    StatusCode.CANCELLED: CancelledError,
    StatusCode.RESOURCE_EXHAUSTED: TooLargeError,
    StatusCode.INTERNAL: InternalError,
}
"""Errors for codes from gRPC itself: nothing answers, a message over a limit, and so on."""


def _of_code(code: StatusCode, message: str) -> NpucallError:
    kind = _BY_CODE.get(code)
    if kind is not None:
        return kind(message)
    error = NpucallError(f"{code.name}: {message}")
    error.code = code  # type: ignore[misc]  # an answer that no npucall server gives
    return error

"""Files of calls with their arrays: a ``Recording`` of ``recording.proto``, call by call."""

from __future__ import annotations

import mmap
import os
import stat
import threading
from collections import defaultdict, deque
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from npucall.errors import NotRecordedError, NpucallError, SettingError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1.recording_pb2 import RecordedCall
from npucall.wire.protobuf import Malformed, bytes_at, header
from npucall.wire.rpcs import EXECUTE, PLAN
from npucall.wire.status import from_bytes, to_status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

MOST_BYTES = 2**30
"""Of a file."""
_CALLS, _FIRST_TAG = 1, 0x0A
_lock = threading.Lock()


class Recorded(NamedTuple):
    """A question to a server, and its answer."""

    method: str
    """The name of the RPC."""
    request: bytes
    response: bytes | None
    """None if it failed."""
    error: NpucallError | None = None

    @property
    def operator(self) -> str:
        """Of a call: the operator, with its variant if the call names one."""
        call = pb.ExecuteRequest.FromString(self.request).call
        return f"{call.operator}.{call.variant}" if call.variant else call.operator


def append(path: Path, call: Recorded) -> str:
    """Writes a call behind those that are there. Why it could not, in a few words, or nothing.

    A file that lacks a call takes no more of any process: it can only be read then.
    """
    if len(call.request) + len(call.response or b"") > MOST_BYTES:
        data = b""
    else:
        data = _message(call).SerializeToString()
    parts = header(_CALLS, len(data)), data
    try:
        with _lock, path.open("ab", buffering=0) as file:
            _lock_between_processes(file.fileno())
            if lacks_calls(path):
                return "a call before was not written"
            end = file.seek(0, os.SEEK_END)
            if data and end + sum(map(len, parts)) <= MOST_BYTES:
                return _written(path, file, parts, end)
            path.chmod(stat.S_IRUSR)
            return "it has no room"
    except OSError as error:
        return str(error.strerror)


def lacks_calls(path: Path) -> bool:
    """Whether a call could not be written to it. Raises OSError if there is no such file."""
    return not path.stat().st_mode & stat.S_IWUSR


def recorded(path: Path) -> Iterator[Recorded]:
    """The calls of a file, one by one. Raises SettingError for another file, and OSError."""
    with _mapped(path) as data:
        for start, end in _calls(path, data):
            yield _read(path, data[start:end])


class Answers:
    """The answers in a file, by question. The answers to one question follow one another."""

    def __init__(self, path: Path) -> None:
        self._path, self._data = path, _mapped(path)
        self._found: dict[tuple[str, bytes], deque[tuple[int, int]]] = defaultdict(deque)
        for start, end in _calls(path, self._data):
            call = _read(path, self._data[start:end])
            self._found[_key(call.method, call.request)].append((start, end))

    def to(self, method: str, request: bytes) -> bytes:
        """The next answer; the last one again and again. Raises it if it is an error.

        Raises NotRecordedError for a question that the file does not have.
        """
        places = self._found.get(_key(method, request))
        if not places:
            raise NotRecordedError(_missing(self._path, method, request))
        with _lock:
            start, end = places.popleft() if len(places) > 1 else places[0]
        call = _read(self._path, self._data[start:end])
        if call.error is not None:
            raise call.error
        return call.response or b""

    def close(self) -> None:
        """Gives the file back."""
        self._data.close()


def _message(call: Recorded) -> RecordedCall:
    message = RecordedCall(method=call.method, request=call.request)
    if call.error is None:
        message.response = call.response or b""
    else:
        message.error = to_status(call.error).SerializeToString()
    return message


def _written(path: Path, file: FileIO, parts: tuple[bytes, ...], end: int) -> str:
    """Writes behind ``end``, all or nothing."""
    try:
        for part in parts:
            left = memoryview(part)
            while left:
                left = left[file.write(left) :]
    except OSError as error:
        path.chmod(stat.S_IRUSR)
        file.truncate(end)
        return str(error.strerror)
    return ""


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise _no_recording(path, "an empty file")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _calls(path: Path, data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Where each call begins and ends."""
    position = 0
    while position < len(data):
        begin = position
        with suppress(Malformed):
            start, position = bytes_at(data, begin, len(data), _FIRST_TAG)  # type: ignore[arg-type]
        if position == begin:
            raise _no_recording(path, f"other bytes from byte {begin} on")
        yield start, position


def _read(path: Path, data: bytes) -> Recorded:
    try:
        call = RecordedCall.FromString(data)
    except DecodeError:
        raise _no_recording(path, "other bytes") from None
    error = from_bytes(call.error) if call.HasField("error") else None
    return Recorded(call.method, call.request, None if error else call.response, error)


def _no_recording(path: Path, found: str) -> SettingError:
    return SettingError(f"{path}: expected calls that npucall record wrote, found {found}")


def _missing(path: Path, method: str, request: bytes) -> str:
    what = method
    if method in (EXECUTE.name, PLAN.name):
        with suppress(DecodeError):
            what = f"this call of {Recorded(method, request, None).operator}"
    return (
        f"recorded:{path}: has no answer to {what}, with these arrays and attributes; record it "
        "again: npucall record"
    )


def _key(method: str, request: bytes) -> tuple[str, bytes]:
    return method, sha256(request).digest()


def _lock_between_processes(file: int) -> None:
    """Until it is closed; on systems that have no such locks only one process may write."""
    with suppress(ImportError):
        import fcntl  # noqa: PLC0415  # not on every system

        fcntl.flock(file, fcntl.LOCK_EX)

"""A client of SessionService over a real socket, which knows the generated classes alone."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import grpc
import pytest
from tests.server.fakes import PATIENCE, FakeCaller
from tests.server.raw import TRAILER, channel_to, info_of

from npucall.v1 import session_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.v1.operator_service_pb2 import Chunk, End

if TYPE_CHECKING:
    from tests.server.serving import Served

SESSIONS = "/npucall.v1.SessionService"
A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))
CHUNK = 100_000
DATA = bytes(range(256)) * 1000
DIGEST = sha256(DATA).digest()
MISSING = b"\0" * 32


class RefusedError(Exception):
    """The server answered with an error."""

    def __init__(self, status: bytes, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        info = info_of(status)
        self.code, self.reason = code, info.reason
        self.details: Mapping[str, str] = info.metadata


class RawSessions:
    """Calls the methods of the service, with the metadata that it has at the time."""

    def __init__(self, channel: Any, *metadata: tuple[str, str]) -> None:
        self.channel, self.known = channel, metadata
        self.session = ""
        self.opened: list[str] = []

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        session = (("npucall-session", self.session),) if self.session else ()
        return (*self.known, *session)

    def open(self, **wanted: Any) -> pb.OpenSessionResponse:
        """Opens a session, and uses it from then on."""
        answer: pb.OpenSessionResponse = self._unary("OpenSession", **wanted)
        self.session = answer.session
        self.opened.append(self.session)
        return answer

    def close_all(self) -> None:
        """All that it has opened."""
        for name in self.opened:
            self.session = name
            self.close()

    def renew(self) -> pb.RenewResponse:
        answer: pb.RenewResponse = self._unary("Renew")
        return answer

    def close(self) -> None:
        self._unary("Close")

    def release(self, *handles: bytes) -> None:
        self._unary("Release", handles=handles)

    def missing(self, *digests: bytes) -> list[bytes]:
        return list(self._unary("FindMissing", digests=digests).missing)

    def upload(self, *entries: tuple[pb.UploadEntry, bytes]) -> list[bool]:
        """Uploads entries with their bytes; what they are remembered."""
        return self.send(frames(*entries))

    def send(self, messages: Iterable[pb.UploadRequest]) -> list[bool]:
        """The frames of an upload, as they are."""
        return self.send_bytes(message.SerializeToString() for message in messages)

    def send_bytes(self, messages: Iterable[bytes]) -> list[bool]:
        call = self.channel.stream_unary(f"{SESSIONS}/Upload")
        with _told():
            answer = call(iter(messages), metadata=self.metadata, timeout=PATIENCE)
        return list(pb.UploadResponse.FromString(answer).remembered)

    def put(self, handle: bytes, data: bytes = DATA, **fields: Any) -> list[bool]:
        """Fills one handle."""
        return self.upload(entry(handle, data, **fields))

    def download(self, handle: bytes, length: int, offset: int = 0) -> bytes:
        """A part of a handle, from chunks that follow each other."""
        found = bytearray()
        for message in self.downloading(handle, length, offset):
            chunk = pb.DownloadResponse.FromString(message).chunk
            assert (chunk.storage, chunk.offset) == (0, len(found))
            found += chunk.data
        return bytes(found)

    def downloading(self, handle: bytes, length: int, offset: int = 0) -> Iterator[bytes]:
        part = tensor_pb2.HandlePart(id=handle, offset=offset, length=length)
        request = pb.DownloadRequest(part=part).SerializeToString()
        call = self.channel.unary_stream(f"{SESSIONS}/Download")
        with _told():
            yield from call(request, metadata=self.metadata, timeout=PATIENCE)

    def _unary(self, method: str, **fields: Any) -> Any:
        request = getattr(pb, f"{method}Request")(**fields).SerializeToString()
        with _told():
            call = self.channel.unary_unary(f"{SESSIONS}/{method}")
            data = call(request, metadata=self.metadata, timeout=PATIENCE)
        return getattr(pb, f"{method}Response").FromString(data)


@contextmanager
def sessions(target: str, *metadata: tuple[str, str]) -> Iterator[RawSessions]:
    """Over a connection of its own; what it has opened is closed."""
    with channel_to(target) as channel:
        client = RawSessions(channel, *metadata)
        yield client
        client.close_all()


def begin(*entries: pb.UploadEntry) -> pb.UploadRequest:
    return pb.UploadRequest(begin=pb.UploadBegin(entries=entries))


def chunk(data: bytes, storage: int = 0, offset: int = 0) -> pb.UploadRequest:
    return pb.UploadRequest(chunk=Chunk(storage=storage, offset=offset, data=data))


def end() -> pb.UploadRequest:
    return pb.UploadRequest(end=End())


def frames(*entries: tuple[pb.UploadEntry, bytes]) -> Iterator[pb.UploadRequest]:
    """Of an upload, one entry after the other."""
    yield begin(*(entry for entry, _ in entries))
    for number, (_, data) in enumerate(entries):
        for start in range(0, len(data), CHUNK):
            yield chunk(data[start : start + CHUNK], number, start)
    yield end()


def entry(handle: bytes = A, data: bytes = DATA, **fields: Any) -> tuple[pb.UploadEntry, bytes]:
    return pb.UploadEntry(handle=handle, length=len(data), **fields), data


@contextmanager
def _told() -> Iterator[None]:
    """Raises what the server said, as its own classes do not."""
    try:
        yield
    except grpc.RpcError as error:
        failed: Any = error
        trailer = dict(failed.trailing_metadata() or ()).get(TRAILER)
        if trailer is None:
            raise
        raise RefusedError(trailer, failed.code(), failed.details()) from None


def refused(act: Callable[[], object]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        act()
    return caught.value


class RawUpload:
    """An upload whose frames a test sends one by one."""

    def __init__(self, client: RawSessions, *entries: pb.UploadEntry) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = client.channel.stream_unary(f"{SESSIONS}/Upload")
        self.call = call.future(
            iter(self._messages.get, None), metadata=client.metadata, timeout=PATIENCE
        )
        self.session = client.session
        self.send(begin(*(entries or (entry()[0],))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.call.cancel()
        self._messages.put(None)

    def send(self, *messages: pb.UploadRequest) -> None:
        for message in messages:
            self._messages.put(message.SerializeToString())

    def holds(self, served: Served) -> bool:
        """Whether its handle is being filled."""
        return bool(served.sessions.of(FakeCaller(session=self.session)).held)

    def answer(self) -> list[bool]:
        return list(pb.UploadResponse.FromString(self.call.result(PATIENCE)).remembered)

"""A caller of SessionService over a real socket, who knows the generated classes alone."""

from __future__ import annotations

import queue
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import grpc
import pytest
from tests.server.scripted import PATIENCE
from tests.server.sessions.held import A, User
from tests.server.streams import info_of

from npucall.v1 import session_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.v1.operator_service_pb2 import Chunk, End

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.server.streams import Served

SERVICE = "/npucall.v1.SessionService"
TRAILER = "grpc-status-details-bin"
CHUNK = 100_000
DATA = bytes(range(256)) * 1000
DIGEST = sha256(DATA).digest()


class RefusedError(Exception):
    """The server answered with an error."""

    def __init__(self, status: bytes, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        info = info_of(status)
        self.code, self.reason = code, info.reason
        self.details: Mapping[str, str] = info.metadata


class Asker:
    """Calls the methods of the service, with the metadata that it has at the time."""

    def __init__(self, channel: grpc.Channel, *metadata: tuple[str, str]) -> None:
        self.channel = channel
        self.known = metadata
        self.session = ""
        self.opened: list[str] = []

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        session = (("npucall-session", self.session),) if self.session else ()
        return (*self.known, *session)

    def open(self, **wanted: Any) -> pb.OpenSessionResponse:
        """Opens a session, and uses it from then on."""
        answer = self._ask("OpenSession", pb.OpenSessionRequest(**wanted), pb.OpenSessionResponse)
        self.session = answer.session
        self.opened.append(self.session)
        return answer

    def close_all(self) -> None:
        """All that it has opened."""
        for name in self.opened:
            self.session = name
            self.close()

    def renew(self) -> pb.RenewResponse:
        return self._ask("Renew", pb.RenewRequest(), pb.RenewResponse)

    def close(self) -> None:
        self._ask("Close", pb.CloseRequest(), pb.CloseResponse)

    def release(self, *handles: bytes) -> None:
        self._ask("Release", pb.ReleaseRequest(handles=handles), pb.ReleaseResponse)

    def missing(self, *digests: bytes) -> list[bytes]:
        request = pb.FindMissingRequest(digests=digests)
        return list(self._ask("FindMissing", request, pb.FindMissingResponse).missing)

    def upload(self, *entries: tuple[pb.UploadEntry, bytes]) -> list[bool]:
        """Uploads entries with their bytes; what they are remembered."""
        return self.send(frames(*entries))

    def send(self, messages: Iterable[pb.UploadRequest]) -> list[bool]:
        """The frames of an upload, as they are."""
        call: Any = self.channel.stream_unary(f"{SERVICE}/Upload")  # type: ignore[call-arg]
        data = (message.SerializeToString() for message in messages)
        with _told():
            answer = call(data, metadata=self.metadata, timeout=PATIENCE)
        return list(pb.UploadResponse.FromString(answer).remembered)

    def put(self, handle: bytes, data: bytes, **entry: Any) -> list[bool]:
        """Fills one handle."""
        return self.upload((pb.UploadEntry(handle=handle, length=len(data), **entry), data))

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
        call: Any = self.channel.unary_stream(f"{SERVICE}/Download")  # type: ignore[call-arg]
        with _told():
            yield from call(request, metadata=self.metadata, timeout=PATIENCE)

    def _ask(self, method: str, request: Any, kind: Any) -> Any:
        call: Any = self.channel.unary_unary(f"{SERVICE}/{method}")  # type: ignore[call-arg]
        with _told():
            data = call(request.SerializeToString(), metadata=self.metadata, timeout=PATIENCE)
        return kind.FromString(data)


@contextmanager
def asking(target: str, *metadata: tuple[str, str]) -> Iterator[Asker]:
    """Over a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(target, options) as channel:
        yield Asker(channel, *metadata)


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


def entry(handle: bytes = A, data: bytes = DATA, **fields: Any) -> tuple[pb.UploadEntry, bytes]:
    return pb.UploadEntry(handle=handle, length=len(data), **fields), data


def refused(act: Callable[[], object]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        act()
    return caught.value


class Uploading:
    """An upload whose frames a test sends one by one."""

    def __init__(self, asker: Asker, *entries: tuple[pb.UploadEntry, bytes]) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call: Any = asker.channel.stream_unary(f"{SERVICE}/Upload")  # type: ignore[call-arg]
        self.call = call.future(
            iter(self._messages.get, None), metadata=asker.metadata, timeout=PATIENCE
        )
        self.session = asker.session
        if entries:
            self.send(begin(*(entry for entry, _ in entries)))

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
        return bool(served.sessions.of(User(self.session)).held)

    def answer(self) -> list[bool]:
        return list(pb.UploadResponse.FromString(self.call.result(PATIENCE)).remembered)

"""The other end of a connection of frames, written from the comments of ``frames.proto`` alone."""

import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.server.fakes import PATIENCE, FakeDevice
from tests.server.raw import RawStream, call_of, info_of
from tests.server.serving import Served, serving

from npucall.v1 import frames_pb2 as frames
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

HELLO, CREDENTIAL, WELCOME, EXECUTE, PROGRAM, CANCEL, RESPONSE, ERROR, STREAM, MEMORY = range(1, 11)
ALIVE = 11
HEADER = struct.Struct("<IIBBHI")


class QuickDevice(FakeDevice):
    """Runs calls in the thread that asks."""

    runs_in_calling_thread = True


class Frame(NamedTuple):
    kind: int
    call: int
    message: bytes

    @property
    def reason(self) -> str:
        assert self.kind == ERROR, self
        return info_of(self.message).reason

    @property
    def response(self) -> pb.ExecuteResponse:
        assert self.kind == RESPONSE, self
        return pb.ExecuteResponse.FromString(self.message)


def packed(
    kind: int, message: bytes = b"", call: int = 0, timeout: int = 0, **metadata: str
) -> bytes:
    """A frame."""
    beside = frames.FrameMetadata(**metadata).SerializeToString()
    length = len(beside) + len(message)
    return HEADER.pack(length, call, kind, 0, len(beside), timeout) + beside + message


def request(elements: int = 2, operator: str = "aclnnL1LossBackward") -> bytes:
    """A call whose storages are zeros."""
    storage = [tensor_pb2.Storage(data=bytes(4 * elements))] * 3
    return pb.ExecuteRequest(call=call_of(elements, operator), storage=storage).SerializeToString()


class FramePeer:
    """Sends what a test says, receives frame by frame."""

    def __init__(self, path: str = "", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """A path, or a port of this host, encrypted as ``tls`` says."""
        self.socket: Any = socket.socket(socket.AF_INET if port else socket.AF_UNIX)
        self.socket.connect(("127.0.0.1", port) if port else path)
        self.socket.settimeout(PATIENCE)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *args: Any, **given: Any) -> None:
        self.socket.sendall(packed(*args, **given))

    def receive(self) -> Frame:
        length, call, kind, flags, metadata, timeout = HEADER.unpack(self._read(HEADER.size))
        assert (flags, metadata, timeout) == (0, 0, 0)
        return Frame(kind, call, self._read(length))

    def hello(self) -> frames.FrameHello:
        """The server's first frame."""
        frame = self.receive()
        assert (frame.kind, frame.call) == (HELLO, 0)
        return frames.FrameHello.FromString(frame.message)

    def enter(self, authorization: str = "", client: int = 0) -> Frame:
        """From the hello to the answer to a credential."""
        self.hello()
        self.prove(authorization, client)
        return self.receive()

    def prove(self, authorization: str, client: int = 0) -> None:
        told = pb.Credential(authorization=authorization, client=client)
        self.send(CREDENTIAL, told.SerializeToString())

    def execute(self, call: int = 1, elements: int = 2, **given: Any) -> None:
        self.send(EXECUTE, request(elements), call, **given)

    def reason(self) -> str:
        return self.receive().reason

    def is_closed(self) -> bool:
        """Whether nothing more comes."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(bytes(data))
            data += part
        return bytes(data)


class StreamPeer(RawStream):
    """A connection that is one stream."""

    def __init__(self, peer: FramePeer, **metadata: str) -> None:
        self.peer, self._metadata = peer, metadata
        self._held, self._received = None, deque()
        self.most_frames = self.received_bytes = 0
        self.call = self

    def send_bytes(self, message: bytes) -> None:
        metadata, self._metadata = self._metadata, {}
        self.peer.send(STREAM, message, **metadata)

    def close(self) -> None:
        self.peer.send(STREAM)

    def __next__(self) -> bytes:
        frame = self.peer.receive()
        if frame.kind == ERROR:
            raise StreamEndError(frame.reason)
        assert (frame.kind, frame.call) == (STREAM, 0)
        if not frame.message:
            assert self.peer.is_closed()
            raise StopIteration
        return frame.message

    def answers(self) -> tuple[dict[int, list[pb.ExecuteStreamResponse]], str]:
        found: dict[int, list[pb.ExecuteStreamResponse]] = {}
        try:
            while True:
                frame = self.receive()
                found.setdefault(frame.call_id, []).append(frame)
        except StopIteration:
            return found, "OK"
        except StreamEndError as end:
            assert self.peer.is_closed()
            return found, str(end)


class StreamEndError(Exception):
    """With a reason."""


@contextmanager
def framed(folder: Path, device: Any = None, guard: Any = None, **given: Any) -> Iterator[Served]:
    """A server with frames, which must be at rest when it ends."""
    with serving(device, guard, frames_socket=folder / "f", **given) as served:
        yield served


@contextmanager
def connected(served: Served) -> Iterator[FramePeer]:
    """A connection that was welcomed."""
    with FramePeer(str(served.settings.frames_socket)) as peer:
        assert peer.enter() == (WELCOME, 0, b"")
        yield peer

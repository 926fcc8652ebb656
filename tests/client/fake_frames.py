"""The frames of a fake server: its calls in one message, without gRPC."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from npucall.errors import SharedMemoryError
from npucall.v1 import frames_pb2 as frames
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire import headers
from npucall.wire.status import TRAILER, is_ours, to_status

if TYPE_CHECKING:
    from tests.client.fake_server import FakeServer

INSTANCE = "the-fake"

Serve = Callable[["FakeConnection"], object]


class FakeConnection:
    """The server's end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self.authorization = connection, ""

    def send(self, kind: int, message: bytes = b"", call: int = 0) -> None:
        self.socket.sendall(headers.pack(kind, len(message), call) + message)

    def receive(self) -> tuple[headers.Header, dict[str, str], bytes]:
        header = headers.unpack(self.read(headers.HEADER_BYTES))
        beside = headers.metadata_in(self.read(header.metadata))
        return header, beside, self.read(header.length - header.metadata)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (part := self.socket.recv(size - len(data))):
                raise EOFError
            data += part
        return data

    def hello(self, instance: str = INSTANCE) -> None:
        told = frames.FrameHello(server=instance, max_message_bytes=2**24, window=64)
        self.send(headers.HELLO, told.SerializeToString())

    def welcome(self, instance: str = INSTANCE) -> None:
        """Until calls come."""
        self.hello(instance)
        header, _, message = self.receive()
        assert header.kind == headers.CREDENTIAL
        self.authorization = headers.authorization_in(message)
        self.send(headers.WELCOME)


class FrameContext:
    """What a behaviour of the fake server uses of gRPC's context."""

    def __init__(self, metadata: dict[str, str], connection: socket.socket) -> None:
        self._metadata, self._connection, self._trailer = metadata, connection, b""

    def add_callback(self, ended: Callable[[], object]) -> bool:
        def wait() -> None:
            with suppress(OSError):
                self._connection.recv(1, socket.MSG_PEEK)
            ended()

        threading.Thread(target=wait, daemon=True).start()
        return True

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return list(self._metadata.items())

    def set_trailing_metadata(self, pairs: Any) -> None:
        self._trailer = dict(pairs)[TRAILER]

    def abort(self, code: grpc.StatusCode, message: str) -> None:
        """Without a trailer of ours gRPC or a proxy did it: here the connection breaks."""
        del code, message
        raise RefusalError(self._trailer) if is_ours(self._trailer) else EOFError


class RefusalError(Exception):
    """With the status."""


def calls(server: FakeServer) -> Serve:
    """Answers as the server does."""

    def serve(peer: FakeConnection) -> None:
        peer.welcome()
        while True:
            header, metadata, message = peer.receive()
            if header.kind == headers.MEMORY:
                none = to_status(SharedMemoryError("it has none"))
                peer.send(headers.ERROR, none.SerializeToString(), header.call_id)
                continue
            if peer.authorization:
                metadata["authorization"] = peer.authorization
            context: Any = FrameContext(metadata, peer.socket)
            if header.kind == headers.STREAM:
                _stream(server, peer, message, context)
                return
            if server.behaviours:  # for its calls in frames of their own as for those of a stream
                _calls(server, peer, (header, message), context)
                return
            try:
                response = server.execute(message, context)
            except RefusalError as refusal:
                peer.send(headers.ERROR, refusal.args[0], header.call_id)
            else:
                peer.send(headers.RESPONSE, response, header.call_id)

    return serve


def _stream(server: FakeServer, peer: FakeConnection, message: bytes, context: Any) -> None:
    def messages() -> Iterator[bytes]:
        each = message
        while each:
            yield each
            each = peer.receive()[2]

    try:
        for answer in server.stream(messages(), context):
            peer.send(headers.STREAM, answer)
        peer.send(headers.STREAM)
    except RefusalError as refusal:
        peer.send(headers.ERROR, refusal.args[0])


def _calls(
    server: FakeServer, peer: FakeConnection, first: tuple[headers.Header, bytes], context: Any
) -> None:
    def messages() -> Iterator[bytes]:
        header, message = first
        while True:
            if header.kind == headers.EXECUTE:
                begin = pb.Begin(request=pb.ExecuteRequest.FromString(message))
                each = pb.ExecuteStreamRequest(call_id=header.call_id, begin=begin)
                yield each.SerializeToString()
            header, _, message = peer.receive()

    for answer in server.stream(messages(), context):
        told = pb.ExecuteStreamResponse.FromString(answer)
        if told.HasField("error"):
            peer.send(headers.ERROR, told.error, told.call_id)
        else:
            peer.send(headers.RESPONSE, told.reply.SerializeToString(), told.call_id)


class FakeListener:
    """Serves each connection in a thread; ``opened``: so many were there, ``serving``: are."""

    def __init__(self, listener: socket.socket, serve: Serve) -> None:
        self.serve, self.opened, self.serving = serve, 0, 0
        self.tried = threading.Event()
        self._listener = listener
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections."""
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self.opened += 1
                self.tried.set()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self.serving += 1
        with connection, suppress(OSError, EOFError):
            self.serve(FakeConnection(connection))
            connection.shutdown(socket.SHUT_RDWR)
        self.serving -= 1


@contextmanager
def listening(
    server: FakeServer, serve: Serve | None = None, *, port: bool = False
) -> Iterator[FakeListener]:
    """At a path, or at a port, which the server then names."""
    with tempfile.TemporaryDirectory() as folder, _bound(folder, port=port) as at:
        listener = FakeListener(at, serve or calls(server))
        where: Any = at.getsockname()
        server.told = pb.GetServerInfoResponse()
        server.told.server.instance = INSTANCE
        if port:
            server.told.frames_port = where[1]
        else:
            server.told.frames_socket = where
        try:
            yield listener
        finally:
            listener.close()


def _bound(folder: str, *, port: bool) -> socket.socket:
    if port:
        return socket.create_server(("127.0.0.1", 0))
    at = socket.socket(socket.AF_UNIX)
    at.bind(str(Path(folder, "f")))
    at.listen()
    return at

"""A fake side socket of a server, and a fake server whose calls name its memory.

In the generated classes and nothing of npucall's own. Unless a test says otherwise it grants what
is asked for, and answers a call with its first input times two, in its place where it has one.
"""

import fcntl
import itertools
import mmap
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from npucall.errors import SharedMemoryError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import shared_memory_pb2, tensor_pb2
from npucall.wire.status import to_status

from . import fake_server

Behaviour = Callable[[socket.socket, bytes], None]

ID = b"0123456789abcdef"


class FakeSideSocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """What listens at ``path``."""

    socket_type = socket.SOCK_SEQPACKET
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), socketserver.BaseRequestHandler)
        self.path = str(path)
        self.behaviours: list[Behaviour] = []
        """One for each of the next connections, in order; the others grant."""
        self.ended = threading.Semaphore(0)
        """Released when a caller closes its connection."""
        self.memories: dict[bytes, mmap.mmap] = {}
        self.authorizations: list[str] = []
        """Of those to whom memory was granted."""
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, connection: Any, _: Any) -> None:
        behaviour = self.behaviours.pop(0) if self.behaviours else self.grant
        behaviour(connection, connection.recv(65536))
        if not connection.recv(1):
            self.ended.release()

    def grant(self, connection: socket.socket, request: bytes) -> None:
        wanted = shared_memory_pb2.SharedMemoryRequest.FromString(request)
        self.authorizations.append(wanted.authorization)
        region_id = ID if ID not in self.memories else os.urandom(16)
        file = memory_file(wanted.bytes)
        self.memories[region_id] = mmap.mmap(file, wanted.bytes)
        send(connection, granted(region_id), file)


def memory_file(size: int, *, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    file = os.memfd_create("memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def granted(region_id: bytes = ID) -> bytes:
    return shared_memory_pb2.SharedMemoryResponse(id=region_id).SerializeToString()


def send(connection: socket.socket, data: bytes, *files: int) -> None:
    socket.send_fds(connection, [data], list(files))
    for file in files:
        os.close(file)


def hangs_up(connection: socket.socket, _: bytes) -> None:
    """Closes the connection where an answer is expected."""
    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def side_socket(path: Path) -> Iterator[FakeSideSocket]:
    with FakeSideSocket(path) as fake:
        yield fake
        fake.shutdown()


class SharingServer(fake_server.FakeServer):
    """A server whose calls may name memory of a side socket."""

    def __init__(self, memory: FakeSideSocket) -> None:
        super().__init__()
        self.memory = memory
        self.socket = memory.path
        self.instances: list[str] = []
        """Which server it says it is, the next times that it is asked."""
        self.requests: list[pb.ExecuteRequest] = []
        self.forgets = False
        """Whether it knows none of the memory, as after a restart."""
        self.answers: list[pb.ExecuteResponse] = []
        """Of the next calls, instead of what they ask for."""
        self.behaviours = [self._calls] * 9
        self.answer = self._in_one_message

    def info(self, _: bytes, __: grpc.ServicerContext) -> bytes:
        info = pb.GetServerInfoResponse(limits=self.limits, shared_memory_socket=self.socket)
        info.server.instance = self.instances.pop(0) if self.instances else "last"
        return info.SerializeToString()

    def computed(self, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        self.requests.append(request)
        if self.answers:
            return self.answers.pop(0)
        data = [bytes(self._bytes(storage)) for storage in request.storage]
        response = fake_server.reply_of((np.frombuffer(data[0], np.float32) * 2).tobytes())
        for place in request.output_places:
            self._region(place.region)[:] = response.storage[0].data
            response.storage[0].region.CopyFrom(place.region)
        return response

    def _in_one_message(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return self.computed(pb.ExecuteRequest.FromString(request)).SerializeToString()
        except SharedMemoryError as error:
            return fake_server.fail(error)(request, context)

    def _calls(self, frames: Any, _: grpc.ServicerContext) -> Any:
        """A stream whose calls do not travel in chunks."""
        for frame in frames:
            if frame.HasField("begin") and frame.begin.chunked:
                yield from fake_server.echo(itertools.chain([frame], frames), _)
            elif frame.HasField("begin"):
                try:
                    answer = {"reply": self.computed(frame.begin.request)}
                except SharedMemoryError as error:
                    answer = {"error": to_status(error).SerializeToString()}
                yield fake_server.answer(frame.call_id, **answer)

    def _bytes(self, storage: tensor_pb2.Storage) -> memoryview:
        place = storage.WhichOneof("place")
        return memoryview(storage.data) if place == "data" else self._region(storage.region)

    def _region(self, region: tensor_pb2.Region) -> memoryview:
        if self.forgets or region.id not in self.memory.memories:
            raise SharedMemoryError("memory: unknown")
        memory = memoryview(self.memory.memories[region.id])
        return memory[region.offset : region.offset + region.length]

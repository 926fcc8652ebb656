"""A process that shares memory with a server, knowing the generated classes and sockets alone."""

import mmap
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import shared_memory_pb2, tensor_pb2

_PATIENCE = 20.0


class Refused(Exception):  # noqa: N818  # not a fault of the test
    """The server gave no memory; the text is the reason."""


class Side(socket.socket):
    """A connection to the side socket."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.settimeout(_PATIENCE)
        self.connect(str(path))

    def ask(self, size: int, authorization: str = "") -> None:
        request = shared_memory_pb2.SharedMemoryRequest(bytes=size, authorization=authorization)
        self.send(request.SerializeToString())

    def answer(self) -> tuple[bytes, int]:
        """The id, and the descriptor; raises Refused."""
        packet, descriptors, _, _ = socket.recv_fds(self, 4096, 8)
        answer = shared_memory_pb2.SharedMemoryResponse.FromString(packet)
        if answer.WhichOneof("outcome") == "error":
            assert descriptors == []
            raise Refused(reason_in(answer.error))
        (descriptor,) = descriptors
        return answer.id, descriptor

    def is_closed(self) -> bool:
        """Whether the server closes the connection, without another word."""
        try:
            return self.recv(1) == b""
        except ConnectionError:
            return True


class Memory(Side):
    """Shared memory, mapped here."""

    def __init__(self, path: Path | str, size: int, authorization: str = "") -> None:
        super().__init__(path)
        self.ask(size, authorization)
        try:
            self.id, descriptor = self.answer()
        except BaseException:
            super().close()
            raise
        self.bytes = mmap.mmap(descriptor, size)
        os.close(descriptor)

    def close(self) -> None:
        super().close()
        with suppress(BufferError):  # arrays in it keep it
            self.bytes.close()

    def put(self, offset: int, data: bytes) -> tensor_pb2.Storage:
        """Writes a storage and says where it is."""
        self.bytes[offset : offset + len(data)] = data
        return tensor_pb2.Storage(region=self.region(offset, len(data)))

    def region(self, offset: int, length: int) -> tensor_pb2.Region:
        return tensor_pb2.Region(id=self.id, offset=offset, length=length)

    def place(self, output: str, offset: int, length: int) -> pb.OutputPlace:
        return pb.OutputPlace(output=output, region=self.region(offset, length))


def reason_in(status: bytes) -> str:
    """What google.rpc's own classes read in a status."""
    info: Any = ErrorInfo()
    assert Status.FromString(status).details[0].Unpack(info)
    return str(info.reason)

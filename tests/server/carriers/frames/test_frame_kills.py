"""A server that is killed in every state of a frame: peers know it, and another one starts."""

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.v1.shared_memory_pb2 import SharedMemoryRequest
from npucall_client.testing import running_server

from .peer import EXECUTE, MEMORY, STREAM, WELCOME, FramePeer, packed, request

MIB = 2**20


def kl_div(elements: int) -> bytes:
    """A call that takes long, with one number in place of each of its arrays."""
    spec = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[elements], strides=[0])
    names = ("grad_output", "self", "target")
    arguments = [pb.Argument(name=name, stored=True, tensor=spec) for name in names]
    storage = [tensor_pb2.Storage(data=bytes(4))] * 3
    call = pb.Call(operator="aclnnKlDivBackward", arguments=arguments)
    return pb.ExecuteRequest(call=call, storage=storage).SerializeToString()


WELCOMED = {
    "idle": b"",
    "a part of a header": packed(EXECUTE, request(), 1)[:9],
    "a part of a message": packed(EXECUTE, request(MIB), 1)[: 5 * MIB],
    "a call that runs": packed(EXECUTE, kl_div(100 * MIB), 1),
    "calls that wait": b"".join(packed(EXECUTE, kl_div(50 * MIB), call) for call in range(1, 5)),
    "a large answer that nobody reads": packed(EXECUTE, request(MIB), 1),
    "a stream": packed(STREAM, pb.ExecuteStreamRequest().SerializeToString()),
    "memory": packed(MEMORY, SharedMemoryRequest(bytes=4096).SerializeToString(), 1),
}


def ends(peer: FramePeer) -> bool:
    """Whether the connection ends; whole frames may have come before."""
    try:
        while True:
            peer.receive()
    except (EOFError, ConnectionError):
        return True


@pytest.mark.more
def test_every_connection_ends_and_the_next_server_takes_the_path(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    flags = ("--frames-socket", path, "--memory-limit", "4GiB")
    with ExitStack() as open_:
        with running_server(*flags) as server:
            strangers = [open_.enter_context(FramePeer(path)) for _ in range(2)]
            strangers[1].hello()
            peers = []
            for sent in WELCOMED.values():
                peer = open_.enter_context(FramePeer(path))
                assert peer.enter().kind == WELCOME
                peer.socket.sendall(sent)
                peers.append(peer)
            _, (descriptor,), _, _ = socket.recv_fds(peers[-1].socket, 16, 1)
            os.kill(server.process.pid, signal.SIGKILL)
            assert all(map(ends, [*strangers, *peers[:-1]]))
            assert os.pread(descriptor, 4, 0) == bytes(4)  # the memory stays the client's
            os.close(descriptor)
            server.process.wait()
        with running_server(*flags), FramePeer(path) as peer:
            assert peer.enter().kind == WELCOME
            peer.execute()
            assert peer.receive().response

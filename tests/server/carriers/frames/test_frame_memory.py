"""Memory that a connection of frames shares."""

import mmap
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.server.fakes import until
from tests.server.tenant_server import TenantServer

from npucall.errors import BY_REASON
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import shared_memory_pb2 as shared_memory
from npucall.v1 import tensor_pb2

from .peer import (
    ERROR,
    EXECUTE,
    HEADER,
    MEMORY,
    Frame,
    FramePeer,
    QuickDevice,
    connected,
    framed,
    request,
)

SIZE = 4096


def asked(peer: FramePeer, size: int = SIZE, call: int = 1) -> tuple[Frame, list[int]]:
    """The answer to a request for memory, and the descriptors that came with it."""
    message = shared_memory.SharedMemoryRequest(bytes=size).SerializeToString()
    peer.send(MEMORY, message, call)
    data, descriptors, _, _ = socket.recv_fds(peer.socket, HEADER.size, 4)
    length, number, kind, *_ = HEADER.unpack(data)
    return Frame(kind, number, peer._read(length)), descriptors


def id_in(frame: Frame) -> bytes:
    assert frame.kind == MEMORY, frame.reason
    return shared_memory.SharedMemoryResponse.FromString(frame.message).id


def placed(name: bytes) -> bytes:
    """A call whose inputs and output are in memory."""
    call = pb.ExecuteRequest.FromString(request())
    del call.storage[:]
    for index in range(3):
        region = tensor_pb2.Region(id=name, offset=8 * index, length=8)
        call.storage.append(tensor_pb2.Storage(region=region))
    region = tensor_pb2.Region(id=name, offset=64, length=8)
    call.output_places.append(pb.OutputPlace(output="grad_input", region=region))
    return call.SerializeToString()


def test_a_call_names_memory_that_both_see_until_the_connection_ends(tmp_path: Path) -> None:
    class Device(QuickDevice):
        def run(self, steps: Any, turn: Any, pieces: Any = None) -> Any:
            ((target,),) = (each.targets.values() for each in steps)
            target[:] = bytes(next(iter(steps[0].storages.values())))
            return super().run(steps, turn, pieces)

    with framed(tmp_path, Device()) as served:
        with connected(served) as peer, connected(served) as other:
            frame, (descriptor,) = asked(peer, call=7)
            assert frame.call == 7
            with mmap.mmap(descriptor, SIZE) as memory:
                os.close(descriptor)
                memory[:8] = b"12345678"
                for each in (peer, other):  # whoever knows its id, where there are no tenants
                    memory[64:72] = bytes(8)
                    each.send(EXECUTE, placed(id_in(frame)), 1)
                    (storage,) = each.receive().response.storage
                    assert storage.region.offset == 64
                    assert memory[64:72] == b"12345678"
            assert len(served.core.executions.placed) == 1  # the second one is not checked anew
            peer.socket.close()
            until(lambda: not served.regions.bytes_taken, "it is given back")
            other.send(EXECUTE, placed(id_in(frame)), 1)
            assert other.reason() == "SHARED_MEMORY"
        assert not served.executor.memory.used


REFUSED = {0: "MESSAGE_MALFORMED", 1 << 60: "TOO_LARGE"}


@pytest.mark.parametrize("size", REFUSED)
def test_a_refusal_names_its_call_and_the_connection_goes_on(tmp_path: Path, size: int) -> None:
    with framed(tmp_path, QuickDevice()) as served, connected(served) as peer:
        frame, descriptors = asked(peer, size, 3)
        assert (frame.kind, frame.call, frame.reason) == (ERROR, 3, REFUSED[size])
        assert frame.reason in BY_REASON
        assert not descriptors
        peer.execute()
        assert peer.receive().response


def test_one_process_has_at_most_half(tmp_path: Path) -> None:
    with (
        framed(tmp_path, QuickDevice(), shared_memory_limit=4 * SIZE) as served,
        connected(served) as peer,
        connected(served) as other,
    ):
        for each in (peer, other):
            frame, (descriptor,) = asked(each)
            os.close(descriptor)
            assert id_in(frame)
        frame, _ = asked(peer)
        assert frame.reason == "QUEUE_FULL"


def test_memory_of_a_tenant_is_its_callers_and_goes_when_he_is_revoked(
    server: TenantServer,
) -> None:
    token = server.token("gina")
    with FramePeer(str(server.settings.frames_socket)) as peer:
        peer.enter(f"Bearer {token}")
        with FramePeer(str(server.settings.frames_socket)) as other:
            other.enter(f"Bearer {server.token('hugo')}")
            frame, (descriptor,) = asked(peer)
            os.close(descriptor)
            peer.send(EXECUTE, placed(id_in(frame)), 1)
            assert peer.receive().response
            other.send(EXECUTE, placed(id_in(frame)), 1)
            assert other.reason() == "SHARED_MEMORY"
        server.revoke(token)
        until(lambda: not server.regions.bytes_taken, "it is given back")
        frame, _ = asked(peer)
        assert frame.reason == "CREDENTIAL_INVALID"

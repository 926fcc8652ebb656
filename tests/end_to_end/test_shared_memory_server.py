"""Shared memory of a real server: calls of every kind, and clients that break off or die."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.shared import Memory, Refused, Side, reason_in

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client.testing import ServerProcess

MIB = 2**20
INPUTS = ("grad_output", "self", "target")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AF_UNIX takes 107 bytes."""
    return tmp_path_factory.mktemp("s") / "side.sock"


@pytest.fixture(scope="module")
def server(side: Path) -> Iterator[ServerProcess]:
    flags = (f"--shared-memory={side}", "--shared-memory-limit=128MiB", wire.ENDLESS_LIMIT)
    with running_server(*flags) as server:
        yield server


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    """At its end the server has no shared memory any more."""
    with wire.bare_channel(server.target, ("grpc.max_receive_message_length", -1)) as channel:
        yield channel
    wire.until(lambda: mapped(server) == 0, "no memory is mapped")


def mapped(server: ServerProcess) -> int:
    """How many regions a server has mapped."""
    return Path(f"/proc/{server.process.pid}/maps").read_text().count("memfd:npucall")


def descriptors(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def l1(elements: int, *, stored: bool = True) -> pb.Call:
    """``sign(self - target) * grad_output``, three inputs of float32 and an output."""
    arguments = [wire.tensor(name, elements, stored=stored) for name in INPUTS]
    arguments.append(pb.Argument(name="reduction", integer=2))
    return pb.Call(operator="aclnnL1LossBackward", arguments=arguments)


class L1:
    """Its tensors in shared memory, one behind the other."""

    def __init__(self, memory: Memory, elements: int) -> None:
        self.elements, self.size = elements, 4 * elements
        random = np.random.default_rng(0)
        inputs = random.normal(size=(3, elements)).astype(np.float32)
        self.expected = (np.sign(inputs[1] - inputs[2]) * inputs[0]).tobytes()
        self.storage = [
            memory.put(self.size * number, each.tobytes()) for number, each in enumerate(inputs)
        ]
        self.place = memory.place("grad_input", 3 * self.size, self.size)
        self._memory = memory

    def request(self, *places: pb.OutputPlace) -> pb.ExecuteRequest:
        return pb.ExecuteRequest(call=l1(self.elements), storage=self.storage, output_places=places)

    def written(self) -> bytes:
        return self._memory.bytes[3 * self.size : 4 * self.size]


LONG = "--max-message-bytes=8MiB"


def sent_bytes(size: int) -> tensor_pb2.Storage:
    return tensor_pb2.Storage(data=bytes(size))


def execute(channel: grpc.Channel, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
    answer = wire.ask(channel, "Execute", request.SerializeToString())
    return pb.ExecuteResponse.FromString(answer)


def refusal(channel: grpc.Channel, request: pb.ExecuteRequest) -> str:
    return wire.refusal(channel, "Execute", request.SerializeToString())


def streamed(
    channel: grpc.Channel, *chunks: pb.Chunk, **begin: Any
) -> list[pb.ExecuteStreamResponse]:
    """All frames of the answer to one call on a stream of its own."""
    frames = [pb.ExecuteStreamRequest(call_id=7, begin=pb.Begin(**begin))]
    frames += (pb.ExecuteStreamRequest(call_id=7, chunk=chunk) for chunk in chunks)
    if chunks:
        frames.append(pb.ExecuteStreamRequest(call_id=7, end=pb.End()))
    method = channel.stream_stream(f"/{wire.SERVICE}/ExecuteStream")
    answers = method(map(pb.ExecuteStreamRequest.SerializeToString, frames), timeout=wire.PATIENCE)
    return [pb.ExecuteStreamResponse.FromString(answer) for answer in answers]


def test_the_server_tells_the_path_of_its_socket(
    channel: grpc.Channel, server: ServerProcess, side: Path
) -> None:
    assert wire.server_info(channel).shared_memory_socket == str(side)
    assert stat.S_IMODE(side.stat().st_mode) == 0o600


def test_without_the_setting_there_is_no_socket_and_no_memory() -> None:
    with running_server() as server, wire.bare_channel(server.target) as channel:
        assert wire.server_info(channel).shared_memory_socket == ""
        storage = tensor_pb2.Storage(region=tensor_pb2.Region(id=b"x" * 16, length=8))
        request = pb.ExecuteRequest(call=l1(2), storage=[storage] * 3)
        assert refusal(channel, request) == "SHARED_MEMORY"


@pytest.mark.parametrize("elements", [0, 1, 1000, MIB])
def test_inputs_are_read_where_they_lie(channel: grpc.Channel, side: Path, elements: int) -> None:
    with Memory(side, 32 * MIB) as memory:
        call = L1(memory, elements)
        (storage,) = execute(channel, call.request()).storage
        assert storage.data == call.expected


@pytest.mark.parametrize("elements", [0, 1, 1000, MIB])
def test_an_output_is_written_in_place(channel: grpc.Channel, side: Path, elements: int) -> None:
    with Memory(side, 32 * MIB) as memory:
        call = L1(memory, elements)
        (storage,) = execute(channel, call.request(call.place)).storage
        assert storage.region == call.place.region
        assert call.written() == call.expected


def test_an_output_is_written_in_place_where_its_inputs_travel(
    channel: grpc.Channel, side: Path
) -> None:
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
        request = call.request(call.place)
        for storage in request.storage:
            region = storage.region
            storage.data = memory.bytes[region.offset : region.offset + region.length]
        execute(channel, request)
        assert call.written() == call.expected


def test_a_call_of_a_stream_works_in_place_too(channel: grpc.Channel, side: Path) -> None:
    with Memory(side, 32 * MIB) as memory:
        call = L1(memory, MIB)
        (frame,) = streamed(channel, request=call.request(call.place))
        assert [storage.region for storage in frame.reply.storage] == [call.place.region]
        assert call.written() == call.expected


def test_a_large_output_of_a_stream_that_has_no_place_comes_in_chunks(
    channel: grpc.Channel, side: Path
) -> None:
    with Memory(side, 32 * MIB) as memory:
        call = L1(memory, MIB)
        first, *chunks, end = streamed(channel, request=call.request())
        assert list(first.reply.storage) == []
        assert b"".join(frame.chunk.data for frame in chunks) == call.expected
        assert end.WhichOneof("frame") == "end"


def prelu(memory: Memory, elements: int) -> tuple[pb.ExecuteRequest, int]:
    """An operator of two outputs of as many elements and of one; and where its inputs end."""
    size = 4 * elements
    arguments = [wire.tensor("grad_output", elements, 1), wire.tensor("self", elements, 1)]
    arguments.append(wire.tensor("weight", 1))
    call = pb.Call(operator="aclnnPreluBackward", arguments=arguments)
    storage = [memory.put(0, b"\0\0\x80\x3f" * elements), memory.put(size, bytes(size))]
    storage.append(memory.put(2 * size, b"\0\0\0\x40"))
    return pb.ExecuteRequest(call=call, storage=storage), 2 * size + 64


def test_of_two_outputs_the_one_without_a_place_comes_in_chunks(
    channel: grpc.Channel, side: Path
) -> None:
    elements = MIB // 2
    with Memory(side, 32 * MIB) as memory:
        request, end = prelu(memory, elements)
        large, small = execute(channel, request).reply.outputs
        request.output_places.append(memory.place(small.name, end, 4))
        first, *chunks, _ = streamed(channel, request=request)
        assert list(first.reply.storage) == []
        assert {frame.chunk.storage for frame in chunks} == {0}
        assert sum(len(frame.chunk.data) for frame in chunks) == 4 * elements
        del request.output_places[:]
        request.output_places.append(memory.place(large.name, end, 4 * elements))
        (frame,) = streamed(channel, request=request)
        assert [storage.WhichOneof("place") for storage in frame.reply.storage] == [
            "region",
            "data",
        ]


def test_memory_that_is_not_known_is_refused(channel: grpc.Channel, side: Path) -> None:
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
    wire.until(
        lambda: refusal(channel, call.request()) == "SHARED_MEMORY", "the memory is forgotten"
    )
    (frame,) = streamed(channel, request=call.request())
    assert reason_in(frame.error) == "SHARED_MEMORY"


def test_a_call_that_does_not_fit_is_refused_on_both_ways(
    channel: grpc.Channel, side: Path
) -> None:
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
        places = {
            "TENSOR_LAYOUT": memory.place("grad_input", 4, 400),  # where inputs are
            "MESSAGE_MALFORMED": memory.place("out", 2000, 400),
        }
        for told, place in places.items():
            request = call.request(place)
            assert refusal(channel, request) == told
            (frame,) = streamed(channel, request=request)
            assert reason_in(frame.error) == told


def test_an_output_with_two_places_is_refused(channel: grpc.Channel, side: Path) -> None:
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
        assert refusal(channel, call.request(call.place, call.place)) == "MESSAGE_MALFORMED"


def test_a_plan_has_no_places(channel: grpc.Channel, side: Path) -> None:
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
        for request in call.request(), pb.ExecuteRequest(call=l1(100), output_places=[call.place]):
            told = wire.refusal(channel, "Plan", request.SerializeToString())
            assert told == "MESSAGE_MALFORMED"


def test_a_call_in_chunks_may_have_places(channel: grpc.Channel, side: Path) -> None:
    """Two of its storages come in chunks; the third, and the output, are in shared memory."""
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
        data = [memory.bytes[call.size * number :][: call.size] for number in (0, 1)]
        empty = tensor_pb2.Storage()
        request = pb.ExecuteRequest(
            call=l1(100), storage=[empty, empty, call.storage[2]], output_places=[call.place]
        )
        chunks = [pb.Chunk(storage=number, data=bytes(data[number])) for number in (0, 1)]
        (frame,) = streamed(channel, *chunks, request=request, chunked=True)
        assert frame.reply.storage[0].region == call.place.region
        assert call.written() == call.expected


def test_bytes_in_shared_memory_count_towards_the_memory_limit(tmp_path: Path) -> None:
    """Once: a call takes no more of it for what it has in the memory."""
    side = tmp_path / "side.sock"
    flags = (f"--shared-memory={side}", "--memory-limit=8MiB", "--shared-memory-limit=16MiB", LONG)
    with (
        running_server(*flags) as server,
        wire.bare_channel(server.target) as channel,
        Memory(side, 3 * MIB) as memory,
    ):
        placed = L1(memory, MIB // 8)
        assert refusal(channel, placed.request(placed.place)) == "OK"
        sent = pb.ExecuteRequest(call=l1(3 * MIB // 8), storage=[sent_bytes(3 * MIB // 2)] * 3)
        assert refusal(channel, sent) == "QUEUE_FULL"
    with running_server(*flags) as server, wire.bare_channel(server.target) as channel:
        assert refusal(channel, sent) == "OK"


def long_call(memory: Memory) -> pb.ExecuteRequest:
    """A call that takes about 20 minutes, with an input in shared memory."""
    request = pb.ExecuteRequest.FromString(wire.long_call(*wire.ENDLESS))
    request.storage[0].CopyFrom(memory.put(0, request.storage[0].data))
    return request


def test_memory_stays_until_the_call_that_uses_it_ends(
    channel: grpc.Channel, server: ServerProcess, side: Path
) -> None:
    with Memory(side, 64 * MIB) as memory:
        request = long_call(memory).SerializeToString()
        call = wire.method(channel, "Execute").future(request)
        wire.until(lambda: wire.calls_in_flight(channel) == 1, "the call runs")
    with pytest.raises(Refused, match="QUEUE_FULL"):
        Memory(side, MIB)  # it still counts
    assert mapped(server) == 1
    call.cancel()
    wire.until(lambda: mapped(server) == 0, "the memory goes with its call")
    with Memory(side, 64 * MIB) as memory:
        assert L1(memory, 10).expected


CLIENT = """
import sys, grpc
sys.path.insert(0, sys.argv[1])
from tests.end_to_end import wire
from tests.end_to_end.test_shared_memory_server import long_call
from tests.shared import Memory
memory = Memory(sys.argv[2], 4096)
with wire.bare_channel(sys.argv[3]) as channel:
    if sys.argv[4] == "running":
        call = wire.method(channel, "Execute").future(long_call(memory).SerializeToString())
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@pytest.mark.parametrize("doing", ["idle", "running"])
def test_a_killed_client_leaves_nothing(
    channel: grpc.Channel, server: ServerProcess, side: Path, doing: str
) -> None:
    command = [sys.executable, "-c", CLIENT, str(ROOT), str(side), server.target, doing]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        running = int(doing == "running")
        wire.until(lambda: wire.calls_in_flight(channel) == running, "its call runs")
        assert mapped(server) == 1
        client.send_signal(signal.SIGKILL)
    wire.until(lambda: wire.calls_in_flight(channel) == 0, "its call is cancelled")
    wire.until(lambda: mapped(server) == 0, "its memory is given back")
    with Memory(side, 64 * MIB) as memory:
        call = L1(memory, 10)
        assert execute(channel, call.request(call.place)).storage
        assert call.written() == call.expected


def connect_and_leave(channel: grpc.Channel, side: Path, number: int) -> None:
    """Each in another way: before asking, before the answer, with memory, after a call."""
    if number % 4 == 0:
        Side(side).close()
    elif number % 4 == 1:
        with Side(side) as client:
            client.ask(MIB)
    elif number % 4 == 2:
        with contextlib.suppress(Refused), Memory(side, MIB):  # until others are noticed to be gone
            pass
    else:
        with contextlib.suppress(Refused), Memory(side, MIB) as memory:
            call = L1(memory, 100)
            execute(channel, call.request(call.place))


@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.long)])
def test_connections_that_come_and_go_leave_no_descriptor_and_no_mapping(
    channel: grpc.Channel, server: ServerProcess, side: Path, count: int
) -> None:
    connect_and_leave(channel, side, 3)
    wire.until(lambda: mapped(server) == 0, "no memory is mapped")
    before = descriptors(server)
    for number in range(count):
        connect_and_leave(channel, side, number)
    wire.until(lambda: mapped(server) == 0, "no memory is mapped")
    wire.until(lambda: descriptors(server) <= before, "every connection is closed")


def test_a_server_that_stops_ends_regions_and_removes_the_file(tmp_path: Path) -> None:
    side = tmp_path / "side.sock"
    with running_server(f"--shared-memory={side}") as server, Memory(side, MIB) as memory:
        assert server.stop() == 0
        assert memory.is_closed()
        assert not side.exists()
        memory.bytes[:1] = b"x"  # what is mapped stays


def test_a_server_takes_the_path_of_one_that_was_killed(tmp_path: Path) -> None:
    side = tmp_path / "side.sock"
    with running_server(f"--shared-memory={side}") as server:
        server.process.kill()
        server.process.wait()
    assert side.exists()
    with running_server(f"--shared-memory={side}"), Memory(side, MIB) as memory:
        assert memory.bytes[:1] == b"\0"


@pytest.mark.parametrize("kind", ["a server", "a file"])
def test_a_path_that_is_taken_ends_the_server_with_71(
    tmp_path: Path, server: ServerProcess, side: Path, kind: str
) -> None:
    path = side if kind == "a server" else tmp_path / "precious"
    if kind == "a file":
        path.write_text("precious")
    command = [sys.executable, "-m", "npucall_server", "--listen", "127.0.0.1:0"]
    command += ["--shared-memory", str(path)]
    ended = subprocess.run(command, capture_output=True, timeout=wire.PATIENCE, check=False)
    assert ended.returncode == 71
    said = ended.stderr.decode()
    assert said.startswith(
        "npucall-server: shared_memory: expected a path where the server can make a socket, "
    )
    assert os.path.exists(path)  # noqa: PTH110  # of any kind

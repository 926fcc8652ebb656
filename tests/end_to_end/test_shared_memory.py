"""Shared memory of a server: calls of every kind, clients that break off or die, and a restart."""

import contextlib
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.more import only
from tests.npu import spotless_npu_server
from tests.shared import Memory, Refused, Side, reason_in

import npucall_client
from npucall.dtypes import AnyArray
from npucall.errors import SharedMemoryError, TooLargeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_client import Client
from npucall_client.testing import ServerProcess, running_server
from npucall_server.commands.serve import serve
from npucall_server.settings.server import read

from . import wire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory")

MIB = 2**20
INPUTS = ("grad_output", "self", "target")
ROOT = Path(__file__).parents[2]


def mapped(server: ServerProcess) -> int:
    """How many regions a server has mapped."""
    return Path(f"/proc/{server.process.pid}/maps").read_text().count("memfd:npucall")


def descriptors(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@pytest.fixture
def side(channel: grpc.Channel, endless_server: ServerProcess) -> Iterator[str]:
    """The path of its socket. At the end the server has no shared memory any more."""
    yield wire.server_info(channel).shared_memory_socket
    wire.until(lambda: mapped(endless_server) == 0, "no memory is mapped")


class L1:
    """``sign(self - target) * grad_output`` of float32, all in shared memory one by one."""

    def __init__(self, memory: Memory, elements: int) -> None:
        self.size = 4 * elements
        arguments = [wire.tensor(name, elements) for name in INPUTS]
        arguments.append(pb.Argument(name="reduction", integer=2))
        self.call = pb.Call(operator="aclnnL1LossBackward", arguments=arguments)
        inputs = np.random.default_rng(0).normal(size=(3, elements)).astype(np.float32)
        self.expected = (np.sign(inputs[1] - inputs[2]) * inputs[0]).tobytes()
        self.storage = [
            memory.put(self.size * number, each.tobytes()) for number, each in enumerate(inputs)
        ]
        self.place = memory.place("grad_input", 3 * self.size, self.size)
        self._memory = memory

    def request(self, *places: pb.OutputPlace) -> pb.ExecuteRequest:
        return pb.ExecuteRequest(call=self.call, storage=self.storage, output_places=places)

    def written(self) -> bytes:
        return self._memory.bytes[3 * self.size : 4 * self.size]


def execute(channel: grpc.Channel, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
    answer = wire.ask(channel, "Execute", request.SerializeToString())
    return pb.ExecuteResponse.FromString(answer)


def refusal(channel: grpc.Channel, request: pb.ExecuteRequest) -> str:
    return wire.refusal(channel, "Execute", request.SerializeToString())


def streamed(channel: Any, *chunks: pb.Chunk, **begin: Any) -> list[pb.ExecuteStreamResponse]:
    """All frames of the answer to one call on a stream of its own."""
    frames = [pb.ExecuteStreamRequest(call_id=7, begin=pb.Begin(**begin))]
    frames += (pb.ExecuteStreamRequest(call_id=7, chunk=chunk) for chunk in chunks)
    if chunks:
        frames.append(pb.ExecuteStreamRequest(call_id=7, end=pb.End()))
    method = channel.stream_stream(f"/{wire.SERVICE}/ExecuteStream")
    answers = method(map(pb.ExecuteStreamRequest.SerializeToString, frames), timeout=wire.PATIENCE)
    return [pb.ExecuteStreamResponse.FromString(answer) for answer in answers]


@pytest.mark.parametrize("elements", [0, 1, 1000, MIB])
def test_tensors_are_read_and_written_where_they_lie(
    channel: grpc.Channel, side: str, elements: int
) -> None:
    assert stat.S_IMODE(Path(side).stat().st_mode) == 0o600
    with Memory(side, 32 * MIB) as memory:
        call = L1(memory, elements)
        (storage,) = execute(channel, call.request()).storage
        assert storage.data == call.expected
        (storage,) = execute(channel, call.request(call.place)).storage
        assert storage.region == call.place.region
        assert call.written() == call.expected


def test_a_call_in_chunks_may_have_places(channel: grpc.Channel, side: str) -> None:
    """Two of its storages come in chunks; the third, and the output, are in shared memory."""
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
        request = call.request(call.place)
        chunks = []
        for number, storage in enumerate(request.storage[:2]):
            data = memory.bytes[call.size * number :][: call.size]
            chunks.append(pb.Chunk(storage=number, data=bytes(data)))
            storage.Clear()
        (frame,) = streamed(channel, *chunks, request=request, chunked=True)
        assert frame.reply.storage[0].region == call.place.region
        assert call.written() == call.expected


def test_a_call_that_does_not_fit_its_memory_is_refused_on_both_ways(
    channel: grpc.Channel, side: str
) -> None:
    with Memory(side, MIB) as gone:
        unknown = L1(gone, 100).request()
    wire.until(lambda: refusal(channel, unknown) == "SHARED_MEMORY", "the memory is forgotten")
    with Memory(side, MIB) as memory:
        call = L1(memory, 100)
        for told, request in (
            ("SHARED_MEMORY", unknown),
            ("TENSOR_LAYOUT", call.request(memory.place("grad_input", 4, 400))),  # where inputs are
            ("MESSAGE_MALFORMED", call.request(memory.place("out", 2000, 400))),
            ("MESSAGE_MALFORMED", call.request(call.place, call.place)),
        ):
            assert refusal(channel, request) == told
            (frame,) = streamed(channel, request=request)
            assert reason_in(frame.error) == told
        for request in (
            call.request(),
            pb.ExecuteRequest(call=call.call, output_places=[call.place]),
        ):
            told = wire.refusal(channel, "Plan", request.SerializeToString())
            assert told == "MESSAGE_MALFORMED"  # a plan has no places


def test_bytes_in_shared_memory_count_once_towards_the_memory_limit(tmp_path: Path) -> None:
    side = tmp_path / "side.sock"
    sizes: Any = {"memory_limit": 8 * MIB, "shared_memory_limit": 16 * MIB}
    with (
        wire.server_here(shared_memory=side, max_message_bytes=8 * MIB, **sizes) as server,
        wire.bare_channel(server.address) as channel,
    ):
        with Memory(side, 3 * MIB) as memory:
            placed = L1(memory, MIB // 8)
            assert refusal(channel, placed.request(placed.place)) == "OK"
            tensors = [wire.tensor(name, 3 * MIB // 8) for name in INPUTS]
            sent = wire.request_of("aclnnL1LossBackward", tensors, *[bytes(3 * MIB // 2)] * 3)
            assert wire.refusal(channel, "Execute", sent) == "QUEUE_FULL"
        wire.until(lambda: wire.refusal(channel, "Execute", sent) == "OK", "there is room again")


def long_call(memory: Memory) -> bytes:
    """A call that takes about 20 minutes, with an input in shared memory."""
    request = pb.ExecuteRequest.FromString(wire.long_call(*wire.ENDLESS))
    request.storage[0].CopyFrom(memory.put(0, request.storage[0].data))
    return request.SerializeToString()


DYING = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.end_to_end import wire
from tests.end_to_end.test_shared_memory import long_call
from tests.shared import Memory
memory = Memory(sys.argv[2], 4096)
with wire.bare_channel(sys.argv[3]) as channel:
    if sys.argv[4] == "running":
        call = wire.method(channel, "Execute").future(long_call(memory))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("doing", only("running", "idle"))
def test_a_killed_client_leaves_nothing(
    channel: grpc.Channel, endless_server: ServerProcess, side: str, doing: str
) -> None:
    command = [sys.executable, "-c", DYING, str(ROOT), side, endless_server.target, doing]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        running = int(doing == "running")
        wire.until(lambda: wire.calls_in_flight(channel) == running, "its call runs")
        assert mapped(endless_server) == 1
        client.send_signal(signal.SIGKILL)
    wire.until(lambda: wire.calls_in_flight(channel) == 0, "its call is cancelled")
    wire.until(lambda: mapped(endless_server) == 0, "its memory is given back")
    Memory(side, 64 * MIB).close()


def connect_and_leave(channel: grpc.Channel, side: str, number: int) -> None:
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


@pytest.mark.parametrize("count", only(100, 300, 1000))
def test_connections_that_come_and_go_leave_no_descriptor_and_no_mapping(
    channel: grpc.Channel, endless_server: ServerProcess, side: str, count: int
) -> None:
    connect_and_leave(channel, side, 3)
    wire.until(lambda: mapped(endless_server) == 0, "no memory is mapped")
    before = descriptors(endless_server)
    for number in range(count):
        connect_and_leave(channel, side, number)
    wire.until(lambda: mapped(endless_server) == 0, "no memory is mapped")
    wire.until(lambda: descriptors(endless_server) <= before, "every connection is closed")


def test_a_path_that_is_taken_ends_the_server_with_71(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], side: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for path in side, precious:
        assert serve(read([f"--shared-memory={path}", "--listen=127.0.0.1:0"])) == 71
        assert (
            "shared_memory: expected a path where the server can make a socket, "
            in capsys.readouterr().err
        )
        assert Path(path).exists()


ONE = np.ones((), np.float32)
NUMBERS = np.arange(-MIB, MIB, dtype=np.float32)
SIGNS = np.sign(NUMBERS)


def signs(client: Client, array: AnyArray, out: AnyArray) -> AnyArray:
    writing = client.options(outputs={"grad_input": out})
    return writing.run(l1_loss_backward, ONE, array, 0 * ONE, reduction=2)


@pytest.mark.more
@pytest.mark.usefixtures("sender_in_sweeps")
def test_a_server_that_was_killed_gets_the_bytes_once_it_is_back(tmp_path: Path) -> None:
    flags = f"--shared-memory={tmp_path}/socket", "--shared-memory-limit=128MiB"
    with running_server(*flags) as first:
        client = npucall_client.connect(first.target)
        memory, other = client.shared(32 * MIB), client.shared(32 * MIB)
        array, out = memory.array(NUMBERS), memory.zeros(NUMBERS.shape, np.float32)
        there, pipeline = other.array(NUMBERS), client.pipeline()
        call = (l1_loss_backward, ONE, there, 0 * ONE, 2)
        assert pipeline.submit(*call).result(wire.PATIENCE).shape == there.shape
        first.process.kill()
        first.process.wait()
    with running_server(*flags, listen=first.target), client, pipeline:
        with pytest.warns(RuntimeWarning, match="shared memory"):
            assert np.array_equal(signs(client, array, out), SIGNS)
        assert np.array_equal(signs(client, array, np.zeros_like(out)), SIGNS)
        assert not memory.shared
        with pytest.warns(RuntimeWarning, match="shared memory"):
            assert np.array_equal(pipeline.submit(*call).result(wire.PATIENCE), SIGNS)


@pytest.mark.usefixtures("sender_in_sweeps")
def test_a_server_that_was_stopped_shares_new_memory_once_it_is_back(tmp_path: Path) -> None:
    sharing: Any = {"shared_memory": tmp_path / "socket", "shared_memory_limit": 128 * MIB}
    with wire.server_here(**sharing) as server:
        client = npucall_client.connect(server.address)
        gone = client.shared(MIB)
    with wire.server_here(server.address, **sharing), client, client.shared(32 * MIB) as memory:
        array, out = memory.array(NUMBERS), memory.zeros(NUMBERS.shape, np.float32)
        assert signs(client, array, out) is out
        assert np.array_equal(out, SIGNS)
        gone.close()
        assert memory.shared
        with pytest.raises(TooLargeError, match="shared_memory_limit"):
            client.shared(65 * MIB)


def test_a_server_without_the_setting_says_so() -> None:
    with wire.server_here() as server, wire.bare_channel(server.address) as channel:
        assert wire.server_info(channel).shared_memory_socket == ""
        region = tensor_pb2.Region(id=b"x" * 16, length=8)
        tensors = [wire.tensor(name, 2) for name in INPUTS]
        request = pb.ExecuteRequest.FromString(wire.request_of("aclnnL1LossBackward", tensors))
        request.storage.extend([tensor_pb2.Storage(region=region)] * 3)
        assert refusal(channel, request) == "SHARED_MEMORY"
        with (
            npucall_client.connect(server.address) as client,
            pytest.raises(SharedMemoryError, match="--shared-memory PATH"),
        ):
            client.shared(MIB)


@pytest.mark.parametrize("limit", only("1MiB", "64MiB", "0"))
def test_an_npu_reads_and_writes_where_tensors_lie_however_they_are_copied(
    limit: str, tmp_path: Path
) -> None:
    side = tmp_path / "side.sock"
    flags = f"--shared-memory={side}", f"--staging-limit={limit}"
    with spotless_npu_server(tmp_path, *flags) as server:
        with wire.bare_channel(server.target) as channel, Memory(side, 4 * MIB) as memory:
            for elements in 0, 1, 1000, 2**16:
                call = L1(memory, elements)
                (storage,) = execute(channel, call.request(call.place)).storage
                assert storage.region == call.place.region
                assert call.written() == call.expected
            gaps_stay_as_they_were(channel, memory)
        wire.until(lambda: mapped(server) == 0, "no memory is mapped")


def gaps_stay_as_they_were(channel: grpc.Channel, memory: Memory) -> None:
    call = L1(memory, 4)
    request = call.request(call.place)
    output = wire.tensor("grad_input", 4, strides=[2], storage_shape=[8])
    request.call.arguments.append(output)
    request.storage.append(memory.put(4096, b"\xa5" * 32))
    request.output_places[0].region.CopyFrom(memory.region(4096, 32))
    execute(channel, request)
    found = np.frombuffer(memory.bytes[4096 : 4096 + 32], np.uint8).reshape(4, 2, 4)
    assert found[:, 0].tobytes() == call.expected
    assert found[:, 1].tobytes() == b"\xa5" * 16

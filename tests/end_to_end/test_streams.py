"""Calls on streams, end to end: large ones in chunks, many small ones, on whatever happens."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from tests.more import every_third

import npucall_client
from npucall.errors import CancelledError, NpucallError, ShapeError, TooLargeError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import operator_service_pb2_grpc, tensor_pb2
from npucall_client.testing import running_server

from . import wire
from .cutting_proxy import Cut, cutting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.dtypes import AnyArray
    from npucall_client import Client
    from npucall_client.testing import ServerProcess

MIB = 2**20
GIB = 2**30
ONE = np.ones((), np.float32)
CHUNKS = 40
LARGE = np.arange(CHUNKS * MIB // 4, dtype=np.float32)
MIDDLE = np.float32(LARGE.size // 2)
EXPECTED = np.sign(LARGE - MIDDLE)
NEVER = 2**62
"""More bytes than any call has: nothing travels in chunks."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def observer(server: ServerProcess) -> Iterator[grpc.Channel]:
    with wire.bare_channel(server.target) as channel:
        yield channel


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with npucall_client.connect(server.target) as client:
        yield client


def large_call(client: Client) -> AnyArray:
    return client.run(l1_loss_backward, ONE, LARGE, MIDDLE, reduction=2)


def is_idle(observer: grpc.Channel) -> bool:
    info = wire.server_info(observer)
    return (info.calls_in_flight, info.bytes_in_flight) == (0, 0)


def threads_of(process_id: int) -> int:
    return len(list(Path(f"/proc/{process_id}/task").iterdir()))


def streams_in(server: ServerProcess) -> int:
    return server.log.read_text().count('"method": "ExecuteStream"')


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_results_are_the_same_bit_by_bit_on_every_path(server: ServerProcess, dtype: Any) -> None:
    numbers = np.random.default_rng(1)
    arrays = [numbers.standard_normal((1500, 2000)).astype(dtype) for _ in range(3)]
    results = {}
    targets = {"local": "local:", "unary": server.target, "chunks": server.target}
    for name, target in targets.items():
        stream_from = 0 if name == "chunks" else NEVER
        with npucall_client.connect(target, stream_from=stream_from) as client:
            results[name] = client.run(kl_div_backward, *arrays, reduction=0).tobytes()
    with npucall_client.connect(server.target) as client, client.pipeline() as pipeline:
        call = pipeline.submit(kl_div_backward, *arrays, reduction=0)
        results["pipeline"] = call.result(wire.PATIENCE).tobytes()
    assert len(set(results.values())) == 1


def test_a_large_call_travels_in_chunks_unasked(server: ServerProcess, client: Client) -> None:
    before = streams_in(server)
    assert np.array_equal(large_call(client), EXPECTED)
    wire.until(lambda: streams_in(server) == before + 1, "it is logged")


def test_an_array_with_strides_travels_in_chunks(client: Client) -> None:
    array = np.ones((2000, 3000), np.float32)
    array[0, 0] = -1
    out = client.run(l1_loss_backward, ONE, array.T, np.float32(0), reduction=2)
    assert (out[0, 0], out.sum()) == (-1.0, array.size - 2)


def test_an_output_of_the_callers_own_is_written(client: Client) -> None:
    out = np.empty_like(LARGE)
    given = client.options(outputs={"grad_input": out})
    assert given.run(l1_loss_backward, ONE, LARGE, MIDDLE, reduction=2) is out
    assert np.array_equal(out, EXPECTED)


def test_an_error_of_a_large_call_is_that_of_its_rules(client: Client) -> None:
    with pytest.raises(ShapeError) as caught:
        client.options(request_id="mine").run(l1_loss_backward, ONE, LARGE, LARGE[:-1])
    assert caught.value.details["request_id"] == "mine"


def test_a_large_call_that_the_server_has_no_room_for_is_refused_early() -> None:
    """Request and reply together are over its limit, which the client cannot know."""
    with (
        running_server("--memory-limit=64MiB") as server,
        npucall_client.connect(server.target) as client,
        pytest.raises(TooLargeError, match="memory_limit"),
    ):
        large_call(client)


@pytest.mark.more
@pytest.mark.more
def test_memory_stays_near_that_of_the_tensors() -> None:
    """Of the server; 64 MiB beside 2 x 256 MiB are caches, threads and the last chunks."""
    large = np.ones(256 * MIB // 4, np.float32)
    with running_server() as server, npucall_client.connect(server.target) as client:
        client.run(l1_loss_backward, ONE, LARGE, MIDDLE, reduction=2)
        before = wire.resident_bytes(server.process.pid)
        client.run(l1_loss_backward, ONE, large, ONE, reduction=2)
        assert wire.peak_bytes(server.process.pid) - before < 512 * MIB + 64 * MIB


CUTS = [
    *(Cut(to_server=chunk * MIB) for chunk in range(0, CHUNKS, 10)),
    *(Cut(to_client=chunk * MIB + 1000) for chunk in range(0, CHUNKS, 10)),
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_call_whose_connection_is_cut_is_answered_all_the_same(
    server: ServerProcess, observer: grpc.Channel, cut: Cut
) -> None:
    with cutting(server.target) as proxy, npucall_client.connect(proxy.target) as client:
        proxy.cuts = [cut]
        assert np.array_equal(large_call(client), EXPECTED)
        assert proxy.cut_count == 1
    wire.until(lambda: is_idle(observer), "the server is idle")


@pytest.mark.parametrize("cut", every_third(CUTS), ids=str)
def test_a_call_whose_connection_is_always_cut_is_a_typed_error(
    server: ServerProcess, observer: grpc.Channel, cut: Cut
) -> None:
    with cutting(server.target) as proxy, npucall_client.connect(proxy.target) as client:
        proxy.cut_always = cut
        with pytest.raises(NpucallError) as caught:
            large_call(client.options(timeout=1.0))
        assert caught.value.code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
    wire.until(lambda: is_idle(observer), "the server is idle")


@pytest.mark.long
def test_cut_connections_leave_no_thread_behind(
    server: ServerProcess, observer: grpc.Channel
) -> None:
    """The first round makes the threads of the server's pools."""

    def cut_all() -> int:
        for cut in [CUTS[1], CUTS[5]] * 4:
            with cutting(server.target) as proxy, npucall_client.connect(proxy.target) as client:
                proxy.cuts = [cut]
                large_call(client)
        wire.until(lambda: is_idle(observer), "the server is idle")
        return threads_of(server.process.pid)

    before = cut_all()
    client_threads = threading.active_count()
    wire.until(lambda: threads_of(server.process.pid) <= before, "its threads have ended")
    assert cut_all() <= before + 2  # a pool may still grow by one
    wire.until(
        lambda: threading.active_count() <= client_threads, "the client's threads have ended"
    )


@pytest.mark.more
def test_a_large_call_survives_a_server_that_is_killed_while_it_arrives() -> None:
    """A stopped process takes what fits into the buffers of its socket, no more."""
    with ThreadPoolExecutor(1) as pool:
        with running_server() as server:
            client = npucall_client.connect(server.target)
            server.process.send_signal(signal.SIGSTOP)
            answer = pool.submit(large_call, client)
            with pytest.raises(TimeoutError):
                answer.result(0.3)
            server.process.kill()
            server.process.wait()
        with running_server(listen=server.target), client:
            assert np.array_equal(answer.result(wire.PATIENCE), EXPECTED)


@pytest.mark.more
def test_a_pipeline_survives_a_server_that_is_killed() -> None:
    column, row = np.ones((4096, 1), np.float32), np.zeros((1, 65536), np.float32)
    with running_server() as server:
        client = npucall_client.connect(server.target)
        pipeline = client.pipeline()
        slow = [pipeline.submit(kl_div_backward, ONE, column, row, reduction=2) for _ in range(4)]
        with wire.bare_channel(server.target) as observer:
            wire.until(lambda: wire.calls_in_flight(observer) > 0, "they run")
        server.process.kill()
        server.process.wait()
        late = pipeline.submit(l1_loss_backward, ONE, ONE * 2, ONE)
    with running_server(listen=server.target), client, pipeline:
        assert late.result(wire.PATIENCE) == 1.0
        assert {call.result(wire.PATIENCE).shape for call in slow} == {(4096, 1)}


def test_a_server_that_drains_finishes_a_pipeline_and_stops() -> None:
    with running_server() as server, npucall_client.connect(server.target) as client:
        pipeline = client.pipeline()
        assert pipeline.submit(l1_loss_backward, ONE, ONE * 2, ONE).result(wire.PATIENCE) == 1.0
        assert server.stop() == 0
        with ThreadPoolExecutor(1) as pool:
            late = pipeline.submit(l1_loss_backward, ONE, ONE * 2, ONE)
            with running_server(listen=server.target):
                assert late.result(wire.PATIENCE) == 1.0
                pool.submit(pipeline.close).result(wire.PATIENCE)


def test_pipelines_side_by_side_with_random_cancels_get_their_own_answers(
    server: ServerProcess, observer: grpc.Channel, client: Client
) -> None:
    def work(seed: int) -> int:
        chance = random.Random(seed)
        right = 0
        with client.pipeline() as pipeline:
            calls = []
            for _ in range(100):
                size = chance.choice([1, 10, 1000, MIB])
                array = np.full(size, chance.choice([-1, 1]), np.float32)
                call = pipeline.submit(l1_loss_backward, ONE, array, np.float32(0), reduction=2)
                if chance.random() < 0.2:
                    call.cancel()
                calls.append((array, call))
        for array, call in calls:
            error = call.exception()
            assert error is None or isinstance(error, CancelledError), error
            right += error is None and np.array_equal(call.result(), array)
        return right

    with ThreadPoolExecutor(2) as pool:
        right = list(pool.map(work, range(4)))
    assert all(count > 40 for count in right)
    wire.until(lambda: is_idle(observer), "the server is idle")


def test_a_client_of_the_generated_classes_alone_speaks_the_protocol(
    server: ServerProcess,
) -> None:
    """A call of 5 MiB in chunks of 1 MiB and 1 byte, its answer in chunks."""
    data = np.arange(5 * MIB // 4, dtype=np.float32)
    one = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT)
    many = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[data.size])
    arguments = [
        pb.Argument(name="grad_output", stored=True, tensor=one),
        pb.Argument(name="self", stored=True, tensor=many),
        pb.Argument(name="target", stored=True, tensor=one),
        pb.Argument(name="reduction", integer=2),
    ]
    request = pb.ExecuteRequest(call=pb.Call(operator="aclnnL1LossBackward", arguments=arguments))

    def frames() -> Iterator[pb.ExecuteStreamRequest]:
        yield pb.ExecuteStreamRequest(call_id=9, begin=pb.Begin(request=request, chunked=True))
        for index, storage in enumerate([ONE.tobytes(), data.tobytes(), ONE.tobytes()]):
            for start in range(0, len(storage), MIB + 1):
                part = storage[start : start + MIB + 1]
                chunk = pb.Chunk(storage=index, offset=start, data=part)
                yield pb.ExecuteStreamRequest(call_id=9, chunk=chunk)
        yield pb.ExecuteStreamRequest(call_id=9, end=pb.End())

    with grpc.insecure_channel(server.target) as channel:
        stub = operator_service_pb2_grpc.OperatorServiceStub(channel)
        answers = list(stub.ExecuteStream(frames(), timeout=wire.PATIENCE))
    assert {answer.call_id for answer in answers} == {9}
    assert [answer.WhichOneof("frame") for answer in answers] == ["reply"] + ["chunk"] * 3 + ["end"]
    assert answers[0].reply.reply.outputs[0].tensor == many
    received = b"".join(answer.chunk.data for answer in answers[1:-1])
    assert received == np.sign(data - 1).tobytes()


@pytest.mark.long
def test_a_thousand_clients_that_die_at_any_point_leave_the_server_as_it_was(
    server: ServerProcess, observer: grpc.Channel
) -> None:
    """To a server a client that dies is a connection that ends."""
    chance = random.Random(7)
    array = LARGE[: 8 * MIB // 4]

    def one_client(_: int) -> None:
        with cutting(server.target) as proxy, npucall_client.connect(proxy.target) as client:
            ways = [Cut(chance.randrange(8 * MIB)), Cut(None, chance.randrange(1, 8 * MIB))]
            proxy.cut_always = chance.choice(ways)
            with pytest.raises(NpucallError):
                client.options(timeout=0.2).run(l1_loss_backward, ONE, array, ONE, reduction=2)

    def clients(count: int) -> tuple[int, int]:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one_client, range(count)))
        wire.until(lambda: is_idle(observer), "the server is idle")
        pid = server.process.pid
        return threads_of(pid), wire.resident_bytes(pid)

    threads, memory = clients(100)
    threads_after, memory_after = clients(1000)
    assert threads_after <= threads + 8
    assert memory_after - memory < 128 * MIB


@pytest.mark.long
def test_processes_that_are_killed_leave_the_server_as_it_was(
    server: ServerProcess, observer: grpc.Channel
) -> None:
    program = (
        "import sys, numpy as np, npucall_client\n"
        "ones = np.ones(2**24, np.float32)\n"
        "with npucall_client.connect(sys.argv[1]) as client:\n"
        "    print('ready', flush=True)\n"
        "    while True:\n"
        "        client.run('aclnnL1LossBackward', ones[:1], self=ones, target=ones[:1], "
        "reduction=2)\n"
    )
    chance, never = random.Random(7), threading.Event()
    for _ in range(20):
        command = [sys.executable, "-c", program, server.target]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            never.wait(chance.random())  # dies at any point
            process.kill()
        wire.until(lambda: is_idle(observer), "the server is idle")


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_three_gibibytes_in_one_tensor_go_there_and_back_in_little_more_memory() -> None:
    array = np.zeros(3 * GIB // 4, np.float32)
    array[::1000] = 2.0
    with (
        running_server("--memory-limit=8GiB") as server,
        npucall_client.connect(server.target, timeout=300) as client,
    ):
        large_call(client)
        mine, its = wire.peak_bytes(os.getpid()), wire.resident_bytes(server.process.pid)
        out = client.run(l1_loss_backward, ONE, array, ONE, reduction=2)
        assert wire.peak_bytes(server.process.pid) - its < 6 * GIB + 128 * MIB
        assert wire.peak_bytes(os.getpid()) - mine < 3 * GIB + 128 * MIB
    assert out.nbytes == 3 * GIB
    for start in range(0, array.size, 2**26):
        part = slice(start, start + 2**26)
        assert np.array_equal(out[part], np.sign(array[part] - 1))

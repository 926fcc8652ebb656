"""Calls on streams, end to end: large ones in chunks, many small ones, on whatever happens."""

import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from tests.more import every_third

import npucall_client
from npucall.dtypes import AnyArray
from npucall.errors import CancelledError, NpucallError, ShapeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client
from npucall_client.sending.frames import frame_carrier
from npucall_client.sending.frames.frame_places import FramesPlace
from npucall_client.testing import ServerProcess, running_server

from . import wire
from .proxies import Cut, cutting

MIB = 2**20
ONE = np.ones((), np.float32)
CHUNKS = 12
LARGE = np.arange(CHUNKS * MIB // 4, dtype=np.float32)
MIDDLE = np.float32(LARGE.size // 2)
EXPECTED = np.sign(LARGE - MIDDLE)
PAUSE = 0.3
"""Seconds of a timeout that ends, since the answer cannot come."""
CUTS = [
    *(Cut(to_server=chunk * MIB) for chunk in range(0, CHUNKS, 3)),
    *(Cut(to_client=chunk * MIB + 1000) for chunk in range(0, CHUNKS, 3)),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--frames-listen=127.0.0.1:0") as server:
        yield server


@pytest.fixture
def observer(server: ServerProcess) -> Iterator[grpc.Channel]:
    """At the end the server has nothing of the test any more."""
    with wire.bare_channel(server.target) as channel:
        yield channel
        wire.until(lambda: is_idle(channel), "the server is idle")


def is_idle(observer: grpc.Channel) -> bool:
    info = wire.server_info(observer)
    return (info.calls_in_flight, info.bytes_in_flight) == (0, 0)


def large_call(client: Client) -> AnyArray:
    return client.run(l1_loss_backward, ONE, LARGE, MIDDLE, reduction=2)


def test_a_large_call_travels_in_chunks_unasked(server: ServerProcess) -> None:
    def is_logged() -> bool:
        lines = server.log.read_text().splitlines()
        return any('"ExecuteStream"' in line and '"unasked"' in line for line in lines)

    with npucall_client.connect(server.target, carrier="grpc") as client:
        asked = client.options(request_id="unasked")
        assert np.array_equal(large_call(asked), EXPECTED)
        wire.until(is_logged, "it is logged")
        with pytest.raises(ShapeError) as caught:
            client.options(request_id="mine").run(l1_loss_backward, ONE, LARGE, LARGE[:-1])
    assert caught.value.details["request_id"] == "mine"


@pytest.mark.parametrize("carrier", ["grpc", "frames"])
def test_a_call_whose_connection_is_cut_anywhere_is_answered_all_the_same(
    server: ServerProcess, observer: grpc.Channel, monkeypatch: pytest.MonkeyPatch, carrier: str
) -> None:
    host, target = "127.0.0.1", server.target
    if carrier == "frames":
        target = f"{host}:{wire.server_info(observer).frames_port}"
    for cut in CUTS:
        with cutting(target) as proxy:
            port = int(proxy.target.rpartition(":")[2])
            places = (FramesPlace(host=host, port=port),) if carrier == "frames" else ()
            monkeypatch.setattr(frame_carrier, "places_of", lambda *_, places=places: places)
            client = npucall_client.connect(server.target if places else proxy.target)
            proxy.cuts = [cut]
            if cut.to_server != 0:
                assert client.carrier() == carrier
            assert np.array_equal(large_call(client), EXPECTED), cut
            assert proxy.cut_count == 1, cut
            client.close()
        wire.until(lambda: is_idle(observer), f"the server is idle after {cut}")


@pytest.mark.parametrize("cut", every_third(CUTS), ids=str)
def test_a_call_whose_connection_is_always_cut_is_a_typed_error(
    server: ServerProcess, observer: grpc.Channel, cut: Cut
) -> None:
    with (
        cutting(server.target) as proxy,
        npucall_client.connect(proxy.target, carrier="grpc") as client,
    ):
        proxy.cut_always = cut
        with pytest.raises(NpucallError) as caught:
            large_call(client.options(timeout=PAUSE))
        assert caught.value.code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )


@pytest.mark.more
@pytest.mark.parametrize("stream_from", [2**20, 2**62], ids=["in chunks", "in one message"])
def test_a_large_call_survives_a_server_that_is_killed_while_it_arrives(stream_from: int) -> None:
    """A stopped process takes what fits into the buffers of its socket, no more."""
    with ThreadPoolExecutor(1) as pool:
        with running_server() as server:
            client = npucall_client.connect(server.target, stream_from=stream_from)
            server.process.send_signal(signal.SIGSTOP)
            answer = pool.submit(large_call, client)
            with pytest.raises(TimeoutError):
                answer.result(PAUSE)
            server.process.kill()
            server.process.wait()
        with running_server(listen=server.target), client:
            assert np.array_equal(answer.result(wire.PATIENCE), EXPECTED)


def calls_of_which_some_are_cancelled(client: Client, seed: int) -> int:
    """How many were answered, rightly; the others were cancelled."""
    chance, calls = random.Random(seed), []
    with client.pipeline() as pipeline:
        for _ in range(60):
            size = chance.choice([1, 10, 1000, MIB])
            array = np.full(size, chance.choice([-1, 1]), np.float32)
            call = pipeline.submit(l1_loss_backward, ONE, array, np.float32(0), reduction=2)
            if chance.random() < 0.2:
                call.cancel()
            calls.append((array, call))
    errors = [call.exception() for _, call in calls]
    assert {type(error) for error in errors} <= {type(None), CancelledError}
    return sum(call.exception() is None and np.array_equal(call.result(), a) for a, call in calls)


@pytest.mark.usefixtures("observer")
def test_pipelines_side_by_side_with_random_cancels_get_their_own_answers(
    server: ServerProcess,
) -> None:
    with npucall_client.connect(server.target) as client, ThreadPoolExecutor(2) as pool:
        right = pool.map(lambda seed: calls_of_which_some_are_cancelled(client, seed), range(4))
        assert all(count > 25 for count in right)

"""SIGTERM: what runs is finished, what is new is refused, and the process says how it went."""

import ctypes
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.more import only

import npucall_client
from npucall.errors import DrainingError, OperatorUnknownError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client import Client
from npucall_client.sending import attempts
from npucall_client.testing import running_server

from . import wire
from .contract import ANSWER, KL, PAIR, Caller, begin, chunk, end, kl, numbers, request

ONE = np.ones(1, np.float32)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="threads are found in /proc")
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


class ChunkedCall:
    """A call that a server has, and that cannot run before its last chunk is sent."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._frames: SimpleQueue[Any] = SimpleQueue()
        self._frames.put(begin(1, request(KL, kl(2)), chunked=True))
        self._frames.put(begin(2))
        stub = Caller(channel).stub
        self._answers = stub.ExecuteStream(iter(self._frames.get, None), timeout=wire.PATIENCE)
        assert next(self._answers).call_id == 2  # so the server has the one before

    def finish(self) -> tuple[float, ...]:
        """Its answer. Then the stream ends, as it has no call any more."""
        for frame in (chunk(1, 0, 0, PAIR), chunk(1, 1, 0, PAIR), end(1), None):
            self._frames.put(frame)
        return numbers(next(self._answers).reply.storage[0].data)


def test_a_server_that_drains_finishes_what_it_has_and_sends_what_is_new_to_the_next_one() -> None:
    with ThreadPoolExecutor() as pool:
        with running_server() as server, wire.bare_channel(server.target) as channel:
            client = npucall_client.connect(server.target)
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == SERVING
            running = ChunkedCall(channel)
            server.process.terminate()
            assert next(watch).status == NOT_SERVING
            assert wire.refusal(channel, "Execute", wire.long_call(1)) == "DRAINING"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(attempts, "PAUSES", (1e6,))  # there is no time for another attempt
                with pytest.raises(DrainingError) as caught:
                    client.run(kl_div_backward, ONE, ONE, ONE)
            assert caught.value.retry_after == 1.0
            later = client.options(request_id="later")
            answer = pool.submit(later.run, kl_div_backward, ONE, ONE, ONE, reduction=2)
            wire.until(lambda: '"request_id": "later"' in server.log.read_text(), "it is refused")
            assert running.finish() == ANSWER
            watch.cancel()
            assert server.process.wait(wire.PATIENCE) == 0
        with running_server(listen=server.target), client:
            assert answer.result(wire.PATIENCE).tolist() == [-1.0]


@pytest.mark.more
def test_a_call_that_outlasts_the_drain_time_is_cut_and_the_process_ends_with_75() -> None:
    with (
        running_server(*wire.ENDLESS_LIMIT, "--drain-timeout=0.2") as server,
        wire.bare_channel(server.target) as channel,
        wire.endless_call(channel) as running,
    ):
        assert server.stop() == 75
        error = running.exception(wire.PATIENCE)
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert '"finished": false' in server.log.read_text()


@LINUX
@pytest.mark.parametrize("number", only(signal.SIGTERM, signal.SIGINT))
def test_a_stop_signal_drains_whichever_thread_the_kernel_gives_it_to(number: int) -> None:
    with running_server() as server:
        with npucall_client.connect(server.target) as client:
            client.run(kl_div_backward, ONE, ONE, ONE)  # so that gRPC has threads
        process = server.process
        threads = {int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()}
        others = threads - {process.pid}  # the main thread
        assert others
        ctypes.CDLL(None).tgkill(process.pid, max(others), int(number))
        assert process.wait(wire.PATIENCE) == 0


CALLS = 6000
"""A pipe holds some 150 lines, and some 4,400 may wait; then it was over."""


@pytest.mark.more
def test_a_log_that_nobody_reads_stops_neither_calls_nor_the_end_of_the_server(
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0"]
    process = subprocess.Popen([*command, f"--ready-file={ready}"], stderr=subprocess.PIPE)
    try:
        wire.until(ready.exists, "the server answers")
        with npucall_client.connect(ready.read_text()) as client, ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(call_often, client) for _ in range(8)]:
                done.result(120)
        process.terminate()
        assert process.wait(wire.PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def call_often(client: Client) -> None:
    """Every fourth fails."""
    for number in range(CALLS // 8):
        if number % 4:
            assert client.run(kl_div_backward, ONE, ONE, ONE, reduction=2).tolist() == [-1.0]
        else:
            with pytest.raises(OperatorUnknownError):
                client.operator("x" * 100)

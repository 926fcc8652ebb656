"""SIGTERM: what runs is finished, what is new is refused, and the process says how it went."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import npucall_client
from npucall.errors import DrainingError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.testing import running_server

from . import wire

SECONDS_LONG = (32, 1024, 65536)
"""2**31 elements: two seconds or so."""

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


def health(channel: grpc.Channel) -> int:
    request = health_pb2.HealthCheckRequest()
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=wire.PATIENCE).status


@pytest.mark.more
def test_a_running_call_is_finished_and_new_ones_are_refused() -> None:
    with (
        running_server(wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target) as channel,
    ):
        running = wire.method(channel, "Execute").future(wire.long_call(*SECONDS_LONG))
        wire.until(lambda: wire.calls_in_flight(channel) == 1, "the call runs")
        server.process.terminate()
        wire.until(lambda: health(channel) == NOT_SERVING, "health says so")
        assert wire.refusal(channel, "Execute", wire.long_call(1)) == "DRAINING"
        assert not running.done()
        answer = pb.ExecuteResponse.FromString(running.result(wire.PATIENCE))
        assert np.frombuffer(answer.storage[0].data, np.float32) == -(2.0**31)
        assert server.process.wait(wire.PATIENCE) == 0


@pytest.mark.more
def test_whoever_watches_health_is_told() -> None:
    with (
        running_server() as server,
        wire.bare_channel(server.target) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == SERVING
        server.process.terminate()
        assert next(watch).status == NOT_SERVING
        assert server.process.wait(wire.PATIENCE) == 0


def test_a_call_that_outlasts_the_drain_time_is_cut_and_the_process_ends_with_75() -> None:
    with (
        running_server(wire.ENDLESS_LIMIT, "--drain-timeout=0.2") as server,
        wire.bare_channel(server.target) as channel,
    ):
        running = wire.method(channel, "Execute").future(wire.long_call(*wire.ENDLESS))
        wire.until(lambda: wire.calls_in_flight(channel) == 1, "the call runs")
        assert server.stop() == 75
        error = running.exception(wire.PATIENCE)
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert '"finished": false' in server.log.read_text()


@pytest.mark.more
def test_calls_that_wait_are_finished_too() -> None:
    calls = wire.LANES + 3
    with (
        running_server(wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target) as channel,
    ):
        request = wire.long_call(16, 256, 65536)  # 2**28: a quarter of a second each
        running = [wire.method(channel, "Execute").future(request) for _ in range(calls)]
        wire.until(lambda: wire.calls_in_flight(channel) == calls, "all are in")
        assert server.stop() == 0
        assert all(call.result(wire.PATIENCE) for call in running)


def test_the_client_raises_the_servers_own_error_when_it_may_not_wait() -> None:
    """DRAINING is repeated, as long as the timeout has room for the next pause."""
    one = np.ones(1, np.float32)
    with (
        running_server(wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target) as channel,
        npucall_client.connect(server.target) as client,
    ):
        running = wire.method(channel, "Execute").future(wire.long_call(*wire.ENDLESS))
        wire.until(lambda: wire.calls_in_flight(channel) == 1, "the call runs")
        server.process.terminate()
        wire.until(lambda: health(channel) == NOT_SERVING, "health says so")
        with pytest.raises(DrainingError) as caught:
            client.options(timeout=3.0).run(kl_div_backward, one, one, one)
        assert caught.value.retry_after == 1.0
        running.cancel()
        assert server.process.wait(wire.PATIENCE) == 0


def test_a_call_that_a_draining_server_refused_is_answered_by_the_next_one() -> None:
    one = np.ones(1, np.float32)
    with ThreadPoolExecutor() as pool:
        with (
            running_server(wire.ENDLESS_LIMIT) as server,
            wire.bare_channel(server.target) as channel,
        ):
            client = npucall_client.connect(server.target)
            running = wire.method(channel, "Execute").future(wire.long_call(*wire.ENDLESS))
            wire.until(lambda: wire.calls_in_flight(channel) == 1, "the call runs")
            server.process.terminate()
            wire.until(lambda: health(channel) == NOT_SERVING, "health says so")
            answer = pool.submit(client.run, kl_div_backward, one, one, one, reduction=2)
            wire.until(lambda: '"reason": "DRAINING"' in server.log.read_text(), "it is refused")
            running.cancel()
            assert server.process.wait(wire.PATIENCE) == 0
        with running_server(listen=server.target), client:
            assert answer.result(wire.PATIENCE).tolist() == [-1.0]


@pytest.mark.long
def test_no_call_is_lost_while_servers_follow_each_other() -> None:
    """gRPC answers CANCELLED to calls that it has not dispatched: 17 were lost in 8 drains."""
    drains, callers = 8, 24
    ones, ended = np.ones(256, np.float32), threading.Event()

    def call(client: npucall_client.Client, caller: int) -> int:
        done = 0
        while not ended.is_set():
            if caller % 2:
                answer = client.run(kl_div_backward, ones, ones, ones, reduction=2)
            else:
                with client.pipeline() as pipeline:
                    answer = pipeline.submit(
                        kl_div_backward, ones, ones, ones, reduction=2
                    ).result()
            assert np.unique(answer).tolist() == [-1.0]
            done += 1
        return done

    with ExitStack() as stack, ThreadPoolExecutor(callers) as pool:
        server = stack.enter_context(running_server())
        clients = [npucall_client.connect(server.target) for _ in range(callers)]
        running = [pool.submit(call, *each) for each in zip(clients, range(callers), strict=True)]
        for _ in range(drains):
            with wire.bare_channel(server.target) as channel:
                wire.until(lambda: wire.calls_in_flight(channel) > 0, "calls run")
            assert server.stop() == 0
            server = stack.enter_context(running_server(listen=server.target))
        ended.set()
        assert all(each.result(wire.PATIENCE) > 0 for each in running)
        for client in clients:
            client.close()

"""A server with more to do than it can: who is refused, who is taken out, who is still answered."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import npucall_client
from npucall.errors import DeadlineError, QueueFullError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.texts import retry_in
from npucall_client import Client
from npucall_client.testing import running_server

from . import wire

QUEUE_LENGTH = 2
PLACES = QUEUE_LENGTH + wire.LANES
ONES = np.ones(2, np.float32)
CALL = (kl_div_backward, ONES, ONES, ONES, 2)
ENDLESS = (kl_div_backward, ONES[:1], ONES[:1], np.broadcast_to(ONES[:1], wire.ENDLESS))


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with running_server(*wire.ENDLESS_LIMIT, f"--queue-length={QUEUE_LENGTH}") as server:
        yield server.target


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with npucall_client.connect(target) as client:
        yield client


@contextmanager
def endless_calls(target: str, count: int, timeout: float | None = None) -> Iterator[list[Any]]:
    """As many callers, each with a connection of its own and a call that does not end.

    At its end they have left the server: a call that is only cancelled keeps its place a while, and
    whoever comes next would be refused.
    """
    request = wire.long_call(*wire.ENDLESS)
    with ExitStack() as stack:
        channels = [stack.enter_context(wire.bare_channel(target)) for _ in range(count)]
        calls = [
            wire.method(channel, "Execute").future(request, timeout=timeout) for channel in channels
        ]
        stack.callback(lambda: [call.cancel() for call in calls])
        yield calls
    with wire.bare_channel(target) as channel:
        wire.until(lambda: wire.calls_in_flight(channel) == 0, "all have left")


def in_flight(client: Client, count: int) -> None:
    wire.until(lambda: client.server_info().calls_in_flight == count, f"{count} calls in flight")


def test_where_every_place_is_taken_calls_are_refused_and_all_else_is_answered(
    target: str, client: Client
) -> None:
    with endless_calls(target, PLACES) as calls, wire.bare_channel(target) as channel:
        in_flight(client, PLACES)
        with pytest.raises(QueueFullError) as caught:
            client.options(wait=False).run(*CALL)
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest()
        assert health.Check(asked, timeout=wire.PATIENCE).status == 1  # SERVING
        assert client.server_info().limits.queue_length == QUEUE_LENGTH
        assert client.operators()
        assert client.plan(*CALL[:-1]).workspace_bytes == 0
        assert all(call.cancel() for call in calls)
        in_flight(client, 0)
        assert client.server_info().bytes_in_flight == 0
    assert caught.value.details.items() >= {"setting": "queue_length", "limit": "2"}.items()
    assert caught.value.retry_after is not None
    assert caught.value.retry_after > 0
    assert retry_in(caught.value.retry_after) in str(caught.value)


def test_more_calls_than_places_are_all_answered_where_their_callers_wait(client: Client) -> None:
    with ThreadPoolExecutor(24) as threads, client.pipeline() as pipeline:
        calls = [threads.submit(client.run, *CALL) for _ in range(96)]
        submitted = [pipeline.submit(*CALL) for _ in range(96)]
        for call in (*calls, *submitted):
            assert call.result().tolist() == [-1, -1]


def test_calls_past_their_deadline_leave_waiting_and_running(target: str, client: Client) -> None:
    with endless_calls(target, PLACES, timeout=0.3) as calls:
        codes = [call.exception(timeout=wire.PATIENCE).code() for call in calls]
        in_flight(client, 0)
    assert codes == [grpc.StatusCode.DEADLINE_EXCEEDED] * PLACES
    with pytest.raises(DeadlineError, match=r"within 0\.2 s|the deadline of the call ended"):
        client.options(timeout=0.2).run(*ENDLESS)
    in_flight(client, 0)
    assert client.server_info().bytes_in_flight == 0

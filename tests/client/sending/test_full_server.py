"""Calls to a server that is full: they are sent again when it may have room."""

from typing import Any

import grpc
import numpy as np
import pytest
from tests.client import fake_server as fake
from tests.rows import each

import npucall_client
from npucall.errors import CancelledError, NpucallError, QueueFullError, QuotaError

pytestmark = pytest.mark.usefixtures("sender", "carrier")

SOON, NEVER = 0.01, 1000.0
PAIR = fake.numbers(8)


def full(times: int, kind: type[NpucallError] = QueueFullError) -> list[Any]:
    """What a server answers that is full so often."""
    return [*[fake.fail(kind("the queue is full", retry_after=SOON))] * times, fake.echo_once]


@each("kind", [QueueFullError, QuotaError])
@each(("pooled", "times"), [("", 3), ("pool:", 1)])  # a pool's pauses are longer
def test_a_full_server_is_waited_for(
    server: fake.FakeServer, kind: type[NpucallError], pooled: str, times: int
) -> None:
    server.limits.stream_window = 0
    with fake.serving(server) as target, npucall_client.connect(pooled + target) as client:
        server.answer = fake.in_turn(*full(times, kind))
        np.testing.assert_array_equal(fake.run(client, PAIR), PAIR)
        server.answer = fake.in_turn(*full(times, kind))
        with client.pipeline() as pipeline:
            np.testing.assert_array_equal(fake.submit(pipeline, PAIR).result(fake.PATIENCE), PAIR)


@each("kind", [QueueFullError, QuotaError])
@each("pooled", ["", "pool:"])
@each("how", ["connect", "options", "environment"])
def test_who_does_not_want_to_wait_is_refused_at_once(
    server: fake.FakeServer, how: str, pooled: str, kind: type[NpucallError]
) -> None:
    server.answer = fake.in_turn(*full(2, kind))
    before = server.unary
    settings = {"wait": False} if how == "connect" else {}
    with pytest.MonkeyPatch.context() as environment, fake.serving(server) as target:
        if how == "environment":
            environment.setenv("NPUCALL_WAIT", "false")
        with npucall_client.connect(pooled + target, **settings) as client:  # type: ignore[arg-type]
            asked = client.options(wait=False) if how == "options" else client
            with pytest.raises(kind, match="the queue is full") as caught:
                fake.run(asked, PAIR)
            assert caught.value.retry_after == SOON
            assert server.unary == before + 1
            fake.run(asked.options(wait=True), PAIR)
            assert server.unary == before + 3


@each(("settings", "delay"), [({}, NEVER), ({"wait": False}, SOON)])
def test_a_delay_that_ends_after_the_timeout_or_that_nobody_waits_for_is_told_now(
    settings: Any, delay: float
) -> None:
    server = fake.FakeServer()
    server.answer = fake.fail(QueueFullError("the queue is full", retry_after=delay))
    server.behaviours = [full_at_first(1, delay)]
    with fake.connected(server, **settings) as client:
        with pytest.raises(QueueFullError):
            fake.run(client, PAIR)
        with client.pipeline() as pipeline:
            found = fake.submit(pipeline, PAIR).exception(fake.PATIENCE)
    assert isinstance(found, QueueFullError)
    assert found.retry_after == delay


def full_at_first(times: int, retry_after: float = SOON) -> fake.Behaviour:
    """Refuses so many calls, and answers the others."""
    return fake.refusing(*[QueueFullError("the queue is full", retry_after=retry_after)] * times)


def test_refused_calls_are_sent_again_on_the_same_stream_and_leaving_waits_for_them(
    server: fake.FakeServer,
) -> None:
    server.behaviours = [full_at_first(20)]
    with fake.piped(server) as pipeline:
        calls = [fake.submit(pipeline, fake.numbers(4 * size)) for size in range(1, 13)]
    for size, call in enumerate(calls, 1):
        np.testing.assert_array_equal(call.result(0), fake.numbers(4 * size))
    assert (len(server.begins), server.streams) == (32, 1)


def test_a_large_call_is_sent_again_from_its_first_byte(server: fake.FakeServer) -> None:
    large = fake.numbers(8 * fake.MIB)
    server.behaviours = [full_at_first(1), full_at_first(1), full_at_first(2)]
    with fake.connected(server) as client:
        np.testing.assert_array_equal(fake.run(client, large), large)
        server.behaviours = [*[fake.echo] * server.streams, full_at_first(2)]
        with client.pipeline() as pipeline:
            calls = [fake.submit(pipeline, large), fake.submit(pipeline, PAIR)]
            np.testing.assert_array_equal(calls[0].result(fake.PATIENCE), large)
            np.testing.assert_array_equal(calls[1].result(fake.PATIENCE), PAIR)


def test_who_waits_can_be_cancelled(server: fake.FakeServer) -> None:
    server.behaviours = [full_at_first(1, NEVER)]
    with fake.piped(server, timeout=2 * NEVER) as pipeline:
        call = fake.submit(pipeline, PAIR)
        fake.until(lambda: len(server.begins) == 1, "it was sent")
        call.cancel()
        with pytest.raises(CancelledError):
            call.result(fake.PATIENCE)
        np.testing.assert_array_equal(fake.submit(pipeline, PAIR).result(fake.PATIENCE), PAIR)


@pytest.mark.usefixtures("no_pauses")
def test_a_stream_that_breaks_meanwhile_leaves_it_to_the_next_one(server: fake.FakeServer) -> None:
    refused = full_at_first(1, NEVER)

    def breaks(frames: fake.Frames, context: grpc.ServicerContext) -> fake.Answers:
        yield next(refused(frames, context))

    server.behaviours = [breaks]
    with fake.piped(server, timeout=2 * NEVER) as pipeline:
        np.testing.assert_array_equal(fake.submit(pipeline, PAIR).result(fake.PATIENCE), PAIR)
    assert server.streams == 2

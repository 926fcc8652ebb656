"""Calls to a server that is full: they are sent again when it may have room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rows import each

import npucall_client
from npucall.errors import CancelledError, NpucallError, QueueFullError, QuotaError

from .fake_server import (
    MIB,
    PATIENCE,
    FakeServer,
    connected,
    echo,
    echo_once,
    fail,
    in_turn,
    numbers,
    piped,
    refusing,
    run,
    serving,
    submit,
    until,
)

if TYPE_CHECKING:
    import grpc

    from .fake_server import Answers, Behaviour, Frames


pytestmark = pytest.mark.usefixtures("sender")

SOON, NEVER = 0.01, 1000.0
PAIR = numbers(8)


def full(times: int, kind: type[NpucallError] = QueueFullError) -> list[Any]:
    """What a server answers that is full so often."""
    return [*[fail(kind("the queue is full", retry_after=SOON))] * times, echo_once]


@each("kind", [QueueFullError, QuotaError])
@each(("pooled", "times"), [("", 3), ("pool:", 1)])  # a pool's pauses are longer
def test_a_full_server_is_waited_for(
    server: FakeServer, kind: type[NpucallError], pooled: str, times: int
) -> None:
    server.limits.stream_window = 0
    with serving(server) as target, npucall_client.connect(pooled + target) as client:
        server.answer = in_turn(*full(times, kind))
        np.testing.assert_array_equal(run(client, PAIR), PAIR)
        server.answer = in_turn(*full(times, kind))
        with client.pipeline() as pipeline:
            np.testing.assert_array_equal(submit(pipeline, PAIR).result(PATIENCE), PAIR)


@each("kind", [QueueFullError, QuotaError])
@each("pooled", ["", "pool:"])
@each("how", ["connect", "options", "environment"])
def test_who_does_not_want_to_wait_is_refused_at_once(
    server: FakeServer, how: str, pooled: str, kind: type[NpucallError]
) -> None:
    server.answer = in_turn(*full(2, kind))
    before = server.unary
    settings = {"wait": False} if how == "connect" else {}
    with pytest.MonkeyPatch.context() as environment, serving(server) as target:
        if how == "environment":
            environment.setenv("NPUCALL_WAIT", "false")
        with npucall_client.connect(pooled + target, **settings) as client:  # type: ignore[arg-type]
            asked = client.options(wait=False) if how == "options" else client
            with pytest.raises(kind, match="the queue is full") as caught:
                run(asked, PAIR)
            assert caught.value.retry_after == SOON
            assert server.unary == before + 1
            run(asked.options(wait=True), PAIR)
            assert server.unary == before + 3


@each(("settings", "delay"), [({}, NEVER), ({"wait": False}, SOON)])
def test_a_delay_that_ends_after_the_timeout_or_that_nobody_waits_for_is_told_now(
    settings: Any, delay: float
) -> None:
    server = FakeServer()
    server.answer = fail(QueueFullError("the queue is full", retry_after=delay))
    server.behaviours = [full_at_first(1, delay)]
    with connected(server, **settings) as client:
        with pytest.raises(QueueFullError):
            run(client, PAIR)
        with client.pipeline() as pipeline:
            found = submit(pipeline, PAIR).exception(PATIENCE)
    assert isinstance(found, QueueFullError)
    assert found.retry_after == delay


# Streams.


def full_at_first(times: int, retry_after: float = SOON) -> Behaviour:
    """Refuses so many calls, and answers the others."""
    return refusing(*[QueueFullError("the queue is full", retry_after=retry_after)] * times)


def test_refused_calls_are_sent_again_on_the_same_stream_and_leaving_waits_for_them(
    server: FakeServer,
) -> None:
    server.behaviours = [full_at_first(20)]
    with piped(server) as pipeline:
        calls = [submit(pipeline, numbers(4 * size)) for size in range(1, 13)]
    for size, call in enumerate(calls, 1):
        np.testing.assert_array_equal(call.result(0), numbers(4 * size))
    assert (len(server.begins), server.streams) == (32, 1)


def test_a_large_call_is_sent_again_from_its_first_byte(server: FakeServer) -> None:
    large = numbers(8 * MIB)
    server.behaviours = [full_at_first(1), full_at_first(1), full_at_first(2)]
    with connected(server) as client:
        np.testing.assert_array_equal(run(client, large), large)
        server.behaviours = [*[echo] * server.streams, full_at_first(2)]
        with client.pipeline() as pipeline:
            calls = [submit(pipeline, large), submit(pipeline, PAIR)]
            np.testing.assert_array_equal(calls[0].result(PATIENCE), large)
            np.testing.assert_array_equal(calls[1].result(PATIENCE), PAIR)


def test_who_waits_can_be_cancelled(server: FakeServer) -> None:
    server.behaviours = [full_at_first(1, NEVER)]
    with piped(server, timeout=2 * NEVER) as pipeline:
        call = submit(pipeline, PAIR)
        until(lambda: len(server.begins) == 1, "it was sent")
        call.cancel()
        with pytest.raises(CancelledError):
            call.result(PATIENCE)
        np.testing.assert_array_equal(submit(pipeline, PAIR).result(PATIENCE), PAIR)


@pytest.mark.usefixtures("no_pauses")
def test_a_stream_that_breaks_meanwhile_sends_it_again_on_the_next_one(server: FakeServer) -> None:
    refused = full_at_first(1, NEVER)

    def breaks(frames: Frames, context: grpc.ServicerContext) -> Answers:
        yield next(refused(frames, context))

    server.behaviours = [breaks]
    with piped(server, timeout=2 * NEVER) as pipeline:
        np.testing.assert_array_equal(submit(pipeline, PAIR).result(PATIENCE), PAIR)
    assert server.streams == 2

"""npucall_client.sending.link against a fake server: what gRPC's own answers become."""

import asyncio
import re
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc.status_pb2 import Status
from tests import on_a_loop
from tests.client import fake_server as fake
from tests.rows import each

import npucall_client
from npucall.errors import (
    CancelledError,
    ConnectionLostError,
    DeadlineError,
    DeviceLostError,
    DrainingError,
    InternalError,
    NpucallError,
    PoisonedCallError,
    QueueFullError,
    ServerUnreachableError,
    TooLargeError,
)
from npucall.wire.status import TRAILER
from npucall_client import Client, aio

BOTH_SENDERS = pytest.mark.usefixtures("sender")
EVERY_WAY = pytest.mark.usefixtures("sender", "carrier")
PAUSES = "npucall_client.sending.attempts.PAUSES"
PAIR = fake.numbers(8)
LOST, DRAINING = DeviceLostError("restarting"), DrainingError("going down")
REFUSED = "Stream removed (Received RST_STREAM with error code 7)"
RESET = "Stream removed (RST_STREAM (Received RST_STREAM with error code 11))"


@pytest.fixture
def target(server: fake.FakeServer) -> Iterator[str]:
    with fake.serving(server) as address:
        yield address


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with npucall_client.connect(target) as client:
        yield client


@EVERY_WAY
def test_a_deadline_that_ends_at_a_server_that_is_there_is_a_deadline_error(
    server: fake.FakeServer, client: Client
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def wait(_: bytes, context: grpc.ServicerContext) -> bytes:
        if context.add_callback(ended.set):
            begun.set()
        ended.wait(fake.PATIENCE)
        return b""

    server.answer = wait
    with pytest.raises(DeadlineError, match=r"did not answer within 0\.3 s"):
        fake.run(client.options(timeout=0.3), PAIR)
    assert not begun.is_set() or ended.wait(fake.PATIENCE)  # the server was told


@BOTH_SENDERS
def test_an_error_of_ours_arrives_with_its_facts_and_that_of_grpc_is_only_the_context(
    server: fake.FakeServer, client: Client
) -> None:
    server.answer = fake.in_turn(
        fake.fail(QueueFullError("busy", retry_after=0.5, limit="64")),
        fake.refuse(grpc.StatusCode.INTERNAL, "by a proxy"),
        fake.refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, "by a proxy"),
    )
    with pytest.raises(QueueFullError, match="busy") as caught:
        fake.run(client.options(wait=False), PAIR)
    for kind in InternalError, TooLargeError:
        with pytest.raises(kind, match="by a proxy"):
            fake.run(client, PAIR)
    assert caught.value.retry_after == 0.5
    assert caught.value.details == {"limit": "64"}
    assert server.unary == 3
    assert not isinstance(caught.value, grpc.RpcError)
    assert isinstance(caught.value.__context__, grpc.RpcError)


@BOTH_SENDERS
def test_a_connection_on_which_streams_are_refused_again_and_again_is_left(
    server: fake.FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: every further call of that connection ended so, still after 418 s."""
    monkeypatch.setattr(PAUSES, (0.001,))
    peers: list[str] = []

    def count_wrongly(request: bytes, context: grpc.ServicerContext) -> bytes:
        if context.peer() not in peers:
            peers.append(context.peer())
        if context.peer() == peers[0]:
            context.abort(grpc.StatusCode.UNAVAILABLE, REFUSED)
        return fake.echo_once(request, context)

    server.answer = count_wrongly
    assert fake.run(client, PAIR).tolist() == PAIR.tolist()
    assert (len(peers), server.unary) == (2, 4)


def _future(target: str) -> None:
    with npucall_client.connect(target) as client, client.pipeline() as pipeline:
        pipeline.submit("aclnnL1LossBackward", PAIR, self=fake.ONE, target=fake.ONE).result()


def _now(target: str) -> None:
    with npucall_client.connect(target) as client:
        client.run("aclnnL1LossBackward", PAIR, self=fake.ONE, target=fake.ONE)


def _awaited(target: str) -> None:
    async def call() -> None:
        async with aio.connect(target) as client:
            await client.run("aclnnL1LossBackward", PAIR, self=fake.ONE, target=fake.ONE)

    on_a_loop.loop()
    asyncio.run(call())


@each(("way", "most"), [(_now, 12), (_future, 16), (_awaited, 24)])
def test_a_traceback_is_short_and_the_error_of_grpc_is_not_in_it(
    server: fake.FakeServer, target: str, way: Callable[[str], None], most: int
) -> None:
    server.limits.stream_window = 0
    server.answer = fake.fail(QueueFullError("the queue is full"))
    with pytest.raises(QueueFullError) as caught:
        way(target)
    printed = "".join(traceback.format_exception(caught.value))
    assert len(printed.splitlines()) <= most, printed
    assert "Rpc" not in printed
    assert "debug_error_string" not in printed
    assert isinstance(caught.value.__context__, grpc.RpcError)


def test_what_is_not_printed_is_in_the_log(
    server: fake.FakeServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = fake.fail(QueueFullError("the queue is full"))
    with caplog.at_level("DEBUG", logger="npucall_client"), pytest.raises(QueueFullError):
        fake.run(client, PAIR)
    assert "send_once" in caplog.text


def test_the_log_says_where_a_call_goes_how_and_why_it_is_sent_again(
    server: fake.FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.told.server.device, server.told.server.soc = "fake", "Ascend910B1"
    server.told.server.instance, server.told.version = "abc", "0.2.0"
    server.answer = fake.in_turn(
        fake.fail(QueueFullError("full", retry_after=0.01)), fake.echo_once
    )
    caplog.set_level("DEBUG", logger="npucall_client")
    with (
        fake.serving(server) as target,
        npucall_client.connect(f"pool:{target}", token="secret") as client,
    ):
        fake.run(client, 12345 * PAIR)
    said = [record.getMessage() for record in caplog.records if record.exc_info is None]
    assert said == [
        f"{target} is fake as Ascend910B1, npucall 0.2.0, instance abc",
        f"frames: calls go over gRPC to {target}",
        f"aclnnL1LossBackward goes to {target}",
        f"aclnnL1LossBackward at {target}: QUEUE_FULL; another member of the pool is asked",
        f"aclnnL1LossBackward goes to {target}",
    ]
    assert not {"secret", "12345"} & set(re.findall(r"\w+", caplog.text))


def of_a_proxy(_: bytes, context: grpc.ServicerContext) -> bytes:
    """A details trailer that no npucall server wrote."""
    context.set_trailing_metadata(((TRAILER, Status(code=1).SerializeToString()),))
    context.abort(grpc.StatusCode.CANCELLED, "refused")


@EVERY_WAY
@pytest.mark.usefixtures("no_pauses")
@each(
    ("failures", "why"),
    [
        ([fake.fail(LOST)] * 2, "the server is unavailable"),
        ([fake.fail(DRAINING)] * 50, "it may take longer to drain than a few attempts take"),
        ([fake.refuse(grpc.StatusCode.CANCELLED)] * 2, "it went down before the call began"),
        ([of_a_proxy], "the trailer says nothing"),
        *(
            ([fake.refuse(getattr(grpc.StatusCode, code), RESET)] * 2, f"HTTP/2 {code}")
            for code in ("INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "CANCELLED")
        ),
    ],
)
def test_a_call_is_repeated_until_it_is_answered(
    server: fake.FakeServer, client: Client, failures: list[Any], why: str
) -> None:
    before, server.answer = server.unary, fake.in_turn(*failures, fake.echo_once)
    np.testing.assert_array_equal(fake.run(client, PAIR), PAIR)
    assert server.unary - before == len(failures) + 1, why


@BOTH_SENDERS
@each(
    ("answer", "times", "error", "said"),
    [
        (fake.fail(LOST), 1, DeviceLostError, "restarting"),
        (fake.refuse(grpc.StatusCode.UNAVAILABLE, "it broke"), 20, ConnectionLostError, "it broke"),
        (fake.fail(DRAINING), 2, DrainingError, "going down"),
        (
            fake.refuse(grpc.StatusCode.CANCELLED),
            3,
            ServerUnreachableError,
            "ended the call without an",
        ),
    ],
)
def test_a_call_is_repeated_while_its_timeout_allows_and_raises_what_was_said_last(
    server: fake.FakeServer,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    times: int,
    error: type[NpucallError],
    said: str,
) -> None:
    monkeypatch.setattr(PAUSES, (*[0.0] * times, 1000.0, 0.0))
    before, server.answer = server.unary, answer
    with pytest.raises(error, match=said) as caught:
        fake.run(client.options(timeout=900.0), PAIR)
    assert isinstance(caught.value.__context__, grpc.RpcError)
    assert server.unary - before == times + 1


@EVERY_WAY
@pytest.mark.usefixtures("no_pauses", "no_collector")
@each(
    ("error", "raised"),
    [
        (LOST, PoisonedCallError),
        (QueueFullError("busy"), QueueFullError),
    ],
)
def test_an_error_that_is_forgotten_keeps_nothing_of_its_call(
    server: fake.FakeServer,
    client: Client,
    error: NpucallError,
    raised: type[NpucallError],
) -> None:
    server.answer = fake.fail(error)
    array = np.ones((2, 3), np.float32)
    known = weakref.ref(array)
    with pytest.raises(raised):
        client.run("aclnnKlDivBackward", array, self=array, target=array)
    del array
    assert known() is None


@EVERY_WAY
def test_a_client_that_is_closed_between_two_attempts_makes_no_further_one(
    server: fake.FakeServer, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PAUSES, (1000.0,))
    server.answer = fake.fail(LOST)
    client = npucall_client.connect(target, timeout=2000.0)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fake.run, client, PAIR)
        assert server.asked.wait(fake.PATIENCE)
        client.close()
        with pytest.raises(CancelledError, match="closed"):
            answer.result(fake.PATIENCE)
    assert server.unary == 1


@EVERY_WAY
def test_the_request_id_goes_along(server: fake.FakeServer, client: Client) -> None:
    fake.run(client.options(request_id="mine-7"), PAIR)
    fake.run(client, PAIR)
    fake.run(client.options(request_id="mine-8"), fake.numbers(5 * fake.MIB))
    told = [sent.get("npucall-request-id") for sent in server.metadata]
    assert told + [begin.request_id for begin in server.begins] == ["mine-7", None, "mine-8"]


@pytest.mark.parametrize("setting", ["max_message_bytes", "memory_limit"])
def test_a_request_above_a_limit_is_not_sent(server: fake.FakeServer, setting: str) -> None:
    setattr(server.limits, setting, 2_000_000)
    server.limits.stream_window = 0
    with (
        fake.connected(server) as client,
        pytest.raises(TooLargeError, match=f"2000000 bytes .setting {setting} of the server") as it,
    ):
        client.run("aclnnL1LossBackward", PAIR, self=PAIR, target=fake.numbers(2_400_000))
    assert it.value.parameter == "target"
    assert it.value.details == {"limit": "2000000", "setting": setting}
    assert server.unary == 0


USES: list[Callable[[Client], Any]] = [
    lambda client: fake.run(client, PAIR),
    lambda client: client.execute("aclnnL1LossBackward", PAIR, self=fake.ONE, target=fake.ONE),
    lambda client: client.plan("aclnnL1LossBackward", PAIR, self=fake.ONE, target=fake.ONE),
    lambda client: fake.run(client.options(timeout=5.0), PAIR),
    lambda client: client.pipeline(),
    lambda client: client.session(),
    lambda client: client.shared(64),
    lambda client: client.operators(),
    lambda client: client.operator("aclnnL1LossBackward"),
    lambda client: client.server_info(),
]


@BOTH_SENDERS
def test_a_client_that_is_closed_refuses_every_use(target: str) -> None:
    for where in target, "local:":
        client = npucall_client.connect(where)
        client.close()
        for use in USES:
            with pytest.raises(CancelledError, match="the client is closed"):
                use(client)


@EVERY_WAY
@each("pool", ["", "pool:"])
def test_a_call_under_way_ends_with_its_client(
    server: fake.FakeServer, target: str, pool: str
) -> None:
    client = npucall_client.connect(pool + target)
    ended, heard = threading.Event(), SimpleQueue[bool]()

    def close_meanwhile(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.add_callback(ended.set)
        client.close()
        heard.put(ended.wait(fake.PATIENCE))
        return b""

    server.answer = close_meanwhile
    with pytest.raises(CancelledError):
        fake.run(client, PAIR)
    assert heard.get(timeout=fake.PATIENCE)


@BOTH_SENDERS
def test_a_server_that_is_gone_is_unreachable(server: fake.FakeServer) -> None:
    with fake.serving(server) as target:
        client = npucall_client.connect(target, timeout=0.5)
    with client, pytest.raises(ServerUnreachableError, match=f"expected a server at {target}"):
        fake.run(client, PAIR)

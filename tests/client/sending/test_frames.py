"""Calls in frames: what the fake server does there is what gRPC never does."""

import errno
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from tests.client import fake_frames
from tests.client import fake_server as fake
from tests.client.fake_frames import FakeConnection
from tests.rows import each

import npucall_client
from npucall.errors import (
    ConnectionLostError,
    CredentialExpiredError,
    QueueFullError,
    SharedMemoryError,
    TooLargeError,
)
from npucall.limits import KIB
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire import headers, keepalive
from npucall.wire.status import to_status
from npucall_client.sending.frames import (
    frame_carrier,
    frame_connection,
    frame_places,
    loop_socket,
    thread_socket,
)
from npucall_client.sending.frames.many_calls import ManyCalls
from npucall_client.sending.proxy import way_to
from npucall_client.settings import ClientSettings

PAIR = fake.numbers(8)
BOTH_SENDERS = pytest.mark.usefixtures("sender")


def answers(client: Any, times: int = 1) -> None:
    for _ in range(times):
        assert np.array_equal(fake.run(client, PAIR), PAIR)


def over_grpc(server: fake.FakeServer) -> int:
    """Calls that came so."""
    return sum("user-agent" in sent for sent in server.metadata)


def travels_in_frames(server: fake.FakeServer, client: Any) -> bool:
    """Whether a call does."""
    before = over_grpc(server)
    answers(client)
    return over_grpc(server) == before


@BOTH_SENDERS
def test_one_caller_needs_one_connection_and_callers_do_not_wait_for_each_other(
    server: fake.FakeServer,
) -> None:
    together = threading.Barrier(4)

    def meet(request: bytes, context: Any) -> bytes:
        together.wait(fake.PATIENCE)
        return fake.echo_once(request, context)

    with fake_frames.listening(server) as listener, fake.connected(server) as client:
        answers(client, 3)
        assert (listener.opened, server.unary) == (1, 3)
        server.answer = meet
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(answers, [client] * 4))
        assert (listener.opened, server.unary, over_grpc(server)) == (4, 7, 0)


@BOTH_SENDERS
@each("size", [4, 60_000, 66_000, 2_000_000])
def test_answers_of_every_size_are_whole_and_can_be_written(size: int) -> None:
    server, array = fake.FakeServer(), fake.numbers(size)
    with fake_frames.listening(server), fake.connected(server) as client:
        for _ in range(2):
            got = fake.run(client, array)
            np.testing.assert_array_equal(got, array)
            got[:] = 0
    assert not over_grpc(server)


def another(peer: FakeConnection) -> None:
    peer.hello("another")
    with pytest.raises(EOFError):  # it hears nothing
        peer.receive()


def gone(_: FakeConnection) -> None:
    pass


def gone_after_the_credential(peer: FakeConnection) -> None:
    peer.hello()
    peer.receive()


def silent(peer: FakeConnection) -> None:
    peer.socket.recv(1)


def full(peer: FakeConnection) -> None:
    peer.hello()
    peer.receive()
    peer.send(headers.ERROR, to_status(QueueFullError("all in use")).SerializeToString())


def strange(peer: FakeConnection) -> None:
    peer.send(headers.RESPONSE, b"\xff")


@BOTH_SENDERS
@each("serve", [another, gone, gone_after_the_credential, silent, full, strange])
@each("port", [False, True])
def test_calls_travel_over_grpc_where_frames_do_not_come_about_and_ask_only_once(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[[FakeConnection], None], port: bool
) -> None:
    server = fake.FakeServer()
    for name in "_NEAR_SECONDS", "_FAR_SECONDS":
        monkeypatch.setattr(frame_carrier, name, 0.2 if serve is silent else fake.PATIENCE)
    monkeypatch.setattr(frame_carrier, "_SHORT_SECONDS", 0.0)
    monkeypatch.setattr(frame_places, "_SHORTEST_REST", 1000.0)
    served = threading.Semaphore(0)

    def once(peer: FakeConnection) -> None:
        try:
            serve(peer)
        finally:
            served.release()

    with fake_frames.listening(server, once, port=port) as listener:
        with fake.connected(server) as client:
            answers(client)
            assert served.acquire(timeout=fake.PATIENCE)
            answers(client, 2)
        assert listener.opened == 1
    assert over_grpc(server) == server.unary == 3


@BOTH_SENDERS
def test_a_port_is_tried_while_calls_go_on_and_then_has_them(server: fake.FakeServer) -> None:
    with fake_frames.listening(server, port=True), fake.connected(server) as client:
        fake.until(partial(travels_in_frames, server, client), "the port was reached")
        before = over_grpc(server)
        answers(client, 3)
    assert over_grpc(server) == before


@BOTH_SENDERS
def test_no_call_waits_for_a_port_that_was_not_reached_or_no_longer_is(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_carrier, "_NEAR_SECONDS", 3 * fake.PATIENCE)
    monkeypatch.setattr(frame_places, "_SHORTEST_REST", 0.0)
    went_on, go_on = [], threading.Event()

    def late(peer: FakeConnection) -> None:
        went_on.append(go_on.wait(fake.PATIENCE / 4))  # not as long as silence may last
        fake_frames.calls(server)(peer)

    with (
        fake_frames.listening(server, late, port=True) as listener,
        fake.connected(server) as client,
    ):
        travels = partial(travels_in_frames, server, client)
        for _ in range(2):
            assert not travels()
            go_on.set()
            fake.until(travels, "the port was reached")
            go_on.clear()
            listener.serve = gone
            listener.cut()
            fake.until(lambda: not travels(), "the port is lost")
            listener.serve = late
    assert all(went_on)


def test_a_credential_goes_to_the_same_user_or_the_server_s_and_to_nobody_whom_tls_does_not_prove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[str] = []
    own = os.geteuid()

    def listen(peer: FakeConnection) -> None:
        peer.hello()
        heard.append(headers.authorization_in(peer.receive()[2]))

    for port, user, told, hears in (
        (False, own, 1, True), (False, 1, 1, False), (False, 1, own, True), (True, 1, own, False),
    ):  # fmt: skip
        server = fake.FakeServer()
        monkeypatch.setattr(os, "geteuid", partial(int, user))
        monkeypatch.setattr(frame_places, "_ROOT", user)
        with (
            fake_frames.listening(server, listen, port=port) as listener,
            fake.serving(server) as target,
        ):
            server.told.frames_user = told
            with npucall_client.connect(target, token="mine") as client:
                answers(client)
            assert listener.tried.wait(fake.PATIENCE)
        assert over_grpc(server) == 1
        assert heard == (["Bearer mine"] if hears else [])
        heard.clear()


def test_a_caller_that_wants_grpc_a_proxy_or_has_no_sockets_for_them_uses_grpc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = fake.FakeServer()
    with fake_frames.listening(server) as listener:
        with fake.connected(server, carrier="grpc") as client:
            answers(client)
        monkeypatch.setattr(frame_places, "_HAS_PATHS", False)
        with fake.connected(server) as client:
            answers(client)
        assert (over_grpc(server), listener.opened) == (2, 0)
    server.told.frames_port = 1

    def places(**given: Any) -> int:
        settings = ClientSettings(target="far:1", **given)
        return len(frame_places.places_of(server.told, settings, way_to(settings)))

    assert (places(), places(proxy="http://proxy:1"), places(tls=True)) == (1, 0, 0)
    server.told.frames_tls = True
    assert (places(), places(tls=True)) == (0, 1)
    monkeypatch.setattr(frame_places, "_HAS_MESSAGES", False)
    assert not places(tls=True)


HIDDEN = """
import os, socket, sys
for name in "AF_UNIX", "SO_PEERCRED", "MSG_DONTWAIT", "MSG_CMSG_CLOEXEC", "recv_fds":
    delattr(socket, name)
del os.memfd_create
import numpy as np
import npucall_client
one = np.ones(1, np.float32)
for target in sys.argv[1:]:
    with npucall_client.connect(target) as client:
        print(client.carrier(), client.run("aclnnL1LossBackward", one, self=one, target=one))
"""


def test_where_a_system_lacks_what_frames_use_the_client_takes_what_is_left() -> None:
    with ExitStack() as stack:
        targets = []
        for port in False, True:
            server = fake.FakeServer()
            stack.enter_context(fake_frames.listening(server, port=port))
            targets.append(stack.enter_context(fake.serving(server)))
        command = [sys.executable, "-c", HIDDEN, *targets]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["grpc", "[1.]", "frames", "[1.]"], ended.stderr


@BOTH_SENDERS
def test_a_connection_that_the_server_closed_while_it_was_idle_costs_nothing(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_frames.listening(server) as listener, fake.connected(server) as client:
        for fresh in 0.0, 1000.0:  # it is looked at; it is not
            monkeypatch.setattr(frame_carrier, "_FRESH_SECONDS", fresh)
            answers(client)
            listener.cut()
            fake.until(lambda: not listener.serving, "they are closed")
            answers(client)
    assert (listener.opened, server.unary, over_grpc(server)) == (3, 4, 0)


@BOTH_SENDERS
@pytest.mark.usefixtures("no_pauses")
@each("state", ["call", "header", "message"])
def test_a_call_whose_connection_breaks_is_sent_again(state: str) -> None:
    server, left = fake.FakeServer(), [1]

    def breaks(peer: FakeConnection) -> None:
        if not left:
            fake_frames.calls(server)(peer)
        left.pop()
        peer.welcome()
        header, _, message = peer.receive()
        answer = fake.echo_once(message, None)  # type: ignore[arg-type]
        frame = headers.pack(headers.RESPONSE, len(answer), header.call_id) + answer
        peer.socket.sendall(frame[: {"call": 0, "header": 7, "message": len(frame) - 1}[state]])

    with fake_frames.listening(server, breaks) as listener, fake.connected(server) as client:
        answers(client)
    assert (listener.opened, server.unary, over_grpc(server)) == (2, 1, 0)


@BOTH_SENDERS
@pytest.mark.usefixtures("no_pauses")
@each("state", ["answer", "memory", "sending"])
def test_a_server_that_stands_still_is_left(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """Its connections stay open; ``state``: what the client waits for."""

    class FirstSilenceError(thread_socket.SilenceError):
        """The next server answers, however late it is."""

        def __init__(self) -> None:
            super().__init__()
            monkeypatch.setattr(keepalive, "SILENCE_SECONDS", fake.PATIENCE)

    for each_socket in thread_socket, loop_socket:
        monkeypatch.setattr(each_socket, "SilenceError", FirstSilenceError)
    monkeypatch.setattr(keepalive, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(keepalive, "ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(thread_socket, "_LONGEST_WAIT", 0.1)
    server, over = fake.FakeServer(), threading.Event()
    array = PAIR if state == "answer" else fake.numbers(2_000_000)

    def still(peer: FakeConnection) -> None:
        if listener.opened > 1:
            fake_frames.calls(server)(peer)
        peer.welcome()
        peer.receive()
        if state == "sending":
            none = to_status(SharedMemoryError("it has none"))
            peer.send(headers.ERROR, none.SerializeToString(), 1)
        over.wait(fake.PATIENCE)

    with fake_frames.listening(server, still) as listener, fake.connected(server) as client:
        assert np.array_equal(fake.run(client, array), array)
        over.set()
    assert (listener.opened, server.unary, over_grpc(server)) == (2, 1, 0)


@BOTH_SENDERS
@pytest.mark.usefixtures("no_pauses")
def test_a_call_on_a_link_that_the_kernel_gave_up_is_sent_again(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has one class of error for that and for a time that is over."""
    left = [TimeoutError(errno.ETIMEDOUT, "Connection timed out")]
    call = frame_connection.CallConnection.call

    async def cut(connection: Any, *arguments: Any, **options: Any) -> Any:
        if left:
            raise left.pop()
        return await call(connection, *arguments, **options)

    monkeypatch.setattr(frame_connection.CallConnection, "call", cut)
    with fake_frames.listening(server) as listener, fake.connected(server) as client:
        answers(client)
    assert (listener.opened, over_grpc(server)) == (2, 0)


def test_a_connection_that_breaks_is_told_as_over_grpc(server: fake.FakeServer) -> None:
    def breaks(peer: FakeConnection) -> None:
        peer.welcome()
        peer.receive()

    with fake_frames.listening(server, breaks), fake.connected(server, timeout=0.05) as client:
        with pytest.raises(ConnectionLostError, match="the connection to the server at 127") as it:
            fake.run(client, PAIR)
        assert str(it.value).endswith("broke before it answered: Socket closed")


@BOTH_SENDERS
@each("port", [False, True])
def test_a_server_without_streams_takes_in_frames_what_its_hello_allows(port: bool) -> None:
    server, large = fake.FakeServer(), fake.numbers(3 * fake.MIB)
    server.limits.stream_window, server.limits.max_message_bytes = 0, 2 * fake.MIB
    with fake.connected(server) as client, pytest.raises(TooLargeError, match="max_message_bytes"):
        fake.run(client, large)
    with fake_frames.listening(server, port=port), fake.connected(server) as client:
        np.testing.assert_array_equal(fake.run(client, large), large)


def test_a_call_that_ends_after_its_client_was_closed_leaves_no_socket(
    server: fake.FakeServer,
) -> None:
    with fake_frames.listening(server), fake.connected(server) as client:
        answers(client)
        frames: Any = client._transport
        carrier = frames.link.frames
        connection = carrier._idle.pop()  # as if a call had it
        client.close()
        carrier.give_back(connection)
        assert connection.socket._socket.fileno() == -1


@BOTH_SENDERS
def test_who_sends_calls_of_a_pipeline_waits_for_no_server_that_does_not_read(
    server: fake.FakeServer,
) -> None:
    """They come in order, those that are too long to be sent at once and their followers too."""
    reads, came = threading.Event(), []

    def late(peer: FakeConnection) -> None:
        peer.welcome()
        assert reads.wait(fake.PATIENCE)
        while True:
            header, _, message = peer.receive()
            if header.kind == headers.ALIVE:
                continue
            came.append(header.call_id)
            whole = pb.ExecuteRequest.FromString(message).storage[0].data
            peer.send(headers.ALIVE)
            answer = fake.reply_of(whole).SerializeToString()
            peer.send(headers.RESPONSE, answer, header.call_id)

    server.limits.stream_window = 32
    with fake_frames.listening(server, late), fake.piped(server) as pipeline:
        arrays = [fake.numbers(size * KIB) for size in (*[60] * 8, 300, 1, 1)]
        calls = [fake.submit(pipeline, array) for array in arrays]
        assert not came
        reads.set()
        for call, array in zip(calls, arrays, strict=True):
            np.testing.assert_array_equal(call.result(fake.PATIENCE), array)
    assert came == list(range(1, 12))


def test_calls_that_come_before_their_connection_are_sent_and_cancelled_before_others(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, cancelled = threading.Event(), threading.Event()
    came: SimpleQueue[tuple[int, int]] = SimpleQueue()
    send = ManyCalls.send

    async def slow(many: ManyCalls, call: Any) -> None:
        await send(many, call)
        sent.set()
        assert cancelled.wait(fake.PATIENCE)

    def note(peer: FakeConnection) -> None:
        peer.welcome()
        while True:
            header, _, _ = peer.receive()
            came.put((header.kind, header.call_id))
            if header.call_id == 2:
                peer.send(headers.RESPONSE, fake.reply_of(bytes(8)).SerializeToString(), 2)

    monkeypatch.setattr(ManyCalls, "send", slow)
    with fake_frames.listening(server, note), fake.piped(server) as pipeline:
        first = fake.submit(pipeline, PAIR)
        assert sent.wait(fake.PATIENCE)
        second = fake.submit(pipeline, PAIR)
        first.cancel()
        cancelled.set()
        second.result(fake.PATIENCE)
        found = [came.get(timeout=fake.PATIENCE) for _ in range(3)]
    assert found == [(headers.EXECUTE, 1), (headers.EXECUTE, 2), (headers.CANCEL, 1)]


def test_a_forked_process_has_connections_of_its_own(server: fake.FakeServer) -> None:
    with fake_frames.listening(server) as listener, fake.connected(server) as client:
        answers(client)
        if not (child := os.fork()):
            try:
                answers(client)
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert listener.opened == 2
        answers(client)
    assert (listener.opened, server.unary, over_grpc(server)) == (2, 3, 0)


def test_a_client_that_is_dropped_ends_its_connections(server: fake.FakeServer) -> None:
    with fake_frames.listening(server) as listener, fake.serving(server) as target:
        client = npucall_client.connect(target)
        answers(client)
        del client
        gc.collect()
        fake.until(lambda: not listener.serving, "the server has heard of it")


def test_another_token_travels_on_another_connection(server: fake.FakeServer) -> None:
    tokens = iter(["first", "second"])

    def guard(context: Any) -> None:
        if dict(context.invocation_metadata())["authorization"] == "Bearer first" and server.unary:
            fake.fail(CredentialExpiredError("over"))(b"", context)

    server.guard = guard
    with (
        fake_frames.listening(server) as listener,
        fake.connected(server, token=lambda: next(tokens)) as client,
    ):
        answers(client, 2)
    assert listener.opened == 2
    seen = [sent["authorization"] for sent in server.metadata]
    assert seen == ["Bearer first", "Bearer second"]

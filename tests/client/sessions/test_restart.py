"""A server that is started again, or a lease that ends, while a session is open."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.more import TURNS

import npucall_client
from npucall.errors import HandleLostError, SessionExpiredError, WrongServerError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.senders import finished
from npucall_client.sessions.home import Home
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client, Remote, Session
    from npucall_client.testing import ServerProcess

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

pytest.importorskip("npucall_server")

PATIENCE = 60.0
ONE = np.ones((), np.float32)
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
Y = np.linspace(0.1, 0.9, 48, dtype=np.float32).reshape(6, 8)
LARGE = np.arange(1 << 22, dtype=np.float32)
"""16 MiB: more than the buffers of a socket take in."""


@pytest.fixture
def address() -> str:
    """Of a server that is started again there: sessions are bound to what it was told."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def kill(server: ServerProcess) -> None:
    server.process.kill()
    server.process.wait()


def program(session: Session, *remotes: Remote) -> Any:
    with session.program() as steps:
        first = steps.run(l1_loss_backward, ONE, *remotes)
        second = steps.run(l1_loss_backward, first, *remotes)
    return second.numpy()


METHODS: dict[str, Callable[[Client, Session, Remote, Remote], Any]] = {
    "put": lambda _, session, *__: session.put(LARGE).numpy(),
    "put a constant": lambda _, session, *__: session.put(LARGE, constant=True).numpy(),
    "run": lambda _, session, x, y: session.run(l1_loss_backward, ONE, x, y).numpy(),
    "run with chunks": lambda _, session, x, __: session.run(
        l1_loss_backward, x.numpy()[:1, :1], LARGE, LARGE
    ).numpy(),
    "client.run": lambda client, _, x, y: client.run(l1_loss_backward, ONE, x, y),
    "program": lambda _, session, x, y: program(session, x, y),
    "numpy": lambda _, __, x, ___: x.numpy(),
}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def test_without_refill_every_later_use_raises_what_happened(address: str) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        session = client.session()
        remote = session.put(X)
        kill(server)
    with running_server(listen=address), client:
        for use in (
            remote.numpy,
            lambda: session.put(X),
            lambda: session.run(l1_loss_backward, ONE, X, Y),
            lambda: client.run(l1_loss_backward, ONE, remote, Y),
            lambda: program(session, remote, remote),
        ):
            with pytest.raises(HandleLostError):
                use()
        with client.pipeline() as pipeline, pytest.raises(HandleLostError):
            pipeline.submit(l1_loss_backward, ONE, remote, Y)
        with client.session() as another:
            assert another.put(X).numpy().tobytes() == X.tobytes()


def test_with_refill_what_was_put_is_there_again_and_results_are_lost(address: str) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        session = client.session(refill=True)
        x, y = session.put(X), session.put(Y, constant=True)
        result = session.run(l1_loss_backward, ONE, x, y)
        expected = result.numpy().tobytes()
        kill(server)
    with running_server(listen=address), client:
        assert session.run(l1_loss_backward, ONE, x, y).numpy().tobytes() == expected
        with pytest.raises(HandleLostError, match="repeat the call that made it"):
            result.numpy()
        with pytest.raises(HandleLostError):
            session.run(l1_loss_backward, ONE, result, y)
        assert program(session, x, y).shape == X.shape
        with client.pipeline() as pipeline:
            assert pipeline.submit(l1_loss_backward, ONE, x, y).result().tobytes() == expected


@pytest.mark.more
def test_an_array_that_changed_since_is_not_filled_in_again(address: str) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        session = client.session(refill=True)
        changing, steady = X.copy(), session.put(Y)
        remote = session.put(changing)
        changing[0] = 7
        kill(server)
    with running_server(listen=address), client:
        assert steady.numpy().tobytes() == Y.tobytes()
        with pytest.raises(HandleLostError):
            remote.numpy()


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=TURNS[0 if method == "program" else 1 + number % 2])
        for number, method in enumerate(METHODS)
    ],
)
@pytest.mark.parametrize("refill", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_restart_in_the_middle_of(
    method: str, refill: bool, pool: ThreadPoolExecutor, address: str
) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        session = client.session(refill=refill)
        x, y = session.put(X), session.put(Y)
        expected = METHODS[method](client, session, x, y)
        server.process.send_signal(signal.SIGSTOP)
        os.waitpid(server.process.pid, os.WUNTRACED)  # until all its threads have stopped
        answer = pool.submit(METHODS[method], client, session, x, y)
        with pytest.raises(TimeoutError):
            answer.result(0.3)
        kill(server)
    with running_server(listen=address), client:
        if refill:
            assert np.array_equal(answer.result(PATIENCE), expected)
        else:
            with pytest.raises(HandleLostError):
                answer.result(PATIENCE)


@pytest.mark.more
def test_a_session_is_opened_by_the_next_server_where_the_first_one_went(
    pool: ThreadPoolExecutor, address: str
) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        kill(server)
    answer = pool.submit(client.session)
    with running_server(listen=address), client:
        assert answer.result(PATIENCE).put(X).numpy().tobytes() == X.tobytes()


@pytest.mark.more
def test_closing_a_session_whose_server_went_does_not_wait_for_it(address: str) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        session = client.session()
        session.put(X)
        kill(server)
    before = time.monotonic()
    client.close()
    assert time.monotonic() - before < PATIENCE / 4


@pytest.mark.more
@pytest.mark.parametrize("refill", [False, True])
def test_a_lease_that_ended(
    npucall_server: str, monkeypatch: pytest.MonkeyPatch, refill: bool
) -> None:
    monkeypatch.setattr(Home, "renew", nobody_renews)  # so that nobody does
    with (
        npucall_client.connect(npucall_server) as client,
        client.session(lease=0.5, refill=refill) as session,
    ):
        assert session.lease == 0.5
        remote = session.put(X)
        result = session.run(l1_loss_backward, ONE, remote, Y)
        time.sleep(2.5)
        if refill:
            assert remote.numpy().tobytes() == X.tobytes()
            with pytest.raises(HandleLostError):
                result.numpy()
        else:
            for _ in range(2):
                with pytest.raises(SessionExpiredError):
                    remote.numpy()


def test_an_idle_session_outlives_its_lease(npucall_server: str) -> None:
    with (
        npucall_client.connect(npucall_server) as client,
        client.session(lease=0.6) as session,
    ):
        remote = session.put(X)
        time.sleep(2.0)
        assert remote.numpy().tobytes() == X.tobytes()


@pytest.mark.threads("it looks inside, where threads are")
def test_nobody_renews_a_session_that_nobody_has(npucall_server: str) -> None:
    with npucall_client.connect(npucall_server) as client:
        session = client.session(lease=0.6)
        task: Any = session._home._task
        del session
        gc.collect()
        assert finished(task.join(PATIENCE))


@pytest.mark.threads("it looks inside, where threads are")
@pytest.mark.more
def test_the_idle_thread_sees_that_the_session_was_lost(address: str) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        session = client.session(lease=0.6)
        task: Any = session._home._task
        kill(server)
    with running_server(listen=address), client:
        assert finished(task.join(PATIENCE))
        with pytest.raises(HandleLostError):
            session.put(X)


@pytest.mark.more
def test_another_server_at_the_address_is_told_apart(npucall_server: str, address: str) -> None:
    """A session is bound to a place: host, device and address."""
    with (
        running_server(listen=address) as server,
        npucall_client.connect(npucall_server) as client,
        npucall_client.connect(server.target) as other,
        other.session(refill=True) as theirs,
        client.session() as session,
    ):
        remote = theirs.put(X)
        theirs._home._id = session._home.id
        with pytest.raises(WrongServerError):
            remote.numpy()
        with pytest.raises(WrongServerError):
            theirs.put(X)


async def nobody_renews(_: Home) -> bool:
    return True

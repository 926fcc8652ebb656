"""A server that is started again, or a lease that ends, while a session is open."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.client.pool.heard import lasting_port
from tests.more import TURNS

import npucall_client
from npucall.errors import HandleLostError, SessionExpiredError, WrongServerError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.sessions.home import Home
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client, Remote, Session
    from npucall_client.testing import ServerProcess

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
    return f"127.0.0.1:{lasting_port()}"


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


@pytest.mark.usefixtures("sender_in_sweeps")
def test_without_refill_all_raises_what_happened_with_it_what_was_put_is_there_again(
    address: str,
) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        session, filled = client.session(), client.session(refill=True)
        remote = session.put(X)
        x, y = filled.put(X), filled.put(Y, constant=True)
        changing, steady = X.copy(), filled.put(Y)
        changed = filled.put(changing)
        changing[0] = 7
        result = filled.run(l1_loss_backward, ONE, x, y)
        expected = result.numpy().tobytes()
        kill(server)
    with running_server(listen=address), client:
        _is_lost(client, session, remote)
        assert filled.run(l1_loss_backward, ONE, x, y).numpy().tobytes() == expected
        for use in result.numpy, lambda: filled.run(l1_loss_backward, ONE, result, y):
            with pytest.raises(HandleLostError, match="repeat the call that made it"):
                use()
        assert program(filled, x, y).shape == X.shape
        with client.pipeline() as pipeline:
            assert pipeline.submit(l1_loss_backward, ONE, x, y).result().tobytes() == expected
        assert steady.numpy().tobytes() == Y.tobytes()
        with pytest.raises(HandleLostError):
            changed.numpy()


def _is_lost(client: Client, session: Session, remote: Remote) -> None:
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


@pytest.mark.usefixtures("sender_in_sweeps")
@pytest.mark.parametrize(
    "method",
    [pytest.param(method, marks=TURNS[1 + number % 2]) for number, method in enumerate(METHODS)],
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
def test_a_session_is_opened_by_the_next_server_and_closing_a_lost_one_does_not_wait(
    pool: ThreadPoolExecutor, address: str
) -> None:
    with running_server(listen=address) as server:
        client = npucall_client.connect(server.target)
        leaving = npucall_client.connect(server.target, timeout=1000.0)
        leaving.session().put(X)
        kill(server)
    pool.submit(leaving.close).result(PATIENCE)
    answer = pool.submit(client.session)
    with running_server(listen=address), client:
        assert answer.result(PATIENCE).put(X).numpy().tobytes() == X.tobytes()


@pytest.mark.more
def test_a_lease_that_ended(npucall_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Home, "renew", nobody_renews)
    with npucall_client.connect(npucall_server) as client:
        session, filled = client.session(lease=0.5), client.session(lease=0.5, refill=True)
        assert session.lease == 0.5
        lost, kept = session.put(X), filled.put(X)
        result = filled.run(l1_loss_backward, ONE, kept, Y)
        time.sleep(2.5)
        for _ in range(2):
            with pytest.raises(SessionExpiredError):
                lost.numpy()
        assert kept.numpy().tobytes() == X.tobytes()
        with pytest.raises(HandleLostError):
            result.numpy()


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

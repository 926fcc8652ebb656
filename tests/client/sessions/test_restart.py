"""A server that is started again, or a lease that ends, while a session is open."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
from tests.client.pool.heard import lasting_port

import npucall_client
from npucall.errors import HandleLostError, SessionExpiredError, WrongServerError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client, Remote, Session
from npucall_client.sessions.session_link import SessionLink
from npucall_client.testing import ServerProcess, running_server

pytest.importorskip("npucall_server")

from tests.server.serving import serving

from npucall_server.devices.cpu import CpuDevice

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


@pytest.mark.more
@pytest.mark.usefixtures("sender_in_sweeps")
def test_with_refill_what_was_put_is_there_again_without_it_all_is_lost(address: str) -> None:
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


@pytest.mark.more
@pytest.mark.usefixtures("sender_in_sweeps")
@pytest.mark.parametrize("refill", [False, True])
def test_a_server_that_starts_anew_in_the_middle_of_any_method(refill: bool, address: str) -> None:
    with ThreadPoolExecutor(len(METHODS)) as pool:
        with running_server(listen=address) as server:
            client = npucall_client.connect(server.target)
            session = client.session(refill=refill)
            x, y = session.put(X), session.put(Y)
            expected = {name: way(client, session, x, y) for name, way in METHODS.items()}
            server.process.send_signal(signal.SIGSTOP)
            os.waitpid(server.process.pid, os.WUNTRACED)  # until all its threads have stopped
            answers = {
                name: pool.submit(way, client, session, x, y) for name, way in METHODS.items()
            }
            assert not any(wait(answers.values(), 0.3).done)
            kill(server)
        with running_server(listen=address), client:
            for name, answer in answers.items():
                if refill:
                    assert np.array_equal(answer.result(PATIENCE), expected[name])
                else:
                    assert isinstance(answer.exception(PATIENCE), HandleLostError), name


@pytest.mark.more
def test_the_next_server_opens_a_session_and_closing_a_lost_one_does_not_wait(address: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        with running_server(listen=address) as server:
            client = npucall_client.connect(server.target)
            leaving = npucall_client.connect(server.target, timeout=1000.0)
            leaving.session().put(X)
            kill(server)
        pool.submit(leaving.close).result(PATIENCE)
        answer = pool.submit(client.session)
        with running_server(listen=address), client:
            assert answer.result(PATIENCE).put(X).numpy().tobytes() == X.tobytes()


def test_a_lease_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionLink, "renew", nobody_renews)
    device = CpuDevice("Ascend910B1", "documented")
    with serving(device) as server, npucall_client.connect(server.target) as client:
        session, filled = client.session(lease=50.0), client.session(lease=50.0, refill=True)
        assert session.lease == 50.0
        lost, kept = session.put(X), filled.put(X)
        result = filled.run(l1_loss_backward, ONE, kept, Y)
        server.clock.advance(51.0)
        server.look()
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
        other.session() as theirs,
        other.session(refill=True) as filled,
        client.session() as session,
    ):
        remote, kept = theirs.put(X), filled.put(X)
        theirs._home._id = filled._home._id = session._home.id
        with pytest.raises(WrongServerError):
            remote.numpy()
        with pytest.raises(WrongServerError):
            theirs.put(X)
        assert kept.numpy().tobytes() == X.tobytes()  # in another session, at the same address


async def nobody_renews(_: SessionLink) -> bool:
    return True

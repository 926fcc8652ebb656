"""How many messages and bytes a session costs: what a server says of them in its log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.client.pool.heard import until

import npucall_client
from npucall.errors import MissingError, TooLargeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.senders import finished
from npucall_client.sessions.home import Home
from npucall_client.sessions.transport import Upload
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytest.importorskip("npucall_server")

BOTH_SENDERS = pytest.mark.usefixtures("sender")
ONE = np.ones((), np.float32)
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server() as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with npucall_client.connect(server.target) as client:
        yield client


class Log:
    """What the server has answered since this was made."""

    def __init__(self, server: ServerProcess) -> None:
        self._path = server.log
        self._start = len(self._path.read_bytes())

    def calls(self, method: str, count: int) -> list[dict[str, Any]]:
        """The calls of a method, once there are so many."""
        until(lambda: len(self._found(method)) >= count, f"{count} {method}")
        return self._found(method)

    def _found(self, method: str) -> list[dict[str, Any]]:
        lines = self._path.read_bytes()[self._start :].splitlines()
        entries = [json.loads(line) for line in lines if line.endswith(b"}")]
        return [entry for entry in entries if entry.get("method") == method]


@BOTH_SENDERS
def test_a_constant_that_the_server_has_seen_travels_as_its_digest(
    server: ServerProcess, client: Client, sender: str
) -> None:
    """What is no constant is not remembered."""
    constant = np.random.default_rng(list(sender.encode())).random(4 << 20, np.float32)
    sent: list[int] = []
    log = Log(server)
    with client.session() as session:
        session.put(constant)
        session.put(constant, constant=True, progress=lambda now, *_: sent.append(now))
    assert sent[-1] == constant.nbytes
    assert len(log.calls("Upload", 3)) == 3
    with npucall_client.connect(server.target) as another, another.session() as session:
        again = session.put(constant, constant=True, progress=lambda now, *_: sent.append(-1))
        (found,) = log.calls("Upload", 4)[3:]
        assert again.numpy().tobytes() == constant.tobytes()
    assert -1 not in sent
    assert found["request_bytes"] < 64 * 1024


@BOTH_SENDERS
def test_a_program_is_one_call(server: ServerProcess, client: Client) -> None:
    with client.session() as session:
        there = session.put(X)
        log = Log(server)
        with session.program() as program:
            result = there
            for _ in range(20):
                result = program.run(l1_loss_backward, ONE, result, there)
            program.fetch(result)
        assert result.numpy().shape == X.shape
        assert len(log.calls("ExecuteProgram", 1)) == 1
        assert not log.calls("Execute", 0)
        assert not log.calls("Download", 0)


@BOTH_SENDERS
def test_collected_remotes_are_released_in_one_call_by_the_next_release_or_when_idle(
    server: ServerProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.session() as session:
        remotes = [session.put(X) for _ in range(100)]
        log = Log(server)
        remotes.clear()
        session.release([session.put(X), session.put(X)])
        assert len(log.calls("Release", 1)) == 1
        for _ in range(80):
            session.put(np.zeros(1 << 20, np.uint8))  # so many bytes do not wait
        assert len(log.calls("Release", 2)) == 2
    monkeypatch.setattr(Home, "_pause", lambda _: 0.05)
    with client.session() as session:
        log = Log(server)
        session.put(X)
        assert log.calls("Release", 1)


def test_a_program_that_has_no_room_in_a_message_says_what_to_do(client: Client) -> None:
    large = np.zeros(3 << 20, np.float32)
    with client.session() as session:
        program = session.program()
        for _ in range(2):
            program.run(l1_loss_backward, ONE, large, large)
        with pytest.raises(TooLargeError, match="max_message_bytes"), program:
            pass


@BOTH_SENDERS
def test_calls_larger_than_a_message_take_handles_beside_chunks(client: Client) -> None:
    large = np.random.default_rng(17).random(6 << 20, np.float32)
    expected = client.run(l1_loss_backward, ONE, large, large * 2)
    with client.session() as session:
        there = session.put(large * 2)
        assert client.run(l1_loss_backward, ONE, large, there).tobytes() == expected.tobytes()
        kept = session.run(l1_loss_backward, ONE, large, there)
        assert kept.numpy().tobytes() == expected.tobytes()


def test_a_digest_that_nobody_has_is_missing(client: Client) -> None:
    """What ``put`` asks first; it sends the bytes then."""
    with client.session() as session:
        home = session._home
        upload = Upload(bytes(range(16)), bytes(100), bytes(32), by_digest=True)
        with pytest.raises(MissingError):
            finished(client._transport.sessions.upload(home, upload, 9.0, "", None))

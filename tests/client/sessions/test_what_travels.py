"""How many messages and bytes a session costs: what a server says of them in its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.client.pool.heard import until

import npucall_client
from npucall.errors import TooLargeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.sessions import release
from npucall_client.sessions.session_link import SessionLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client
    from npucall_client.testing import Served

pytest.importorskip("npucall_server")

from tests.server.serving import Served, serving

from npucall_server.devices.cpu import CpuDevice

BOTH_SENDERS = pytest.mark.usefixtures("sender")
ONE = np.ones((), np.float32)
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)


@pytest.fixture
def server() -> Iterator[Served]:
    with serving(CpuDevice("Ascend910B1", "documented")) as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with npucall_client.connect(server.target) as client:
        yield client


def calls(server: Served, method: str, count: int) -> list[dict[str, Any]]:
    """The calls of a method that it has answered, once there are so many."""

    def found() -> list[dict[str, Any]]:
        return [line for line in server.lines() if line.get("method") == method]

    until(lambda: len(found()) >= count, f"{count} {method}")
    return found()


@BOTH_SENDERS
def test_a_constant_that_is_known_travels_as_its_digest(server: Served, client: Client) -> None:
    """What is no constant is not remembered."""
    constant = np.random.default_rng(1).random(4 << 20, np.float32)
    sent: list[int] = []
    with client.session() as session:
        session.put(constant)
        session.put(constant, constant=True, progress=lambda now, *_: sent.append(now))
    assert sent[-1] == constant.nbytes
    assert len(calls(server, "Upload", 3)) == 3
    with npucall_client.connect(server.target) as another, another.session() as session:
        again = session.put(constant, constant=True, progress=lambda now, *_: sent.append(-1))
        (found,) = calls(server, "Upload", 4)[3:]
        assert again.numpy().tobytes() == constant.tobytes()
    assert -1 not in sent
    assert found["request_bytes"] < 64 * 1024


@BOTH_SENDERS
def test_a_server_that_remembers_nothing_is_not_asked_for_a_digest() -> None:
    constant = np.zeros(1 << 20, np.uint8)
    with (
        serving(CpuDevice("Ascend910B1", "documented"), digest_cache_bytes=0) as server,
        npucall_client.connect(server.target) as client,
        client.session() as session,
    ):
        session.put(constant, constant=True)
        assert calls(server, "Upload", 1)[0]["request_bytes"] == constant.nbytes


@BOTH_SENDERS
def test_a_program_is_one_call(server: Served, client: Client) -> None:
    with client.session() as session:
        there = session.put(X)
        with session.program() as program:
            result = there
            for _ in range(20):
                result = program.run(l1_loss_backward, ONE, result, there)
            program.fetch(result)
        assert result.numpy().shape == X.shape
        assert len(calls(server, "ExecuteProgram", 1)) == 1
        assert not calls(server, "Execute", 0)
        assert not calls(server, "Download", 0)


@BOTH_SENDERS
def test_collected_remotes_are_released_in_one_call_by_the_next_release_or_when_idle(
    server: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "_MANY_BYTES", 8 << 20)
    with client.session() as session:
        remotes = [session.put(X) for _ in range(100)]
        remotes.clear()
        session.release([session.put(X), session.put(X)])
        assert len(calls(server, "Release", 1)) == 1
        for _ in range(10):
            session.put(np.zeros(1 << 20, np.uint8))  # so many bytes do not wait
        assert len(calls(server, "Release", 2)) == 2
    monkeypatch.setattr(SessionLink, "_pause", lambda _: 0.05)
    with client.session() as session:
        session.put(X)
        assert calls(server, "Release", 3)


def test_a_program_that_has_no_room_in_a_message_says_what_to_do(client: Client) -> None:
    """Over gRPC; in frames there is room for more."""
    large = np.zeros(3 << 20, np.float32)
    only_grpc = npucall_client.connect(client.target, carrier="grpc")

    def recorded(session: Any) -> tuple[Any, Any]:
        program = session.program()
        program.run(l1_loss_backward, ONE, large, large)
        return program, program.run(l1_loss_backward, ONE, large, large)

    with only_grpc, only_grpc.session() as refused, client.session() as taken:
        program, _ = recorded(refused)
        with pytest.raises(TooLargeError, match="max_message_bytes"), program:
            pass
        program, last = recorded(taken)
        with program:
            pass
        assert not last.numpy().any()


@BOTH_SENDERS
def test_calls_larger_than_a_message_take_handles_beside_chunks(client: Client) -> None:
    large = np.random.default_rng(17).random(6 << 20, np.float32)
    expected = client.run(l1_loss_backward, ONE, large, large * 2)
    with client.session() as session:
        there = session.put(large * 2)
        assert client.run(l1_loss_backward, ONE, large, there).tobytes() == expected.tobytes()
        kept = session.run(l1_loss_backward, ONE, large, there)
        assert kept.numpy().tobytes() == expected.tobytes()

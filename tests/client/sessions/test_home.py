"""What a session does about errors, releases, forks and the end of its process."""

import math
import os
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.client import fake_server
from tests.client.pool.heard import until
from tests.conftest import HAS_SERVER
from tests.rows import each

import npucall_client
from npucall.errors import (
    HandleLostError,
    HandleMemoryError,
    NpucallError,
    ServerUnreachableError,
    SessionExpiredError,
    WrongServerError,
)
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_client.sending.session_transport import HandleUpload, Opened
from npucall_client.sending.threads import THREADS
from npucall_client.sessions.release import Collected
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.session_link import SessionLink

ONE = np.ones((), np.float32)


class FakeSessions:
    """A transport that keeps nothing; records what is asked of it, and raises what it is told."""

    def __init__(self, lease: float = math.inf) -> None:
        self.lease = lease
        self.asked: list[Any] = []
        self.opened = 0
        self.errors: list[Exception] = []
        self.is_away = False

    async def program_steps(self) -> int:
        return 0

    async def remembers(self) -> bool:
        return False

    async def open(
        self, request: Request, lease: float, budget: int, *, refillable: bool
    ) -> Opened:
        self.opened += 1
        return Opened(f"session {self.opened}", self.lease, budget)

    def lost(self, error: NpucallError) -> NpucallError:
        return error

    async def renew(self, request: Request) -> None:
        self.asked.append("renew")
        if self.errors:
            raise self.errors.pop(0)

    async def close(self, request: Request) -> None:
        self.asked.append("close")

    async def release(self, request: Request, handles: Sequence[bytes]) -> None:
        if self.is_away:
            raise ServerUnreachableError("away")
        self.asked.append(list(handles))

    async def upload(self, request: Request, upload: HandleUpload, *_: Any) -> None:
        self.asked.append((request.session_id, upload.handle))

    async def call(self, _: object, attempts: Attempts) -> str:
        assert attempts.left > 0
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def opened(fake: Any, *, refill: bool = False) -> SessionLink:
    home = SessionLink(fake, "host", 0.0, 0, 9.0, refill=refill, sender=THREADS, remote=Remote)
    return finished(home.open())


class Here:
    """The only server."""

    instance, target = "", "here"

    @property
    def only(self) -> Any:
        return self


async def attempt(home: SessionLink, call: Callable[..., Any]) -> Any:
    here: Any = Here()
    return await Attempts(Request(9.0, home=home)).run(here, call)


def attempted(home: SessionLink, call: Callable[..., Any]) -> Any:
    return finished(attempt(home, call))


def uploaded(home: SessionLink, *handles: bytes) -> None:
    for handle in handles:
        finished(home.upload(Request(9.0), HandleUpload(handle, b"data"), None))


def test_a_full_server_is_given_back_what_was_collected_and_asked_once_more() -> None:
    fake = FakeSessions()
    home = opened(fake)
    home.collect(b"a", 1)
    home.collect(b"b", 1)
    fake.errors = [HandleMemoryError("full")]
    assert attempted(home, fake.call) == "done"
    assert fake.asked == [[b"a", b"b"]]
    fake.errors = [HandleMemoryError("full"), HandleMemoryError("full")]
    with pytest.raises(HandleMemoryError):
        attempted(home, fake.call)  # there is nothing to give back
    assert len(fake.errors) == 1


LOST = HandleLostError, SessionExpiredError, WrongServerError


@each("kind", LOST)
def test_what_ended_the_session_is_raised_from_then_on(kind: type[Exception]) -> None:
    fake = FakeSessions()
    home = opened(fake)
    fake.errors = [kind("gone")]
    for _ in range(3):
        with pytest.raises(kind, match="gone"):
            attempted(home, fake.call)
    finished(home.close())
    assert (fake.asked, fake.opened) == ([], 1)  # there is nothing to close


@each("kind", LOST)
def test_refill_opens_another_session_under_the_same_handles(
    kind: type[NpucallError], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="npucall_client")
    fake = FakeSessions()
    home = opened(fake, refill=True)
    uploaded(home, b"kept", b"gone", b"collected")
    home.collect(b"gone", 4)
    finished(home.flush())
    home.collect(b"collected", 4)
    fake.asked.clear()
    fake.errors = [kind("gone")]
    assert attempted(home, fake.call) == "done"
    assert fake.asked == [("session 2", b"kept")]
    assert [home.proves(each) for each in (b"kept", b"gone", b"collected")] == [True, False, False]
    again = f"a session on {home.host}: {kind.reason}; 1 arrays are sent again"
    assert again in [record.getMessage() for record in caplog.records]


def test_calls_name_the_session_that_is_filled_again_only_once_it_is_full() -> None:
    """Or a call of another thread finds a handle empty that has yet to be filled."""
    fake, named = FakeSessions(), []
    home = opened(fake, refill=True)
    uploaded(home, b"one", b"other")

    async def upload(request: Request, *_: Any) -> None:
        named.append((request.session_id, home.id, home.filling))

    fake.upload, fake.errors = upload, [HandleLostError("gone")]  # type: ignore[method-assign,assignment]
    assert attempted(home, fake.call) == "done"
    assert named == [("session 2", "session 1", 1)] * 2
    assert (home.id, home.filling) == ("session 2", 2)


def test_a_batch_that_a_server_did_not_get_goes_with_the_next_one() -> None:
    fake = FakeSessions()
    home = opened(fake)
    home.collect(b"a", 1)
    fake.is_away = True
    assert finished(home.renew())
    home.collect(b"b", 1)
    fake.is_away = False
    assert finished(home.renew())
    assert fake.asked == [[b"a", b"b"]]


def test_two_calls_that_find_the_session_lost_open_one() -> None:
    fake = FakeSessions()
    home = opened(fake, refill=True)

    async def both(*_: object) -> str:
        if fake.opened == 1:
            fake.errors = [HandleLostError("gone")]
            assert await attempt(home, fake.call) == "done"
            raise HandleLostError("gone")
        return "done"

    assert attempted(home, both) == "done"
    assert fake.opened == 2


def test_an_idle_session_is_renewed_three_times_a_lease_until_nobody_has_it() -> None:
    fake = FakeSessions(lease=0.03)
    home = opened(fake)
    assert (home.lease, home._pause()) == (0.03, 0.01)
    until(lambda: fake.asked.count("renew") > 2, "it is renewed")
    task: Any = home._task
    del home
    assert finished(task.join(fake_server.PATIENCE))


def test_the_idle_thread_sees_that_the_session_was_lost() -> None:
    fake = FakeSessions(lease=0.03)
    home = opened(fake)
    fake.errors = [HandleLostError("gone")]
    task: Any = home._task
    assert finished(task.join(fake_server.PATIENCE))
    with pytest.raises(HandleLostError, match="gone"):
        attempted(home, fake.call)


def test_collected_handles_are_many_by_number_or_by_bytes() -> None:
    collected = Collected()
    assert not collected.is_much()
    for _ in range(511):
        collected.add(b"x", 8)
    assert not collected.is_much()
    collected.add(b"x", 8)
    assert collected.is_much()
    assert len(collected.take()) == 512
    assert not collected.is_much()
    assert collected.take() == []
    collected.add(b"x", 64 << 20)
    assert collected.is_much()


@pytest.mark.usefixtures("sender", "no_collector")
def test_a_program_that_nobody_has_frees_its_arrays_at_once() -> None:
    class Array(np.ndarray):
        pass

    with npucall_client.connect("local:") as client, client.session() as session:
        array = np.zeros(4, np.float32).view(Array)
        watched = weakref.ref(array)
        with session.program() as program:
            result = program.run(l1_loss_backward, ONE, array, array)
        del array, program
        assert watched() is None
        assert result.numpy().shape == (4,)


def test_a_server_without_sessions_says_which_setting_allows_them() -> None:
    with (
        fake_server.connected(fake_server.FakeServer()) as client,
        pytest.raises(HandleMemoryError, match="handle_memory"),
    ):
        client.session()


@pytest.mark.more
def test_a_forked_process_is_told_to_open_its_own(npucall_server: str) -> None:
    program = f"""
        import os, sys
        import numpy as np
        import npucall_client
        from npucall.errors import CancelledError
        client = npucall_client.connect({npucall_server!r})
        session = client.session(lease=20.0)
        remote = session.put(np.ones(3))
        child = os.fork()
        if not child:
            for use in remote.numpy, lambda: session.put(np.ones(3)):
                try:
                    use()
                except CancelledError as error:
                    assert "forked" in str(error)
                else:
                    os._exit(1)
            del remote
            session.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert remote.numpy().sum() == 3
        """
    ended(program)


def test_a_process_that_closes_nothing_ends(request: pytest.FixtureRequest) -> None:
    targets = ["local:", *([request.getfixturevalue("npucall_server")] if HAS_SERVER else [])]
    program = f"""
        import numpy as np
        import npucall_client
        clients = [npucall_client.connect(target) for target in {targets!r}]
        sessions = [client.session(lease=0.3) for client in clients]
        remotes = [session.put(np.ones(3)) for session in sessions for _ in range(10)]
        programs = [session.program() for session in sessions]
        """
    ended(program)


def ended(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

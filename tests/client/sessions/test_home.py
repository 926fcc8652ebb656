"""What a session does about errors, releases, forks and the end of its process."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.blocking import Blocking
from tests.client import fake_server

import npucall_client
from npucall.errors import (
    CancelledError,
    HandleLostError,
    HandleMemoryError,
    ServerUnreachableError,
    SessionExpiredError,
    WrongServerError,
)
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.senders import finished
from npucall_client.senders.threads import THREADS
from npucall_client.sessions.home import Home
from npucall_client.sessions.release import Collected
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.transport import Opened, Upload

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.usefixtures("sender")

ONE = np.ones((), np.float32)
SECONDS = 60


class Script:
    """Keeps nothing; says what is asked of it, and raises what it is told."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.opened = 0
        self.errors: list[Exception] = []
        self.is_away = False

    async def program_steps(self) -> int:
        return 0

    async def remembers(self) -> bool:
        return False

    async def open(self, lease: float, budget: int, timeout: float) -> Opened:
        self.opened += 1
        return Opened(f"session {self.opened}", math.inf, budget)

    async def renew(self, home: Home, timeout: float) -> None:
        self.asked.append("renew")

    async def close(self, home: Home, timeout: float) -> None:
        self.asked.append("close")

    async def release(self, home: Home, handles: Sequence[bytes], timeout: float) -> None:
        if self.is_away:
            raise ServerUnreachableError("away")
        self.asked.append(list(handles))

    async def upload(self, home: Home, upload: Upload, *_: Any) -> None:
        self.asked.append((home.id, upload.handle))

    async def call(self, seconds: float) -> str:
        assert seconds > 0
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def home_of(script: Any, *, refill: bool = False) -> Any:
    home = Home(script, "host", 0.0, 0, 9.0, refill=refill, sender=THREADS, remote=Remote)
    return Blocking(finished(home.open()))


def test_a_full_server_is_given_back_what_was_collected_and_asked_once_more() -> None:
    script = Script()
    home = home_of(script)
    home.collect(b"a", 1)
    home.collect(b"b", 1)
    script.errors = [HandleMemoryError("full")]
    assert home.attempt(script.call, 9.0) == "done"
    assert script.asked == [[b"a", b"b"]]
    script.errors = [HandleMemoryError("full"), HandleMemoryError("full")]
    with pytest.raises(HandleMemoryError):
        home.attempt(script.call, 9.0)  # there is nothing to give back
    assert len(script.errors) == 1


@pytest.mark.parametrize("kind", [HandleLostError, SessionExpiredError, WrongServerError])
def test_what_ended_the_session_is_raised_from_then_on(kind: type[Exception]) -> None:
    script = Script()
    home = home_of(script)
    script.errors = [kind("gone")]
    for _ in range(3):
        with pytest.raises(kind, match="gone"):
            home.attempt(script.call, 9.0)
    home.close()
    assert script.asked == []  # there is nothing to close


@pytest.mark.parametrize("kind", [HandleLostError, SessionExpiredError])
def test_refill_opens_another_session_under_the_same_handles(kind: type[Exception]) -> None:
    script = Script()
    home = home_of(script, refill=True)
    home.upload(Upload(b"kept", b"data"), 9.0, "", None)
    home.upload(Upload(b"gone", b"data"), 9.0, "", None)
    home.collect(b"gone", 4)
    home.flush()
    script.asked.clear()
    script.errors = [kind("gone")]
    assert home.attempt(script.call, 9.0) == "done"
    assert script.asked == [("session 2", b"kept")]
    assert home.proves(b"kept")
    assert not home.proves(b"gone")


def test_what_was_collected_before_the_session_was_lost_is_not_filled_again() -> None:
    script = Script()
    home = home_of(script, refill=True)
    home.upload(Upload(b"gone", b"data"), 9.0, "", None)
    home.collect(b"gone", 4)
    script.errors = [HandleLostError("gone")]
    assert home.attempt(script.call, 9.0) == "done"
    assert script.asked == [("session 1", b"gone")]


def test_a_batch_that_a_server_did_not_get_goes_with_the_next_one() -> None:
    script = Script()
    home = home_of(script)
    home.collect(b"a", 1)
    script.is_away = True
    assert home.renew()
    home.collect(b"b", 1)
    script.is_away = False
    assert home.renew()
    assert script.asked == [[b"a", b"b"]]


def test_refill_does_not_move_to_another_server() -> None:
    script = Script()
    home = home_of(script, refill=True)
    script.errors = [WrongServerError("there")]
    for _ in range(2):
        with pytest.raises(WrongServerError):
            home.attempt(script.call, 9.0)
    assert script.opened == 1


def test_two_calls_that_find_the_session_lost_open_one() -> None:
    script = Script()
    home = home_of(script, refill=True)

    async def both(seconds: float) -> str:
        if script.opened == 1:
            script.errors = [HandleLostError("gone")]
            assert await home.awaited.attempt(script.call, seconds) == "done"
            raise HandleLostError("gone")
        return "done"

    assert home.attempt(both, 9.0) == "done"
    assert script.opened == 2


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


def test_a_program_that_nobody_has_frees_its_arrays_at_once() -> None:
    import weakref

    class Array(np.ndarray):  # type: ignore[type-arg]
        pass

    gc.collect()
    gc.disable()
    try:
        with npucall_client.connect("local:") as client, client.session() as session:
            array = np.zeros(4, np.float32).view(Array)
            watched = weakref.ref(array)
            with session.program() as program:
                result = program.run(l1_loss_backward, ONE, array, array)
            del array, program
            assert watched() is None
            assert result.numpy().shape == (4,)
    finally:
        gc.enable()


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
        session = client.session(lease=1.0)
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


@pytest.mark.threads("a child process calls")
@pytest.mark.parametrize("target", ["local:", "a server"])
def test_a_process_that_closes_nothing_ends(target: str, request: pytest.FixtureRequest) -> None:
    if target == "a server":
        pytest.importorskip("npucall_server")
    where = request.getfixturevalue("npucall_server") if target == "a server" else target
    program = f"""
        import numpy as np
        import npucall_client
        client = npucall_client.connect({where!r})
        session = client.session(lease=0.3)
        remotes = [session.put(np.ones(3)) for _ in range(10)]
        program = session.program()
        """
    ended(program)


def ended(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_session_of_a_closed_client_does_not_open() -> None:
    client = npucall_client.connect("local:")
    client.close()
    with pytest.raises(CancelledError):
        client.session()

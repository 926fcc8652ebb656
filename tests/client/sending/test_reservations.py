"""client.reserve and npucall reserve: a device alone, renewed in the background."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.pool.heard import PATIENCE, until
from tests.end_to_end.wire import server_here
from tests.rows import each

import npucall_client
from npucall.errors import (
    CancelledError,
    DrainingError,
    NpucallError,
    ReservedError,
    ServerUnreachableError,
)
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client
from npucall_client.sending.request import Request
from npucall_client.sending.reservations import Renewal, ServerGrant
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS

BOTH_SENDERS = pytest.mark.usefixtures("sender")

ONE = np.ones(4, np.float32)
COMMAND = [sys.executable, "-c", "from npucall_client.commands import main; main()"]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    core = pytest.importorskip("npucall_server.serving.core")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(core, "GAP_SECONDS", 0.0)
        with server_here() as server:
            yield server.address


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with npucall_client.connect(target) as client:
        yield client


def run(client: Client) -> None:
    client.run(l1_loss_backward, ONE, ONE, ONE)


def npucall(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **environment},
    )


def python(text: str) -> list[str]:
    return ["--", sys.executable, "-c", text]


def plan(client: Client) -> None:
    client.plan(l1_loss_backward, ONE, ONE, ONE)


def submit(client: Client) -> None:
    with client.pipeline() as calls:
        calls.submit(l1_loss_backward, ONE, ONE, ONE).result()


@BOTH_SENDERS
def test_calls_pipelines_and_streams_of_who_reserved_run_alone(client: Client, target: str) -> None:
    ways = run, plan, submit
    with (
        client.reserve(60) as quiet,
        npucall_client.connect(target, stream_from=0, wait=False) as other,
    ):
        for way in ways:
            for mine in quiet, client, quiet.options(timeout=10.0), client.options(timeout=10.0):
                way(mine)
            with pytest.raises(
                ReservedError, match=r"^\S+ has reserved the device for \d+ s more;"
            ):
                way(other)
        assert 0 < quiet.remaining <= 60
        info = client.server_info().reservation
        assert 0 < info.ends_seconds <= 60
        with pytest.raises(ValueError, match="has a reservation already"):
            client.reserve(60)
    run(client)
    assert quiet.remaining == 0
    with pytest.raises(CancelledError, match="released"):
        run(quiet)
    with client.reserve(60) as again:  # who released the device may have it again
        quiet.close()
        run(client)
        assert again.remaining > 0


@BOTH_SENDERS
def test_a_session_that_was_opened_before_works_under_the_reservation(client: Client) -> None:
    with client.session() as session, client.options(timeout=5.0).session() as other:
        with client.reserve(60):
            for each_session in session, other:
                remote = each_session.options(timeout=5.0).put(ONE, timeout=5.0)
                each_session.run(l1_loss_backward, remote, remote, remote)
                np.testing.assert_array_equal(remote.numpy(timeout=5.0), ONE)
        session.put(ONE)


def test_calls_of_others_wait_for_its_end(client: Client, target: str) -> None:
    def refused() -> int:
        return sum(line.refusals["RESERVED"] for line in client.usage().lines)

    before = refused()
    with npucall_client.connect(target) as other, ThreadPoolExecutor(2) as pool:
        with client.reserve(600):
            waiting = [pool.submit(way, other) for way in (run, submit)]
            until(lambda: refused() >= before + 2)
            assert not any(each.done() for each in waiting)
        for each in waiting:
            each.result(PATIENCE)


@BOTH_SENDERS
def test_a_second_reservation_waits_for_the_first(client: Client, target: str) -> None:
    with npucall_client.connect(target) as other, client.reserve(60):
        with pytest.raises(ReservedError) as raised:
            other.reserve(60)
        assert raised.value.details["position"] == "1"
        assert raised.value.retry_after is not None
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.reserve, 60, wait=PATIENCE)
            client.release_reservation()
            with waiting.result(PATIENCE) as quiet:
                run(quiet)


def test_a_child_calls_under_its_parents_reservation(client: Client, target: str) -> None:
    with (
        client.reserve(60) as quiet,
        npucall_client.connect(target, reservation=quiet.key, stream_from=0) as child,
    ):
        run(child)
        with pytest.raises(ValueError, match="has a reservation already"):
            child.reserve(10)
        with pytest.raises(ValueError, match="has a reservation already"):
            quiet.reserve(10)
        client.release_reservation()
        with pytest.raises(ReservedError, match="the reservation has ended"):
            run(quiet)


def test_a_call_whose_bytes_come_slowly_gives_way_to_a_reservation(target: str) -> None:
    """It is computed as they come, so it has begun to run."""
    slowly, go_on = threading.Event(), threading.Event()

    def stop(*_: int) -> None:
        slowly.set()
        assert go_on.wait(PATIENCE)

    large = np.ones(2**21, np.float32)
    with (
        npucall_client.connect(target, wait=False) as slow,
        npucall_client.connect(target) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        uploads: Any = slow.options(progress=stop)
        call = pool.submit(uploads.run, l1_loss_backward, large, large, large)
        assert slowly.wait(PATIENCE)
        with client.reserve(60) as quiet:
            go_on.set()
            with pytest.raises(ReservedError):
                call.result(PATIENCE)
            run(quiet)


class Server:
    """Renews as the test says, and counts."""

    def __init__(self, *answers: NpucallError | None) -> None:
        self.answers, self.renewals, self.released = list(answers), 0, ""
        self.asked_often = threading.Event()

    async def renew(self, request: Request, key: str) -> ServerGrant:
        self.renewals += 1
        if self.renewals > len(self.answers):
            self.asked_often.set()
            return ServerGrant(key, 1000.0, 0.01)
        answer = self.answers[self.renewals - 1]
        if answer is not None:
            raise answer
        return ServerGrant(key, 1000.0, 0.01)

    async def release(self, request: Request, key: str) -> None:
        self.released = key
        raise ServerUnreachableError("gone")


def test_it_goes_on_renewing_while_the_server_does_not_answer() -> None:
    server = Server(ServerUnreachableError("gone"), None, DrainingError("going"), None)
    renewal = Renewal(server, ServerGrant("key", 500.0, 0.01), THREADS)
    assert server.asked_often.wait(PATIENCE)
    renewal.check()
    assert 0 < renewal.remaining <= 500.0
    finished(renewal.close())
    finished(renewal.close())
    assert server.released == "key"


def test_it_is_lost_where_the_server_says_so() -> None:
    server = Server(ReservedError("it has ended"))
    renewal = Renewal(server, ServerGrant("key", 500.0, 0.01), THREADS)
    finished(renewal._task.join(PATIENCE))
    assert renewal.remaining == 0
    with pytest.raises(ReservedError, match="it has ended"):
        renewal.check()
    finished(renewal.close())


CHILD = """
import numpy, npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward
one = numpy.ones(4, numpy.float32)
with npucall_client.connect() as client:
    client.run(l1_loss_backward, one, one, one)
    print("ran", client.server_info().HasField("reservation"))
raise SystemExit(7)
"""


KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.more
@each(("script", "ended"), [(CHILD, ("ran True\n", "", 7)), (KILLED, ("", "", 128 + 9))])
def test_the_command_runs_another_with_the_device_and_answers_its_exit_code(
    target: str, script: str, ended: tuple[str, str, int]
) -> None:
    done = npucall("reserve", "60", "--target", target, *python(script))
    assert (done.stdout, done.stderr, done.returncode) == ended
    assert "reserved" not in npucall("info", target).stdout


@pytest.mark.more
def test_the_command_is_refused_while_others_have_it(client: Client, target: str) -> None:
    with client.reserve(60):
        shown = npucall("info", target).stdout
        assert "by ipv4:127.0.0.1, for" in " ".join(shown.split())
        done = npucall("reserve", "60", *python("print('ran')"), NPUCALL_TARGET=target)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "FAILED_PRECONDITION, RESERVED" in done.stderr
        assert npucall("release", target).returncode == 0
    run(client)


@pytest.mark.more
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        pytest.param(signal.SIGUSR1, marks=pytest.mark.long),
    ],
)
def test_signals_reach_the_command(target: str, number: signal.Signals, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(5))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)\n"
    )
    arguments = [*COMMAND, "reserve", "60", "-t", target, *python(script)]
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)
    until(ready.exists)
    process.send_signal(number)
    assert process.wait(PATIENCE) == 5

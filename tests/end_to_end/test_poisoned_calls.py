"""A call that ends its server each time: it ends three, and only who was beside it all three times
shares its fate.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.client.pool.heard import lasting_port
from tests.mortal.npucall_mortal import CRASHES, KILLS, TAKES_LONG

import npucall_client
from npucall.dtypes import AnyArray
from npucall.errors import PoisonedCallError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client

from .wire import until

PATIENCE = 240.0
ONE = np.ones((), np.float32)
INNOCENTS = 8
KILLED = 2
MEMBERS = 3
MORTAL = Path(__file__).parents[1] / "mortal"


class Keeper:
    """Starts a server at one address, again where it ends, on a device that some calls end."""

    def __init__(self, folder: Path, lanes: int) -> None:
        self.target = f"127.0.0.1:{lasting_port()}"
        self.endings: list[int] = []
        """Exit codes of the processes that ended, in order."""
        self._folder, self._ready = folder, folder / "ready"
        self._command = [
            sys.executable, "-m", "npucall_server", "--listen", self.target,
            "--device", f"mortal:{lanes}", "--ready-file", str(self._ready),
        ]  # fmt: skip
        metadata = folder / "npucall_mortal-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: npucall-mortal\nVersion: 1.0\n")
        points = "[npucall_server.devices]\nmortal = npucall_mortal:open_mortal\n"
        (metadata / "entry_points.txt").write_text(points)
        self._stopping = threading.Event()
        self._process = self._started()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def wait_until_ready(self, endings: int = 0) -> None:
        """Until so many processes have ended, and the one that runs now answers."""
        until(lambda: len(self.endings) >= endings and self._ready.exists(), "a server answers")

    def kill(self) -> None:
        """Ends the process that runs now."""
        self._process.kill()

    def stop(self) -> None:
        """Ends the server for good."""
        self._stopping.set()
        self._process.kill()
        self._thread.join()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            code = self._process.wait()
            if not self._stopping.is_set():
                self._process = self._started()
                self.endings.append(code)
        self._process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        self._ready.unlink(missing_ok=True)
        path = os.pathsep.join([str(self._folder), str(MORTAL)])
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(  # our own server
                self._command, stderr=log, env={**os.environ, "PYTHONPATH": path}
            )


@contextmanager
def kept_server(lanes: int = 1) -> Iterator[Keeper]:
    """A server that a keeper keeps, once it answers."""
    with tempfile.TemporaryDirectory(prefix="npucall-kept-") as folder:
        keeper = Keeper(Path(folder), lanes)
        try:
            keeper.wait_until_ready()
            yield keeper
        finally:
            keeper.stop()


def arrays(first: int, elements: int) -> tuple[AnyArray, AnyArray]:
    """One in each of the first; zeros in each of the second."""
    shape = (first, max(1, elements // first))
    return np.ones(shape, np.float32), np.zeros(shape, np.float32)


def unary(client: Client, first: int) -> AnyArray:
    return client.run(l1_loss_backward, ONE, *arrays(first, 1024), reduction=2)


def in_chunks(client: Client, first: int) -> AnyArray:
    return client.run(l1_loss_backward, ONE, *arrays(first, 2**20), reduction=2)


def in_a_pipeline(client: Client, first: int) -> AnyArray:
    with client.pipeline() as pipeline:
        submitted = pipeline.submit(l1_loss_backward, ONE, *arrays(first, 1024), reduction=2)
        found: AnyArray = submitted.result()
    return found


WAYS = {"unary": unary, "in chunks": in_chunks, "in a pipeline": in_a_pipeline}


def connected(*keepers: Keeper) -> Client:
    targets = ",".join(keeper.target for keeper in keepers)
    target = f"pool:{targets}" if len(keepers) > 1 else targets
    return npucall_client.connect(target, timeout=PATIENCE, stream_from=2**20)


@pytest.mark.more
@pytest.mark.parametrize("how", [KILLS, pytest.param(CRASHES, marks=pytest.mark.long)])
def test_a_call_that_ends_its_server_ends_three_of_them_and_is_told_so(how: int) -> None:
    with kept_server() as alone, connected(alone) as client:
        for number, run in enumerate(WAYS.values(), 1):
            with pytest.raises(
                PoisonedCallError, match="server that ran this call ended"
            ) as caught:
                run(client, how)
            alone.wait_until_ready(3 * number)
            assert len(alone.endings) == 3 * number
            assert caught.value.details["servers"].count(alone.target) == 3
            assert caught.value.details["operator"] == "aclnnL1LossBackward"
        assert np.unique(unary(client, 4)).tolist() == [1.0]
        ending = -signal.SIGKILL if how == KILLS else -signal.SIGSEGV
        assert set(alone.endings) == {ending}


@contextmanager
def innocents(*keepers: Keeper) -> Iterator[None]:
    """Others who call meanwhile: each call is right, or was on three servers that ended."""
    over = threading.Event()

    def works(run: Callable[[Client, int], AnyArray]) -> int:
        count = 0
        with connected(*keepers) as client:
            while not (over.is_set() and count):
                try:
                    assert np.unique(run(client, 4)).tolist() == [1.0]
                    count += 1
                except PoisonedCallError as error:
                    assert error.details["servers"].count("instance") == 3  # noqa: PT017
        return count

    ways = list(WAYS.values())
    with ThreadPoolExecutor(INNOCENTS) as threads:
        working = [threads.submit(works, ways[number % 3]) for number in range(INNOCENTS)]
        try:
            yield
        finally:
            over.set()
        assert all(each.result(PATIENCE) > 0 for each in working)


@pytest.mark.more
@pytest.mark.parametrize("lanes", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "way", ["unary", pytest.param("in chunks", marks=pytest.mark.long), "in a pipeline"]
)
def test_others_go_on_beside_a_call_that_ends_its_server(way: str, lanes: int) -> None:
    with kept_server(lanes=lanes) as keeper, innocents(keeper):
        with connected(keeper) as client, pytest.raises(PoisonedCallError):
            WAYS[way](client, KILLS)
        keeper.wait_until_ready(3)
        assert keeper.endings.count(-signal.SIGKILL) == 3


@pytest.mark.more
@pytest.mark.usefixtures("sender_in_sweeps")
def test_in_a_pool_three_members_end_and_others_go_on() -> None:
    with ExitStack() as stack:
        members = [stack.enter_context(kept_server()) for _ in range(MEMBERS)]

        def endings(least: int) -> int:
            """Once so many have ended, and all run again."""
            until(lambda: sum(len(each.endings) for each in members) >= least, "members ended")
            for each in members:
                each.wait_until_ready()
            return sum(len(each.endings) for each in members)

        with connected(*members) as client:
            for number in range(1, 4):
                with pytest.raises(PoisonedCallError) as caught:
                    unary(client, KILLS)
                assert caught.value.details["operator"] == "aclnnL1LossBackward"
                assert endings(3 * number) == 3 * number
                assert np.unique(unary(client, 4)).tolist() == [1.0]
            with innocents(*members), pytest.raises(PoisonedCallError):
                unary(client, KILLS)
            assert endings(12) == 12


@pytest.mark.long
def test_calls_that_wait_outlive_two_servers_that_somebody_kills() -> None:
    """One call at a time has the device for a second; the others wait, and servers end."""
    schedule = random.Random(16)
    with kept_server() as keeper, ExitStack() as open_, ThreadPoolExecutor(INNOCENTS) as threads:
        clients = [open_.enter_context(connected(keeper)) for _ in range(INNOCENTS)]
        waiting = [threads.submit(unary, client, TAKES_LONG) for client in clients]
        for killed in range(KILLED):
            keeper.wait_until_ready(killed)
            threading.Event().wait(schedule.uniform(0.0, 2.5))
            keeper.kill()
        assert [each.exception(PATIENCE) for each in waiting] == [None] * INNOCENTS

"""Servers that are killed, drain or stop under callers of every kind: no call is lost, none wrong.

Calls have no side effects, so the client repeats them.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np
import pytest
from tests.npu import running_npu_server
from tests.summary import figures

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client import Client
from npucall_client.sending.paths import OPTIONS
from npucall_client.testing import running_server

from . import wire
from .proxies import cutting

Judge = Callable[[Any, int], None]
"""Hears an answer, and the number that it was asked for."""

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory")
pytestmark = pytest.mark.filterwarnings(
    "ignore:the server no longer knows the shared memory:RuntimeWarning"
)
ENDS = int(os.environ.get("ENDS", "100"))
"""Kills, and as many drains, in the long test; the full one has 500, and takes an hour."""
ONE = np.ones((), np.float32)
SMALL, LARGE = 256, 2**19
STREAM_FROM = 2**20
"""Less than the bytes of a LARGE tensor, so that it travels in chunks."""


class Load:
    """Callers that call until they are stopped, each in a thread with a client of its own.

    ``kinds``: one a caller, of the names of ``KINDS``.
    """

    def __init__(self, target: str, *kinds: str) -> None:
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self._target = target
        self._ended = threading.Event()
        self._steps = [0] * len(kinds)
        self._threads = [
            threading.Thread(target=self._call, args=(number, kind))
            for number, kind in enumerate(kinds)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_for_answers()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def wait_for_answers(self, count: int = 1, within: float = wire.PATIENCE) -> None:
        """Returns once each caller has so many further answers, or has lost as many calls."""
        before = [steps + count for steps in self._steps]
        wire.until(
            lambda: all(now >= then for now, then in zip(self._steps, before, strict=True)),
            "each caller gets an answer",
            within,
        )

    def check(self) -> None:
        figures(f"{sum(self._steps):,} calls", f"{len(self.lost)} lost", f"{len(self.wrong)} wrong")
        assert (self.wrong[:5], self.lost[:5]) == ([], [])

    def _call(self, caller: int, kind: str) -> None:
        numbers = itertools.cycle(range(1000 * caller + 1, 1000 * caller + 1000))  # nobody else's
        while not self._ended.is_set():
            try:
                self._call_until_one_is_lost(caller, kind, numbers)
            except Exception as error:  # noqa: BLE001  # whatever it is, a call is lost
                self.lost.append(f"{kind}: {type(error).__name__}: {error}")
                self._steps[caller] += 1

    def _call_until_one_is_lost(self, caller: int, kind: str, numbers: Iterator[int]) -> None:
        with npucall_client.connect(
            self._target, stream_from=STREAM_FROM, connect_timeout=wire.PATIENCE, timeout=300.0
        ) as client:
            for _ in KINDS[kind](client, numbers, self._judge):
                self._steps[caller] += 1
                if self._ended.is_set() or kind == "newcomer":  # who connects for each call
                    return

    def _judge(self, answer: Any, number: int) -> None:
        if not (answer == -number).all():
            self.wrong.append(f"expected {-number}, found {np.unique(answer)[:5]}")


def _call_of(target: Any) -> tuple[Any, ...]:
    return kl_div_backward, ONE, target, target, 2


def _one_by_one(size: int, client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    for number in numbers:
        judge(client.run(*_call_of(np.full(size, number, np.float32))), number)
        yield


def _pipeline(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    with client.pipeline() as pipeline:
        while True:
            pending = []
            for size, number in zip((SMALL, SMALL, LARGE, SMALL), numbers, strict=False):
                call = pipeline.submit(*_call_of(np.full(size, number, np.float32)))
                pending.append((call, number))
            for call, number in pending:
                judge(call.result(), number)
                yield


def _shared(client: Client, numbers: Iterator[int], judge: Judge) -> Iterator[None]:
    while True:
        with client.shared(2**20) as memory:
            target, out = memory.empty(2**16, np.float32), memory.empty(2**16, np.float32)
            writing = client.options(outputs={"out": out})
            for number in itertools.islice(numbers, 10):
                target[:], out[:] = number, 0
                judge(writing.run(*_call_of(target)), number)
                yield


KINDS = {
    "unary": partial(_one_by_one, SMALL),
    "large": partial(_one_by_one, LARGE),
    "newcomer": partial(_one_by_one, SMALL),
    "pipeline": _pipeline,
    "shared": _shared,
}


# --- Servers that end and start again -------------------------------------------------------------


@pytest.mark.usefixtures("sender_in_sweeps")
def test_a_call_made_while_no_server_is_there_is_answered_by_the_next_one() -> None:
    """Where none comes it is an error when its timeout ends."""
    with wire.server_here() as server:
        client = npucall_client.connect(server.address)
        before = client.server_info().server.instance
    with pytest.raises(ServerUnreachableError, match=server.address):
        client.options(timeout=0.3).run(kl_div_backward, ONE, ONE, ONE)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(client.execute, kl_div_backward, ONE, ONE, ONE, reduction=2)
        with wire.server_here(server.address), client:
            result = answer.result(wire.PATIENCE)
            assert result.value.tolist() == -1.0
            assert result.server.instance != before


@LINUX
@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(1, marks=pytest.mark.more),
        pytest.param(ENDS, marks=pytest.mark.long, id="long"),
    ],
)
def test_servers_end_under_callers_of_every_kind_and_no_call_is_lost(
    tmp_path: Path, ends: int
) -> None:
    """Before: 7 lost in 100 drains, 15 in 100 kills, all where memory was asked for."""
    moments, never = random.Random(1), threading.Event()
    flag = f"--shared-memory={tmp_path}/socket"
    with ExitStack() as stack:
        server = stack.enter_context(running_server(flag))
        with Load(server.target, *KINDS, *(KINDS if ends > 1 else ())) as load:
            for number in range(2 * ends):
                never.wait(moments.uniform(0, 0.3))
                if number % 2:
                    assert server.stop() == 0
                else:
                    server.process.kill()
                    server.process.wait()
                server = stack.enter_context(running_server(flag, listen=server.target))
                load.wait_for_answers()
    load.check()


@pytest.mark.more
@pytest.mark.usefixtures("sender_in_sweeps")
def test_members_of_a_pool_end_and_start_again_and_no_call_is_lost() -> None:
    """One by signal 9, one by signal 15, under calls of every kind."""
    with ExitStack() as stack:
        members = [stack.enter_context(running_server()) for _ in range(3)]
        target = "pool:" + ",".join(member.target for member in members)
        with Load(target, "unary", "unary", "pipeline", "large") as load:
            members[0].process.kill()
            members[0].process.wait()
            load.wait_for_answers()
            again = stack.enter_context(running_server(listen=members[0].target))
            assert members[1].stop() == 0
            load.wait_for_answers()
            with npucall_client.connect(again.target) as client:
                before = client.usage().lines
                wire.until(lambda: client.usage().lines != before, "it is called again")
        load.check()


@LINUX
@pytest.mark.long
def test_a_server_that_stops_without_a_word_is_left_for_the_next_one(tmp_path: Path) -> None:
    """Its host is gone, say: connections stay open, and nothing comes. Pings find out."""
    with (
        running_server(f"--shared-memory={tmp_path}/first") as first,
        running_server(f"--shared-memory={tmp_path}/second") as second,
        cutting(first.target) as proxy,
    ):
        try:
            with Load(proxy.target, *KINDS.keys() - {"newcomer"}) as load:  # who has no connection
                first.process.send_signal(signal.SIGSTOP)
                proxy.lead_to(second.target)
                load.wait_for_answers(within=300.0)
        finally:
            first.process.kill()
    load.check()


@pytest.mark.long
def test_a_call_that_takes_long_keeps_its_connection_although_the_client_pings() -> None:
    """gRPC's servers end one on which three pings came sooner than they allow; these are 65."""
    with (
        running_server(*wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target, *OPTIONS) as channel,
    ):
        execute, request = wire.method(channel, "Execute"), wire.long_call(*wire.ENDLESS)
        error = execute.future(request, timeout=130.0, wait_for_ready=True).exception()
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


STOPPING = """
import sys, npucall_client, numpy as np
array = np.broadcast_to(np.ones(1, np.float32), (4096, 4096, 32768))
one = np.ones((), np.float32)
npucall_client.connect(sys.argv[1]).run(
    "aclnnKlDivBackward", one, self=one, target=array, reduction=2, timeout=500.0)
"""


@pytest.mark.long
def test_a_caller_that_stops_without_a_word_is_found_out_too() -> None:
    """Before: after 80 s, since gRPC's option for it does nothing alone."""
    with running_server(*wire.ENDLESS_LIMIT) as server, wire.bare_channel(server.target) as channel:
        caller = subprocess.Popen([sys.executable, "-c", STOPPING, server.target])
        try:
            wire.until(lambda: wire.calls_in_flight(channel) == 1, "its call runs")
            caller.send_signal(signal.SIGSTOP)
            wire.until(lambda: wire.calls_in_flight(channel) == 0, "it is cancelled", within=300.0)
        finally:
            caller.kill()
            caller.wait()


# --- What an NPU's server leaves behind -----------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize(
    ("generation", "finalise"), [("8.1", "aclFinalize"), ("9.x", "aclFinalizeReference")]
)
def test_an_npus_server_that_is_asked_to_stop_finishes_its_calls_and_gives_everything_back(
    tmp_path: Path, generation: str, finalise: str
) -> None:
    report = tmp_path / "report.json"
    slow = {"NPUCALL_SIM_KERNEL_US": "1000000", "NPUCALL_SIM_REPORT": str(report)}
    with (
        running_npu_server(generation=generation, **slow) as server,
        wire.bare_channel(server.target) as channel,
    ):
        execute = wire.method(channel, "Execute")
        calls = [execute.future(wire.long_call(1)) for _ in range(5)]  # on 2 lanes
        wire.until(lambda: wire.calls_in_flight(channel) == 5, "all are in")
        server.process.terminate()
        wire.until(lambda: '"event": "draining"' in server.log.read_text(), "it drains")
        assert wire.refusal(channel, "Execute", wire.long_call(1)) == "DRAINING"
        assert all(call.result(wire.PATIENCE) for call in calls)
        assert server.process.wait(wire.PATIENCE) == 0
    told = json.loads(report.read_text())
    assert (told["live_objects"], told["violations"]) == ({}, [])
    assert told["counters"]["calls"][finalise] == 1
    assert told["counters"]["calls"]["aclnnKlDivBackward"] == 5

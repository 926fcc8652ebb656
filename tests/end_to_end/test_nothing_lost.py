"""Servers that drain, die, stop or are flooded under callers of every kind: no call is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest

from npucall_client.remote.service import OPTIONS
from npucall_client.testing import running_server

from . import reset_flood, wire
from .load import KINDS, Load, Supervised, counted_repeats
from .proxies import cutting

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux shares memory"),
    pytest.mark.filterwarnings(
        "ignore:the server no longer knows the shared memory:RuntimeWarning"
    ),
]
FLOOD_SECONDS = 20
LASTING = [kind for kind in KINDS if kind != "newcomer"]
"""Callers with a connection that lasts; who has none yet waits for ``connect_timeout`` alone."""


@pytest.mark.parametrize("end", ["drain", "kill"])
@pytest.mark.parametrize("ends", [1, pytest.param(100, marks=pytest.mark.long)])
def test_servers_end_under_callers_of_every_kind_and_no_call_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int, end: str
) -> None:
    """Before: 7 lost in 100 drains, 15 in 100 kills, all where memory was asked for."""
    moments, never = random.Random(1), threading.Event()
    with (
        counted_repeats(monkeypatch) as repeats,
        Supervised(f"--shared-memory={tmp_path}/socket") as supervised,
        Load(supervised.target, *KINDS, *(KINDS if ends > 1 else ())) as load,
    ):
        for _ in range(ends):
            never.wait(moments.uniform(0, 0.3))
            getattr(supervised, end)()
            load.wait_for_answers()
    print(f"{ends} times {end}: {load}; sent once more: {dict(repeats)}")
    load.check()


@pytest.mark.long
def test_a_flood_of_calls_that_are_reset_at_once_loses_no_call_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: 10 of 60 lost in 20 s."""
    with (
        counted_repeats(monkeypatch) as repeats,
        running_server(f"--shared-memory={tmp_path}/socket") as server,
        Load(server.target, *KINDS) as load,
    ):
        script, seconds = reset_flood.__file__, str(FLOOD_SECONDS)
        flood = subprocess.run(
            [sys.executable, str(script), server.target, seconds],
            capture_output=True,
            text=True,
            check=True,
        )
        resets, connections = map(int, flood.stdout.split())
    print(f"{resets:,} resets, {connections} connections: {load}; sent once more: {dict(repeats)}")
    assert resets > 1000
    load.check()


@pytest.mark.long
def test_a_server_that_stops_without_a_word_is_left_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host is gone, say: connections stay open, and nothing comes. Pings find out."""
    with (
        counted_repeats(monkeypatch) as repeats,
        running_server(f"--shared-memory={tmp_path}/first") as first,
        running_server(f"--shared-memory={tmp_path}/second") as second,
        cutting(first.target) as proxy,
    ):
        try:
            with Load(proxy.target, *LASTING) as load:
                first.process.send_signal(signal.SIGSTOP)
                proxy.lead_to(second.target)
                load.wait_for_answers(within=60.0)
        finally:
            first.process.kill()
    print(f"a server that stops: {load}; sent once more: {dict(repeats)}")
    load.check()


@pytest.mark.long
def test_a_call_that_takes_long_keeps_its_connection_although_the_client_pings() -> None:
    """gRPC's servers end one on which three pings came sooner than they allow; these are 65."""
    with (
        running_server(wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target, *OPTIONS) as channel,
    ):
        execute, request = wire.method(channel, "Execute"), wire.long_call(*wire.ENDLESS)
        error = execute.future(request, timeout=130.0, wait_for_ready=True).exception()
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.long
def test_a_caller_that_stops_without_a_word_is_found_out_too() -> None:
    """Before: after 80 s, since gRPC's option for it does nothing alone."""
    program = (
        "import sys, npucall_client, numpy as np\n"
        "array = np.broadcast_to(np.ones(1, np.float32), (4096, 4096, 65536))\n"
        "one = np.ones((), np.float32)\n"
        "npucall_client.connect(sys.argv[1]).run(\n"
        "    'aclnnKlDivBackward', one, self=one, target=array, reduction=2, timeout=500.0)\n"
    )
    with running_server(wire.ENDLESS_LIMIT) as server, wire.bare_channel(server.target) as channel:
        caller = subprocess.Popen([sys.executable, "-c", program, server.target])
        try:
            wire.until(lambda: wire.calls_in_flight(channel) == 1, "its call runs")
            caller.send_signal(signal.SIGSTOP)
            wire.until(lambda: wire.calls_in_flight(channel) == 0, "it is cancelled", within=60.0)
        finally:
            caller.kill()
            caller.wait()

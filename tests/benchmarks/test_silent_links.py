"""Links and processes that fall silent: found soon if they are dead, and not if they are slow."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import link
import pytest
from link import Link
from tests.rows import each

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(link.missing()), reason=f"no wire: {link.missing()}"),
]
FAST = Link("fast", round_trip=0.02, rate=100e6)
SLOW = Link("slow", round_trip=0.04, rate=1.5e6, queue_seconds=2.0)
CALLER = Path(__file__).with_name("far_caller.py")
SMALL, LARGE = 64, 3 * 2**17
"""LARGE: 1.5 MiB a tensor, of which two go and one comes."""
TIMEOUT = 240.0


class Caller:
    """A client at the other end; see ``far_caller.py``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self.heard()["what"] == "ready"

    def call(self, elements: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{elements}\n")
        self._process.stdin.flush()

    def heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def calls(self, elements: int) -> dict[str, Any]:
        self.call(elements)
        return self.heard()


@contextmanager
def caller_at(ends: link.Ends, target: str, carrier: str = "auto") -> Iterator[Caller]:
    command = [*ends.client, sys.executable, str(CALLER), target, str(TIMEOUT)]
    environment = {**os.environ, "NPUCALL_CARRIER": carrier}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Caller(process)
        finally:
            process.kill()


@each("elements", [SMALL, 16 * LARGE])
@each("carrier", ["auto", "grpc"])
def test_a_call_on_a_cut_link_goes_on_when_it_is_mended_and_knows_before_its_timeout(
    elements: int, carrier: str
) -> None:
    """The attempt ends by what the kernel says, not by the call's timeout of minutes."""
    with (
        FAST.up() as ends,
        link.far_server(ends) as server,
        caller_at(ends, server.target, carrier) as far,
    ):
        assert far.calls(elements)["what"] == "right"  # so that it is connected
        os.kill(ends.wire, signal.SIGSTOP)
        try:
            attempt = far.calls(elements)
            assert attempt["what"] == "attempt"
            assert re.search("Connection timed out|Socket closed", attempt["error"]), attempt
            assert attempt["seconds"] < TIMEOUT
        finally:
            os.kill(ends.wire, signal.SIGCONT)
        while (told := far.heard())["what"] == "attempt":
            pass
        assert told["what"] == "right"


def test_a_slow_upload_with_a_long_queue_on_its_way_is_not_taken_for_dead() -> None:
    with SLOW.up() as ends, link.far_server(ends) as server, caller_at(ends, server.target) as far:
        assert far.calls(LARGE)["what"] == "right"


def test_a_server_that_is_stopped_for_most_of_a_second_loses_no_call() -> None:
    with FAST.up() as ends, link.far_server(ends) as server, caller_at(ends, server.target) as far:
        for _ in range(5):
            os.kill(server.pid, signal.SIGSTOP)
            threading.Timer(0.9, os.kill, (server.pid, signal.SIGCONT)).start()
            assert far.calls(SMALL)["what"] == "right"

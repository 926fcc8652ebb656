"""A log that nobody reads stops neither calls nor the end of the server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest

import npucall_client
from npucall.errors import OperatorUnknownError
from npucall.operators.kl_div_backward import kl_div_backward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client

ONES = np.ones((2, 2), np.float32)
CALLS = 6000
"""The pipe holds some 150 lines, and some 4,400 may wait; then it was over."""
EXIT_SECONDS = 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server whose standard error is a pipe that the test reads when it likes."""
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0"]
    process = subprocess.Popen([*command, f"--ready-file={ready}"], stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 30
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        yield process, ready.read_text()
    finally:
        process.kill()
        process.communicate()


def call_often(client: Client) -> None:
    """Every fourth fails."""
    for number in range(CALLS // 8):
        if number % 4:
            assert np.array_equal(
                client.run(kl_div_backward, ONES, ONES, ONES), -ONES / 4
            )  # the mean
        else:
            with pytest.raises(OperatorUnknownError):
                client.operator("x" * 100)


def make_calls(target: str) -> None:
    with npucall_client.connect(target) as client, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(call_often, client) for _ in range(8)]:
            done.result(120)


@pytest.mark.more
def test_calls_are_answered_and_the_server_drains_though_nobody_reads_its_log(
    server: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, target = server
    make_calls(target)
    with grpc.insecure_channel(target) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=10) == b"\x08\x01"  # SERVING
    process.terminate()
    assert process.wait(EXIT_SECONDS) == 0  # DRAINED


@pytest.mark.long
def test_who_reads_the_log_again_is_told_how_many_lines_are_missing(
    server: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, target = server
    make_calls(target)
    process.terminate()
    _, text = process.communicate(timeout=EXIT_SECONDS)
    found = [json.loads(line) for line in text.splitlines()]
    calls = [line for line in found if line["event"] == "call"]
    dropped = sum(line["lines"] for line in found if line["event"] == "log lines dropped")
    assert dropped > 0
    info = 1  # connect asked for it
    assert len(calls) + dropped == CALLS + info
    assert "stopped" in [line["event"] for line in found]

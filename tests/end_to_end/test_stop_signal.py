"""A signal is for a process: the kernel may give it to any of its threads."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npucall_client
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client.testing import running_server

ONES = np.ones((2, 2), np.float32)
EXIT_SECONDS = 20


@pytest.mark.skipif(sys.platform != "linux", reason="threads are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_drains_whichever_thread_the_kernel_gives_it_to(number: int) -> None:
    with running_server() as server:
        with npucall_client.connect(server.target) as client:
            client.run(kl_div_backward, ONES, ONES, ONES)  # so that gRPC has threads
        process = server.process
        threads = {int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()}
        others = threads - {process.pid}  # the main thread
        assert others
        ctypes.CDLL(None).tgkill(process.pid, max(others), int(number))
        try:
            assert process.wait(EXIT_SECONDS) == 0  # DRAINED
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"the server did not stop within {EXIT_SECONDS} s")

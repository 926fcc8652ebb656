"""Descriptors: as many as the process may have, and a word where these are few."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are read from /proc")


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
os.execv(sys.argv[3], sys.argv[3:])
"""


def limited(soft: int, hard: int, *command: str) -> list[str]:
    """The command under limits of its own: a process with gRPC must not be forked to set them."""
    return [sys.executable, "-c", LIMITED, str(soft), str(hard), *command]


@pytest.mark.parametrize(("soft", "hard"), [(64, 256), (256, 256), (100, 2000)])
def test_the_limit_is_raised_to_the_hard_one(soft: int, hard: int) -> None:
    program = "from npucall_server.process_limits import descriptors; print(descriptors())"
    done = subprocess.run(
        limited(soft, hard, sys.executable, "-c", program),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{hard}\n"


@pytest.mark.parametrize(("hard", "warned"), [(256, True), (2000, False)])
def test_a_server_with_few_descriptors_says_so(tmp_path: Path, hard: int, warned: bool) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0"]
    with subprocess.Popen(
        limited(128, hard, *command, f"--ready-file={ready}"),
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        lines = []
        while not any('"serving"' in line for line in lines):
            lines.append(server.stderr.readline())
            assert lines[-1], lines
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        server.kill()
    (open_files,) = [line.split() for line in limits.splitlines() if "open files" in line]
    assert open_files[3:5] == [str(hard)] * 2
    assert any(f"only {hard} files" in line for line in lines) is warned

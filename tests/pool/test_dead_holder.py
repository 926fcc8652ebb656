"""Who reserves members and dies holds them no longer than 30 s, whatever else ends meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from .bench import Bench
from .hosts import DIES_TOO

NPUCALL = str(Path(sys.executable).with_name("npucall"))
LEASE = 30.0
CALL = (
    "--timeout=60", "aclnnL1LossBackward", "grad_output=[1]", "self=[2,3]", "target=[1,5]",
    "reduction=0",
)  # fmt: skip


@pytest.mark.long
def test_members_of_a_holder_that_was_killed_are_free_again(bench: Bench) -> None:
    desk, target = bench.hosts["desk"], f"--target={bench.target('directory')}"
    count = f"--count={len(bench.servers)}"
    reserve = desk.command(NPUCALL, "reserve", target, count)
    holds = [*reserve, "600", "--", *DIES_TOO, "sh", "-c", "echo holds; exec sleep 600"]
    with subprocess.Popen(holds, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        holder.kill()
    died = time.monotonic()
    bench.directory.kill()
    bench.directory.wait()
    for server in bench.servers:  # which no new reservation gets at once: others go first
        command = desk.command(NPUCALL, "run", f"--target={server.address}", *CALL)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    print(f"free {time.monotonic() - died:.1f} s after its holder died")
    assert time.monotonic() - died < LEASE + 15

"""Descriptors: as many as the process may have, and a word where these are few."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, logging, resource
from npucall_server import process, process_limits
from npucall_server.settings import ServerSettings

for limits in json.loads(input()):
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    print(process_limits.descriptors(), *resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
    process.open_log(ServerSettings()).flush()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits are read from /proc")
def test_the_limit_is_raised_to_the_hard_one_and_a_log_says_where_that_is_small() -> None:
    """In a process of its own, which gets smaller limits one after the other."""
    limits = [(100, 2000), (64, 256), (256, 256)]
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, input=json.dumps(limits), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{hard} {hard} {hard}" for _, hard in limits]
    warnings = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert [each.partition(" may be open")[0] for each in warnings] == ["only 256 files"] * 2

"""npucall-pool: its help, its errors and its table, where there is no Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from npucall_pool import report
from npucall_pool.plan import Host

PROGRAM = str(Path(sys.executable).with_name("npucall-pool"))
DEAD = Host("10.0.0.7", "second", 2, 8, is_alive=False, is_head=False)
ALIVE = Host("10.0.0.6", "first", 2, 8, is_alive=True, is_head=False)
ANSWER = {
    "hostname": "first", "address": "10.0.0.6:50051", "device": "cann:0", "phase": "serving",
    "starts": 1, "why": "",
}  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["up", "status", "drain", "down"])
def test_every_command_has_its_help_without_ray(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert "--cluster" in done.stdout


def test_an_environment_without_ray_is_one_line() -> None:
    done = run("status")
    assert done.returncode == 1
    assert done.stderr == (
        "npucall-pool: ray: the package is not installed in this environment; "
        "pip install 'npucall-pool[ray]'\n"
    )


def test_wrong_ports_are_one_line() -> None:
    done = run("up", "--ports=none")
    assert done.returncode == 1
    assert done.stderr == (
        "npucall-pool: ports: expected FIRST-LAST, such as 50051-50082, found 'none'\n"
    )


def test_a_keeper_that_does_not_answer_is_shown_with_the_likely_cause() -> None:
    answers = {"10.0.0.6-npu-0": ANSWER, "10.0.0.7-npu-0": None, "10.0.0.6-npu-1": None}
    first, second, third = report.rows(answers, [ALIVE, DEAD])
    assert (first.serves, second.serves) == (True, False)
    assert (second.state, second.host) == ("no answer", "second")
    assert second.why == "its host is gone: run `ray start` there again"
    assert third.why.startswith("Ray has not started its keeper")


def test_the_table_has_a_line_for_each_server_and_the_json_all_of_it() -> None:
    table = report.rows({"10.0.0.6-npu-0": ANSWER}, [ALIVE])
    heading, line = report.as_table(table).splitlines()
    assert heading.split() == ["server", "host", "address", "device", "state", "starts", "why"]
    assert line.split() == ["10.0.0.6-npu-0", "first", "10.0.0.6:50051", "cann:0", "serving", "1"]
    assert json.loads(report.as_json(table))[0]["address"] == "10.0.0.6:50051"

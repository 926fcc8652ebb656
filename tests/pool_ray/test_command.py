"""npucall-pool: its help, its errors and its table, where there is no Ray."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.rows import each

from npucall_pool import command, rows, steps
from npucall_pool.plan import Host

DEAD = Host("10.0.0.7", "second", {}, is_alive=False, is_head=False)
ALIVE = Host("10.0.0.6", "first", {}, is_alive=True, is_head=False)
ANSWER = {
    "hostname": "first", "address": "10.0.0.6:50051", "device": "cann:0", "phase": "serving",
    "starts": 1, "why": "",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    """The exit code, and what the command prints."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["npucall-pool", *arguments])
        with pytest.raises(SystemExit) as ended:
            command.main()
    return ended.value.code, *capsys.readouterr()


@each("name", ["up", "status", "drain", "down"])
def test_every_command_has_its_help_without_ray(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, told, _ = run(capsys, name, "--help")
    assert code == 0
    assert "--cluster" in told


NO_RAY = "ray: the package is not installed in this environment; pip install 'npucall-pool[ray]'"
EXAMPLE = Path(__file__).parents[2] / "deploy/ray/pool.toml"
NO_FILE = "nowhere: expected a TOML file, found: [Errno 2] No such file or directory: 'nowhere'"


@each(
    ("arguments", "why"),
    [(["status"], NO_RAY), (["up", str(EXAMPLE)], NO_RAY), (["up", "nowhere"], NO_FILE)],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert run(capsys, *arguments) == (1, "", f"npucall-pool: {why}\n")


def test_an_option_that_is_in_the_file_now_says_what_to_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, said = run(capsys, "up", "--cpu", "1", "--server-option=queue-length=100", "pool.toml")
    assert code == 2
    cpu, option = said.splitlines()
    assert cpu == (
        "npucall-pool: --cpu is no longer an option; write another [[servers]] with device = "
        '"cpu" and per_host = NUMBER into the pool\'s file (npucall-pool up FILE)'
    )
    assert option.startswith("npucall-pool: --server-option is no longer an option; write NAME = ")


def test_a_keeper_that_does_not_answer_is_shown_with_the_likely_cause() -> None:
    answers = {"10.0.0.6-npu-0": ANSWER, "10.0.0.7-npu-0": None, "10.0.0.6-npu-1": None}
    first, second, third = rows.rows_of(answers, [ALIVE, DEAD])
    assert (first.serves, second.serves) == (True, False)
    assert (second.state, second.host) == ("no answer", "second")
    assert second.why == "its host is gone: run `ray start` there again"
    assert third.why.startswith("Ray has not started its keeper")


def test_the_table_has_a_line_for_each_server_and_the_json_all_of_it() -> None:
    table = rows.rows_of({"10.0.0.6-npu-0": ANSWER}, [ALIVE])
    heading, line = rows.as_table(table).splitlines()
    assert heading.split() == ["server", "host", "address", "device", "state", "starts", "why"]
    assert line.split() == ["10.0.0.6-npu-0", "first", "10.0.0.6:50051", "cann:0", "serving", "1"]
    assert json.loads(rows.as_json(table))[0]["address"] == "10.0.0.6:50051"


def test_what_ray_prints_is_no_part_of_the_answer(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: "(raylet) Raylet is terminated", with codes for colours, stood before the JSON."""

    def say(*_: object, **__: object) -> None:
        print("(raylet) by print", flush=True)
        os.write(1, b"(raylet) by its own descriptor\n")

    ray = SimpleNamespace(init=say, shutdown=say)
    monkeypatch.setitem(sys.modules, "ray", cast("Any", ray))
    monkeypatch.setattr(steps, "status", lambda: rows.rows_of({"10.0.0.6-npu-0": ANSWER}, [ALIVE]))
    monkeypatch.setattr(sys, "argv", ["npucall-pool", "status", "--json"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    told, said = capfd.readouterr()
    assert ended.value.code == 0
    assert json.loads(told)[0]["host"] == "first"
    assert said.count("(raylet)") == 4

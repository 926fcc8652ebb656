"""``npucall members``: who is in a pool, from every kind of source."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.pool.directory_script import SUSPECT, member, scripted_directory

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall_client.testing import running_server
from npucall_client.watching.members import members

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A server that other tests do not use."""
    with running_server("--memory-limit=256MiB") as server:
        yield server.target


@pytest.fixture(autouse=True)
def _patience_and_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NPUCALL_TARGET", raising=False)


def as_json(target: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    members(target, as_json=True)
    return list(json.loads(capsys.readouterr().out))


def test_members_that_a_target_names_say_what_they_are(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody, living = as_json(f"pool:{target},{NOBODY}", capsys)
    assert (living["address"], living["state"], living["failure"]) == (target, "serving", "")
    assert (living["device"], living["soc"]) == ("cpu", "Ascend910B1")
    assert living["memory_limit"] == 256 * 2**20
    assert living["load"]["lanes"] >= 1
    assert {key: living["load"][key] for key in ("running", "waiting", "reserved")} == {
        "running": 0, "waiting": 0, "reserved": False,
    }  # fmt: skip
    assert (nobody["address"], nobody["state"], nobody["load"]) == (NOBODY, "unreachable", None)
    assert f"expected a server at {NOBODY}" in nobody["failure"] or "refused" in nobody["failure"]


def test_the_table_has_a_line_for_each_member_and_says_why_one_is_not_reached(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    members(f"pool:{target},{NOBODY}")
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "address", "state", "host", "device", "soc", "product", "labels", "version", "running",
        "waiting", "lanes", "bytes", "reserved",
    ]  # fmt: skip
    assert lines[0].split()[:2] == [NOBODY, "unreachable"]
    assert lines[1].split()[:6] == [
        target, "serving", "127.0.0.1", "cpu", "Ascend910B1", "Ascend910B",
    ]  # fmt: skip
    assert "0 B of 256 MiB" in lines[1]
    assert lines[2].startswith(f"{NOBODY}: ")


def test_a_member_that_somebody_has_reserved_shows_so(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with npucall_client.connect(target) as client, client.reserve(30):
        (found,) = as_json(f"pool:{target}", capsys)
        assert found["load"]["reserved"]
        members(target)
        assert capsys.readouterr().out.splitlines()[1].split()[-1] == "yes"


def test_a_server_and_this_process_are_members_too(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (server,) = as_json(target, capsys)
    assert (server["address"], server["device"]) == (target, "cpu")
    (local,) = as_json("local:", capsys)
    assert (local["address"], local["device"], local["load"]) == ("local:", "local", None)


def test_a_file_is_a_source_of_the_table(
    target: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "members.json"
    entry = {"address": target, "labels": {"rack": "3"}}
    path.write_text(json.dumps({"members": [entry]}))
    (found,) = as_json(f"pool:file:{path}", capsys)
    assert (found["address"], found["labels"]) == (target, {"rack": "3"})


def test_what_a_directory_says_is_shown_and_nobody_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with scripted_directory() as directory:
        busy = member(NOBODY, SUSPECT, running=1, waiting=4, bytes_in_flight=2**20)
        busy.load.reservation.ends_seconds = 5
        busy.labels["rack"] = "[red]3"
        directory.say(busy)
        (found,) = as_json(f"pool:directory:{directory.address}", capsys)
        assert (found["state"], found["failure"]) == ("suspect", "")
        assert found["load"] == {
            "running": 1, "waiting": 4, "lanes": 1, "bytes_in_flight": 2**20, "reserved": True,
        }  # fmt: skip
        members(f"pool:directory:{directory.address}")
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line == [NOBODY, "suspect", "127.0.0.1", "cpu", "X", "rack=[red]3", *["1", "4", "1"],
                    "1", "MiB", "yes"]  # fmt: skip


def test_the_table_waits_until_the_directory_is_complete(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_CONNECT_TIMEOUT", "0.5")
    with scripted_directory(complete=False) as directory:
        directory.say("a:1")
        (found,) = as_json(f"pool:directory:{directory.address}", capsys)
    assert found["address"] == "a:1"


def test_an_empty_pool_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    members(f"pool:file:{tmp_path}")
    assert f"{tmp_path} has no ready file" in capsys.readouterr().out.replace("\n", "")


def test_where_nobody_says_who_the_members_are_the_error_names_whom_it_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NPUCALL_CONNECT_TIMEOUT", "0.5")
    for target, sentence in {
        f"pool:file:{tmp_path}/none": "No such file",
        f"pool:directory:{NOBODY}": f"directory {NOBODY}: ",
    }.items():
        with pytest.raises(ServerUnreachableError, match=sentence) as caught:
            members(target)
        assert str(caught.value).startswith(f"target: expected members of {target} within 0.5 s")

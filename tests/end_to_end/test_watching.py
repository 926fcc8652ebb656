"""``npucall members``, ``usage`` and ``top``: what they show of servers and pools."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.pool.fake_directories import SUSPECT, fake_directory, member

import npucall_client
from npucall.errors import NpucallError, ServerUnreachableError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import access_service_pb2 as pb
from npucall.v1 import operator_service_pb2
from npucall_client import Client
from npucall_client.commands import top, usage
from npucall_client.commands.members import members
from npucall_client.commands.texts import seconds_of
from npucall_client.pool.sums import sum_of_usage

from . import wire

ONE, TWO, THREE = (np.ones(count, np.float32) for count in (1, 2, 3))
L1 = "aclnnL1LossBackward"
NOBODY = "127.0.0.1:1"

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A server that ran three calls and refused one."""
    with wire.server_here(memory_limit=256 * 2**20) as server:
        with npucall_client.connect(server.address) as client:
            for _ in range(3):
                client.run(l1_loss_backward, ONE, ONE, ONE)
            with pytest.raises(NpucallError):
                client.run(l1_loss_backward, TWO, THREE, THREE)
        yield server.address


@pytest.fixture(autouse=True)
def _room_for_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NPUCALL_TARGET", raising=False)


def as_json(target: str, capsys: Printed) -> list[dict[str, Any]]:
    members(target, as_json=True)
    return list(json.loads(capsys.readouterr().out))


def test_members_that_a_target_names_say_what_they_are_or_why_they_are_not_reached(
    target: str, capsys: Printed
) -> None:
    nobody, living = as_json(f"pool:{target},{NOBODY}", capsys)
    assert (living["address"], living["state"], living["failure"]) == (target, "serving", "")
    assert (living["device"], living["soc"]) == ("cpu", "Ascend910B1")
    assert living["memory_limit"] == 256 * 2**20
    assert living["load"]["lanes"] >= 1
    load = {"running": 0, "waiting": 0, "reserved": False}
    assert living["load"].items() >= load.items()
    assert (nobody["address"], nobody["state"], nobody["load"]) == (NOBODY, "unreachable", None)
    assert f"expected a server at {NOBODY}" in nobody["failure"] or "refused" in nobody["failure"]
    members(f"pool:{target},{NOBODY}")
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "address", "state", "host", "device", "soc", "product", "labels", "version", "running",
        "waiting", "lanes", "bytes", "reserved",
    ]  # fmt: skip
    assert lines[0].split()[:2] == [NOBODY, "unreachable"]
    shown = [target, "serving", "127.0.0.1", "cpu", "Ascend910B1", "Ascend910B"]
    assert lines[1].split()[:6] == shown
    assert "0 B of 256.0 MiB" in lines[1]
    assert lines[2].startswith(f"{NOBODY}: ")


def test_a_member_that_somebody_has_reserved_shows_so(target: str, capsys: Printed) -> None:
    with npucall_client.connect(target) as client, client.reserve(60):
        (found,) = as_json(f"pool:{target}", capsys)
        assert found["load"]["reserved"]
        members(target)
        assert capsys.readouterr().out.splitlines()[1].split()[-1] == "yes"


def test_a_server_this_process_and_those_of_a_file_are_members_too(
    target: str, capsys: Printed, tmp_path: Path
) -> None:
    (server,), (local,) = as_json(target, capsys), as_json("local:", capsys)
    assert (server["address"], server["device"]) == (target, "cpu")
    assert (local["address"], local["device"], local["load"]) == ("local:", "local", None)
    path = tmp_path / "members.json"
    path.write_text(json.dumps({"members": [{"address": target, "labels": {"rack": "3"}}]}))
    (found,) = as_json(f"pool:file:{path}", capsys)
    assert (found["address"], found["labels"]) == (target, {"rack": "3"})


def test_what_a_directory_says_is_shown_and_nobody_is_called(capsys: Printed) -> None:
    with fake_directory() as directory:
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
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split() == f"{NOBODY} suspect 127.0.0.1 cpu X rack=[red]3 1 4 1 1.0 MiB yes".split()


def test_where_members_are_not_all_known_in_time_the_table_or_the_error_says_so(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NPUCALL_CONNECT_TIMEOUT", "0.3")
    with fake_directory(complete=False) as directory:
        directory.say("a:1")
        (found,) = as_json(f"pool:directory:{directory.address}", capsys)
    assert found["address"] == "a:1"
    members(f"pool:file:{tmp_path}")
    assert f"{tmp_path} has no ready file" in capsys.readouterr().out.replace("\n", "")
    for target, sentence in {
        f"pool:file:{tmp_path}/none": "No such file",
        f"pool:directory:{NOBODY}": f"directory {NOBODY}: ",
    }.items():
        with pytest.raises(ServerUnreachableError, match=sentence) as caught:
            members(target)
        assert str(caught.value).startswith(f"target: expected members of {target} within 0.3 s")


def test_a_client_hears_its_usage_and_what_goes_on(target: str) -> None:
    with npucall_client.connect(target) as client:
        (line,) = [line for line in client.usage().lines if line.operator == L1]
        assert (line.calls, line.caller) == (4, "ipv4:127.0.0.1")
        assert dict(line.refusals) == {"SHAPE_MISMATCH": 1}
        assert line.device_seconds > 0
        assert len(client.usage(60).lines) == len(client.usage().lines)
        activity = client.activity()
    (busy,) = activity.callers  # whatever carries its calls
    assert busy.caller.name == "ipv4:127.0.0.1"
    assert busy.calls_answered >= 3
    assert activity.device_seconds >= busy.device_seconds > 0
    assert activity.lanes >= 1


def test_the_accounts_of_several_servers_are_added_up() -> None:
    def answer(since: float, calls: int, **refusals: int) -> pb.GetUsageResponse:
        amounts = {"calls": calls, "request_bytes": 10, "response_bytes": 20, "device_seconds": 0.5}
        lines = [
            pb.UsageLine(tenant="a", caller="x", operator=L1, refusals=refusals, **amounts),
            pb.UsageLine(tenant="a", caller=f"of {calls}", operator=L1, calls=calls),
        ]
        return pb.GetUsageResponse(since=since, lines=lines)

    both = sum_of_usage([answer(200, 3, QUOTA=1), answer(100, 4, QUOTA=2, DEADLINE=1)])
    assert both.since == 200  # from then on both know
    found = [(line.caller, line.calls) for line in both.lines]
    assert found == [("of 3", 3), ("of 4", 4), ("x", 7)]
    total = both.lines[-1]
    assert (total.request_bytes, total.response_bytes, total.device_seconds) == (20, 40, 1.0)
    assert dict(total.refusals) == {"QUOTA": 3, "DEADLINE": 1}
    (tenant,) = sum_of_usage([answer(200, 3), both], by=["tenant"]).lines
    assert (tenant.tenant, tenant.caller, tenant.operator, tenant.calls) == ("a", "", "", 20)


def test_a_client_of_this_process_has_no_account() -> None:
    with npucall_client.connect("local:") as client:
        assert client.usage() == pb.GetUsageResponse()
        assert client.activity() == pb.GetActivityResponse()


def test_usage_prints_a_table_or_json(target: str, capsys: Printed) -> None:
    usage.usage([target], "1h")
    printed = capsys.readouterr().out
    for text in "L1LossBackward", "1 SHAPE_MISMATCH", "in all", "the account begins 20":
        assert text in printed
    usage.usage([target, f"pool:{target}"], since="2026-01-01T12", by=["tenant", "operator"])
    summed = capsys.readouterr().out
    assert "2 SHAPE_MISMATCH" in summed
    assert "127.0.0.1" not in summed
    for wrong in {"since": "2027"}, {"since": "2999-01-01"}, {"since": "2026-01-01", "last": "1h"}:
        with pytest.raises(ValueError, match=r"^since: expected"):
            usage.usage([target], **wrong)
    with pytest.raises(ValueError, match=r"^by: expected tenant, caller, operator, found user"):
        usage.usage([target], by=["user"])
    usage.usage([target], "0", as_json=True)
    lines = json.loads(capsys.readouterr().out)["lines"]
    (line,) = [line for line in lines if line["operator"] == L1]
    assert line["refusals"] == {"SHAPE_MISMATCH": 1}
    assert line["calls"] == 4
    assert set(line) == {
        "tenant", "caller", "operator", "calls", "request_bytes", "response_bytes",
        "device_seconds", "refusals", "calls_in_frames",
    }  # fmt: skip


def test_top_prints_servers_once_and_goes_on_where_one_does_not_answer(
    target: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(to: str, **settings: Any) -> Client:
        return npucall_client.connect(
            to, **settings | ({"connect_timeout": 0.3} if to == NOBODY else {})
        )

    monkeypatch.setattr(top, "_PATIENCE_SECONDS", wire.PATIENCE)
    monkeypatch.setattr(top, "connect", connect)
    top.top([NOBODY, target], once=True)
    printed = capsys.readouterr().out
    assert f"{NOBODY}  " in printed
    assert "SERVER_UNREACHABLE" in printed
    assert f"{target}  cpu as Ascend910B1, up " in printed
    assert "turns taken, 0 calls wait" in printed
    assert "ipv4:127.0.0.1" in printed


def test_top_shows_an_npu_and_who_has_reserved_it() -> None:
    info = operator_service_pb2.GetServerInfoResponse(
        server={"device": "cann:0", "soc": "Ascend910B1"},
        uptime_seconds=3700,
        device={
            "memory_total_bytes": 2**36,
            "memory_free_bytes": 2**35,
            "health": operator_service_pb2.DEVICE_HEALTH_ABNORMAL,
            "utilization": {"cube_percent": 0, "vector_percent": 12},
        },
    )
    activity = pb.GetActivityResponse(
        running=1,
        waiting=2,
        lanes=2,
        device_seconds=60,
        reservation={"holder": {"tenant": "vision", "name": "ann"}, "ends_seconds": 90},
    )
    lines = [top._heading("", top.Seen(info, activity)), *top._facts(top.Seen(info, activity))]
    assert lines == [
        "cann:0 as Ascend910B1, up 1 h 1 min",
        "1 of 2 turns taken, 2 calls wait, 0 in flight; held 50% of the last minute",
        "device memory 32.0 GiB of 64.0 GiB, cube 0 %, vector 12 %, health [red]abnormal[/red]",
        "[yellow]reserved by vision/ann[/yellow] for 1 min 30 s, 0 wait for it",
    ]


def test_a_time_is_a_number_and_a_unit_and_what_is_none_is_refused() -> None:
    times = {"0": 0, "90": 90, "90s": 90, "1.5m": 90, "1h": 3600, "7d": 604800}
    assert {text: seconds_of(text) for text in times} == times
    for text in "", "h", "1 week", "-1h", "nan":
        with pytest.raises(ValueError, match="last: expected a number of s, m, h or d"):
            seconds_of(text)

"""``npucall usage`` and ``npucall top``, and what of the client is behind them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import access_service_pb2 as pb
from npucall.v1 import operator_service_pb2
from npucall_client.testing import running_server
from npucall_client.watching import top, usage
from npucall_client.watching.texts import duration, seconds_of, size

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE, TWO, THREE = (np.ones(count, np.float32) for count in (1, 2, 3))
L1 = "aclnnL1LossBackward"
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A server that ran three calls and refused one."""
    with running_server() as server:
        with npucall_client.connect(server.target) as client:
            for _ in range(3):
                client.run(l1_loss_backward, ONE, ONE, ONE)
            with pytest.raises(NpucallError):
                client.run(l1_loss_backward, TWO, THREE, THREE)
        yield server.target


def test_a_client_hears_its_usage(target: str) -> None:
    with npucall_client.connect(target) as client:
        (line,) = [line for line in client.usage().lines if line.operator == L1]
        assert (line.calls, line.caller) == (4, "ipv4:127.0.0.1")
        assert dict(line.refusals) == {"SHAPE_MISMATCH": 1}
        assert line.device_seconds > 0
        assert len(client.usage(60).lines) == len(client.usage().lines)


def test_a_client_hears_what_goes_on(target: str) -> None:
    with npucall_client.connect(target) as client:
        client.run(l1_loss_backward, ONE, ONE, ONE)
        activity = client.activity()
    (line,) = activity.callers
    assert line.calls_answered >= 1
    assert activity.device_seconds >= line.device_seconds > 0
    assert activity.lanes >= 1


def test_the_accounts_of_several_servers_are_added_up() -> None:
    def answer(since: float, calls: int, **refusals: int) -> pb.GetUsageResponse:
        amounts = {"calls": calls, "request_bytes": 10, "response_bytes": 20, "device_seconds": 0.5}
        lines = [
            pb.UsageLine(tenant="a", caller="x", operator=L1, refusals=refusals, **amounts),
            pb.UsageLine(tenant="a", caller=f"of {calls}", operator=L1, calls=calls),
        ]
        return pb.GetUsageResponse(since=since, lines=lines)

    both = usage.added_up([answer(200, 3, QUOTA=1), answer(100, 4, QUOTA=2, DEADLINE=1)])
    assert both.since == 100
    assert [(line.caller, line.calls) for line in both.lines] == [
        ("of 3", 3),
        ("of 4", 4),
        ("x", 7),
    ]
    total = both.lines[-1]
    assert (total.request_bytes, total.response_bytes, total.device_seconds) == (20, 40, 1.0)
    assert dict(total.refusals) == {"QUOTA": 3, "DEADLINE": 1}


def test_a_client_of_this_process_has_no_account() -> None:
    with npucall_client.connect("local:") as client:
        assert client.usage() == pb.GetUsageResponse()
        assert client.activity() == pb.GetActivityResponse()


def test_usage_prints_a_table(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    usage.usage([target], "1h")
    printed = capsys.readouterr().out
    assert "L1LossBackward" in printed
    assert "1 SHAPE_MISMATCH" in printed
    assert "in all" in printed
    assert "the account begins 20" in printed


def test_usage_prints_json(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    usage.usage([target], "0", as_json=True)
    printed = json.loads(capsys.readouterr().out)
    (line,) = [line for line in printed["lines"] if line["operator"] == L1]
    assert line["refusals"] == {"SHAPE_MISMATCH": 1}
    assert line["calls"] >= 4
    assert set(line) == {
        "tenant", "caller", "operator", "calls", "request_bytes", "response_bytes",
        "device_seconds", "refusals",
    }  # fmt: skip


def test_top_prints_a_server_once(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    top.top([target], once=True)
    printed = capsys.readouterr().out
    assert f"{target}  cpu as Ascend910B1, up " in printed
    assert "turns taken, 0 calls wait" in printed
    assert "ipv4:127.0.0.1" in printed


def test_top_goes_on_where_one_server_does_not_answer(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_PATIENCE_SECONDS", 1.0)
    top.top([NOBODY, target], once=True)
    printed = capsys.readouterr().out
    assert f"{NOBODY}  " in printed
    assert "SERVER_UNREACHABLE" in printed
    assert f"{target}  cpu" in printed


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
        "device memory 32 GiB of 64 GiB, cube 0 %, vector 12 %, health [red]abnormal[/red]",
        "[yellow]reserved by vision/ann[/yellow] for 1 min 30 s, 0 wait for it",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("7d", 604800)],
)
def test_a_time_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1 week", "-1h", "nan"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="last: expected a number of s, m, h or d"):
        seconds_of(text)


def test_sizes_and_durations_are_short() -> None:
    assert [size(count) for count in (0, 1023, 1536, 2**30, 3 * 2**40, 5000 * 2**40)] == [
        "0 B", "1023 B", "1.5 KiB", "1 GiB", "3 TiB", "5000 TiB",
    ]  # fmt: skip
    assert [duration(seconds) for seconds in (0.4, 59, 61, 3600, 90061)] == [
        "0 s", "59 s", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip

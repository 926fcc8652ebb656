"""The account of use: what is counted, for whom, and what time does to it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server.fakes import FakeClock, person

from npucall_server.accounts import usage
from npucall_server.accounts.usage import Usage, UsageKey, UsageLine
from npucall_server.telemetry.log import Record

NOON = 43_200 * 41
"""Seconds since 1970 at which a day's half, an hour and a minute begin."""
KL, GELU = "aclnnKlDivBackward", "aclnnGeluBackward"


@pytest.fixture
def clock() -> FakeClock:
    clock = FakeClock()
    clock.jump(NOON - clock.wall())
    return clock


@pytest.fixture
def account(clock: FakeClock) -> Usage:
    return Usage((KL, GELU), clock.wall)


def call(
    operator: str = KL,
    tenant: str = "vision",
    caller: str = "ann",
    reason: str = "OK",
    device_ns: int = 0,
) -> Record:
    return Record(
        "Execute", "a name", "a peer", tenant, caller, operator,
        request_bytes=100, response_bytes=40, device_ns=device_ns, reason=reason,
    )  # fmt: skip


def test_calls_of_a_caller_and_operator_share_a_line(account: Usage) -> None:
    """Those of operators that the device does not know share the one without a name."""
    for record in call(), call(), call(reason="QUEUE_FULL"):
        account.called(record)
    assert account.lines() == {
        UsageKey("vision", "ann", KL): UsageLine(3, 300, 120, 0, {"QUEUE_FULL": 1}),
    }
    for operator in "aclnnNonsense", "", "another":
        account.called(call(operator, reason="OPERATOR_UNKNOWN"))
    for record in call(GELU), call(KL, caller="abe"), call(KL, tenant="audio"):
        account.called(record)
    assert list(account.lines()) == [
        ("audio", "ann", KL), ("vision", "abe", KL), ("vision", "ann", ""),
        ("vision", "ann", GELU), ("vision", "ann", KL),
    ]  # fmt: skip


def test_callers_beyond_the_bound_share_the_line_others(
    account: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_LINES_OF_PERIOD", 2)
    for name in "abcda":
        account.called(call(caller=name))
    assert {key.caller: line.calls for key, line in account.lines().items()} == {
        "a": 2, "b": 1, "others": 2,
    }  # fmt: skip


def test_a_long_call_counts_while_it_runs_and_once_answered_in_its_line(account: Usage) -> None:
    account.spent(person("vision/ann"), 1_500_000_000)
    account.spent(person("vision/ann"), 500_000_000)
    assert account.device_seconds("vision") == 2.0
    assert account.device_seconds("audio") == 0.0
    assert account.lines() == {}
    record = call(device_ns=2_250_000_000)
    record.told_ns = 2_000_000_000
    account.called(record)
    assert account.lines() == {UsageKey("vision", "ann", KL): UsageLine(1, 100, 40, 2_250_000_000)}
    assert account.device_seconds("vision") == 2.25


def test_device_time_of_a_tenant_leaves_the_window_minute_by_minute(
    account: Usage, clock: FakeClock
) -> None:
    account.spent(person("vision/ann"), 3 * 10**9)
    clock.advance(1800)
    account.spent(person("vision/abe"), 4 * 10**9)
    assert account.device_seconds("vision") == 7.0
    assert account.device_seconds("vision", 600) == 4.0
    clock.advance(3659 - 1800)
    assert account.device_seconds("vision") == 7.0
    clock.advance(1)
    assert account.device_seconds("vision") == 4.0
    clock.advance(1800)
    assert account.device_seconds("vision") == 0.0


def test_a_tenant_is_told_when_it_will_have_used_less(account: Usage, clock: FakeClock) -> None:
    account.spent(person("vision/ann"), 3 * 10**9)
    clock.advance(600)
    account.spent(person("vision/ann"), 4 * 10**9)
    assert account.seconds_until("vision", 8.0) == 0.0
    assert account.seconds_until("vision", 7.0) == 3660 - 600
    assert account.seconds_until("vision", 4.0) == 3660
    assert account.seconds_until("audio", 1.0) == 0.0
    clock.advance(account.seconds_until("vision", 4.0))
    assert account.device_seconds("vision") < 4.0


def test_the_last_seconds_are_whole_minutes(account: Usage, clock: FakeClock) -> None:
    account.called(call(GELU))
    clock.advance(90)
    account.called(call(KL))
    assert [key.operator for key in account.lines(10)] == [KL]
    assert [key.operator for key in account.lines(31)] == [GELU, KL]


def test_minutes_become_hours_and_nothing_is_lost(account: Usage, clock: FakeClock) -> None:
    for _ in range(300):
        account.called(call(device_ns=10**9))
        clock.advance(60)
    assert account.lines()[UsageKey("vision", "ann", KL)].calls == 300
    assert account.lines()[UsageKey("vision", "ann", KL)].device_ns == 300 * 10**9
    assert len(account._minutes) == 121
    assert [period.start for period in account._hours] == [NOON, NOON + 3600, NOON + 7200]


def test_the_oldest_hours_are_forgotten_where_there_are_too_many_lines(
    account: Usage, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_LINES", 3)
    for hour in range(8):
        account.called(call(caller=f"of hour {hour}"))
        clock.advance(3600)
    account.called(call(caller="the last"))
    assert [key.caller for key in account.lines()] == [
        "of hour 3", "of hour 4", "of hour 5", "of hour 6", "of hour 7", "the last",
    ]  # fmt: skip
    assert account.since == NOON + 3 * 3600


def test_hours_are_forgotten_after_a_month(account: Usage, clock: FakeClock) -> None:
    account.called(call(caller="ann"))
    clock.advance(3 * 3600)
    account.called(call(caller="abe"))
    clock.advance(31 * 24 * 3600 - 2 * 3600)
    account.called(call(caller="ada"))
    assert [key.caller for key in account.lines()] == ["abe", "ada"]


def test_the_last_minute_moves_in_steps(account: Usage, clock: FakeClock) -> None:
    account.called(call())
    account.spent(person("vision/ann"), 7)
    clock.advance(30)
    account.called(call(GELU))
    assert account.last_minute() == {("vision", "ann"): UsageLine(2, 0, 0, 7)}
    clock.advance(40)
    assert account.last_minute() == {("vision", "ann"): UsageLine(1)}
    clock.advance(60)
    assert account.last_minute() == {}


def test_what_is_restored_counts_for_quotas_and_is_not_written_again(
    account: Usage, clock: FakeClock
) -> None:
    line = UsageLine(2, 10, 20, 5 * 10**9, {"CANCELLED": 1})
    for start in NOON - 4 * 3600, NOON - 1800, NOON - 1800, NOON:
        account.restore(start, [(UsageKey("vision", "ann", KL), line)])
    account.called(call(device_ns=10**9))
    assert account.device_seconds("vision") == 16.0
    assert account.lines() == {
        UsageKey("vision", "ann", KL): UsageLine(9, 140, 120, 21 * 10**9, {"CANCELLED": 4})
    }
    assert account.since == NOON - 4 * 3600
    (period,) = account.unwritten(current=True)
    assert period.lines == {("vision", "ann", KL): UsageLine(1, 100, 40, 10**9)}


def test_what_was_written_over_a_month_ago_or_is_yet_to_come_is_not_restored(
    account: Usage,
) -> None:
    for start in NOON - 32 * 24 * 3600, NOON + 60:
        account.restore(start, [(UsageKey("vision", "ann", KL), UsageLine(1))])
    assert account.lines() == {}


def test_a_clock_that_is_set_back_stops_no_count(account: Usage, clock: FakeClock) -> None:
    account.called(call())
    clock.jump(-7200)
    account.called(call())
    assert account.lines()[UsageKey("vision", "ann", KL)].calls == 2


def test_threads_that_count_at_once_lose_nothing() -> None:
    account = Usage((KL,))

    def count(_: int) -> None:
        for _ in range(2000):
            account.called(call(device_ns=3))
            account.spent(person("vision/ann"), 2)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    assert account.lines() == {
        UsageKey("vision", "ann", KL): UsageLine(16000, 1_600_000, 640_000, 48_000)
    }
    assert account.device_seconds("vision") == (48_000 + 32_000) / 1e9

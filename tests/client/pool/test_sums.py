"""What the members of a pool answer is added up by caller."""

from __future__ import annotations

from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.pool.sums import sum_of_activity, sum_of_usage


def used(caller: str, calls: int, **refusals: int) -> access.UsageLine:
    return access.UsageLine(
        tenant="t", caller=caller, operator="o", calls=calls, request_bytes=10 * calls,
        response_bytes=20 * calls, device_seconds=0.5 * calls, refusals=refusals,
    )  # fmt: skip


def test_lines_of_one_caller_and_operator_become_one() -> None:
    one = access.GetUsageResponse(since=5.0, lines=[used("b", 1, BUSY=1), used("c", 7)])
    two = access.GetUsageResponse(since=9.0, lines=[used("a", 2), used("b", 3, BUSY=2, QUOTA=1)])
    total = sum_of_usage([one, two])
    assert total.since == 9.0  # all of it is known from then on
    assert list(total.lines) == [used("a", 2), used("b", 4, BUSY=3, QUOTA=1), used("c", 7)]


def test_callers_of_several_members_become_one_and_what_is_busy_adds_up() -> None:
    def active(name: str, count: int) -> access.CallerActivity:
        return access.CallerActivity(
            caller=pb.CallerInfo(tenant="t", name=name), calls=count, bytes=count, streams=count,
            device_seconds=count, calls_answered=count,
        )  # fmt: skip

    def answer(count: int, *callers: access.CallerActivity) -> access.GetActivityResponse:
        return access.GetActivityResponse(
            callers=callers, running=count, waiting=count, lanes=count, device_seconds=count
        )

    total = sum_of_activity([answer(1, active("a", 1)), answer(2, active("b", 5), active("a", 2))])
    assert total == answer(3, active("a", 3), active("b", 5))

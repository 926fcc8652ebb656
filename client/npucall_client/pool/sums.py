"""What the members of a pool answer, as one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.v1 import access_service_pb2 as access

if TYPE_CHECKING:
    from collections.abc import Iterable


def sum_of_usage(answers: Iterable[access.GetUsageResponse]) -> access.GetUsageResponse:
    """A line for each tenant, caller and operator, over all members."""
    total = access.GetUsageResponse()
    lines: dict[tuple[str, str, str], access.UsageLine] = {}
    for answer in answers:
        total.since = max(total.since, answer.since)
        for line in answer.lines:
            key = (line.tenant, line.caller, line.operator)
            if key in lines:
                _add_usage(lines[key], line)
            else:
                lines[key] = line
    total.lines.extend(lines[key] for key in sorted(lines))
    return total


def _add_usage(total: access.UsageLine, line: access.UsageLine) -> None:
    total.calls += line.calls
    total.request_bytes += line.request_bytes
    total.response_bytes += line.response_bytes
    total.device_seconds += line.device_seconds
    for reason, count in line.refusals.items():
        total.refusals[reason] += count


def sum_of_activity(answers: Iterable[access.GetActivityResponse]) -> access.GetActivityResponse:
    """A line for each caller, over all members; who has reserved one of them is not told."""
    total = access.GetActivityResponse()
    callers: dict[tuple[str, str], access.CallerActivity] = {}
    for answer in answers:
        total.running += answer.running
        total.waiting += answer.waiting
        total.lanes += answer.lanes
        total.device_seconds += answer.device_seconds
        for line in answer.callers:
            key = (line.caller.tenant, line.caller.name)
            if key in callers:
                _add_activity(callers[key], line)
            else:
                callers[key] = line
    total.callers.extend(callers[key] for key in sorted(callers))
    return total


def _add_activity(total: access.CallerActivity, line: access.CallerActivity) -> None:
    total.calls += line.calls
    total.bytes += line.bytes
    total.streams += line.streams
    total.device_seconds += line.device_seconds
    total.calls_answered += line.calls_answered

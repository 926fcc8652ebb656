"""Adds up the answers of the members of a pool to one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from npucall.v1 import access_service_pb2 as access
from npucall.wire.rpcs import GET_ACTIVITY, GET_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

Line = TypeVar("Line", access.UsageLine, access.CallerActivity)

_USED = ("calls", "request_bytes", "response_bytes", "device_seconds", "calls_in_frames")
_HELD = ("calls", "bytes", "streams", "device_seconds", "calls_answered", "calls_in_frames")
_BUSY = ("running", "waiting", "lanes", "device_seconds")


WHO = ("tenant", "caller", "operator")
"""For what there are lines of use."""


def sum_of_usage(
    answers: Sequence[access.GetUsageResponse], by: Collection[str] = WHO
) -> access.GetUsageResponse:
    """A line for each tenant, caller and operator, or for some of these, over all members.

    ``since``: from when on all of them know.
    """
    lines = [line for answer in answers for line in answer.lines]
    others = set(WHO) - set(by)
    for line in lines:
        for name in others:
            line.ClearField(name)  # type: ignore[arg-type]  # a name of a field
    return access.GetUsageResponse(
        since=max((answer.since for answer in answers), default=0.0),
        lines=_summed(lines, lambda line: (line.tenant, line.caller, line.operator), _add_usage),
    )


def sum_of_activity(answers: Sequence[access.GetActivityResponse]) -> access.GetActivityResponse:
    """A line for each caller, over all members; it does not say who has reserved a member."""
    total = access.GetActivityResponse()
    for answer in answers:
        _add(_BUSY, total, answer)
    lines = (line for answer in answers for line in answer.callers)
    total.callers.extend(
        _summed(lines, lambda line: (line.caller.tenant, line.caller.name), _add_activity)
    )
    return total


def _summed(
    lines: Iterable[Line],
    key_of: Callable[[Line], tuple[str, ...]],
    add: Callable[[Line, Line], object],
) -> list[Line]:
    """One line for each key, in the order of keys."""
    sums: dict[tuple[str, ...], Line] = {}
    for line in lines:
        total = sums.setdefault(key_of(line), line)
        if total is not line:
            add(total, line)
    return [sums[key] for key in sorted(sums)]


def _add_usage(total: access.UsageLine, line: access.UsageLine) -> None:
    _add(_USED, total, line)
    for reason, count in line.refusals.items():
        total.refusals[reason] += count


def _add_activity(total: access.CallerActivity, line: access.CallerActivity) -> None:
    _add(_HELD, total, line)


def _add(names: Iterable[str], total: object, line: object) -> None:
    for name in names:
        setattr(total, name, getattr(total, name) + getattr(line, name))


SUMS: Mapping[str, Callable[[Sequence[Any]], object]] = {
    GET_USAGE.name: sum_of_usage,
    GET_ACTIVITY.name: sum_of_activity,
}
"""What makes one answer of those of all members, by RPC."""

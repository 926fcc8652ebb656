"""Events, and the time between them."""

from collections.abc import Callable
from ctypes import byref, c_float
from typing import Any

import pytest

from .raw import EVENT_SYNC, EVENT_TIME_LINE, TO_DEVICE, Cann


def recorded(cann: Cann, flags: int = EVENT_TIME_LINE, stream: int | None = None) -> int:
    """An event of a stream, of which nobody has heard yet."""
    event = cann.event(flags)
    cann.ok(cann.aclrtRecordEvent(event, stream))
    return event


def over(cann: Cann, flags: int = EVENT_TIME_LINE) -> int:
    """An event that was waited for."""
    event = recorded(cann, flags)
    cann.ok(cann.aclrtSynchronizeEvent(event))
    return event


def elapsed(cann: Cann, first: int, second: int) -> float:
    """Milliseconds between two events."""
    milliseconds = c_float(-1)
    cann.ok(cann.aclrtEventElapsedTime(byref(milliseconds), first, second))
    return milliseconds.value


def test_a_timeout_of_an_event_answers_507047(cann: Cann, stalled: int) -> None:
    event = recorded(cann, EVENT_SYNC, stalled)
    assert cann.aclrtSynchronizeEventWithTimeout(event, 1) == 507047


@pytest.mark.parametrize("behind", [False, True])
def test_an_event_proves_that_the_work_before_it_is_over_and_not_that_behind_it(
    cann: Cann, behind: bool
) -> None:
    address, stream, event = cann.device(4), cann.stream(), cann.event()
    if behind:
        cann.ok(cann.aclrtRecordEvent(event, stream))
    cann.ok(cann.aclrtMemsetAsync(address, 4, 0, 4, stream))
    if not behind:
        cann.ok(cann.aclrtRecordEvent(event, stream))
    cann.ok(cann.aclrtSynchronizeEvent(event))
    cann.aclrtFree(address)
    assert len(cann.violations()) == behind


def test_an_event_that_is_destroyed_behind_its_stream_is_a_violation(cann: Cann) -> None:
    stream = cann.stream()
    event = recorded(cann, EVENT_SYNC, stream)
    cann.ok(cann.aclrtDestroyStream(stream))
    cann.ok(cann.aclrtDestroyEvent(event))
    assert cann.violations() == ["aclrtDestroyEvent: its stream was destroyed before it"]


def kernel(cann: Cann) -> None:
    cann.ok(cann.aclnnRelu(None, 0, cann.planned_relu()[0], None))


def copy(cann: Cann) -> None:
    target, source = cann.device(3000), cann.pinned(b"-" * 3000)
    cann.ok(cann.aclrtMemcpyAsync(target, 3000, source, 3000, TO_DEVICE, None))


def fill(cann: Cann) -> None:
    cann.ok(cann.aclrtMemsetAsync(cann.device(3000), 3000, 1, 3000, None))


def fill_at_once(cann: Cann) -> None:
    cann.ok(cann.aclrtMemset(cann.device(3000), 3000, 1, 3000))


@pytest.mark.parametrize("work", [kernel, copy, fill, fill_at_once])
def test_work_takes_as_long_as_it_was_told_on_the_device_s_clock(
    cann: Cann, work: Callable[[Cann], Any]
) -> None:
    cann.set_delays(kernel_us=3000, bytes_per_second=1_000_000)
    first = over(cann)
    work(cann)
    second = over(cann)
    assert elapsed(cann, first, second) >= 3
    assert elapsed(cann, second, first) <= -3  # in the wrong order


def test_an_event_has_a_time_when_it_says_that_it_is_over(cann: Cann, stalled: int) -> None:
    def status(event: int) -> int:
        return cann.aclrtEventElapsedTime(byref(c_float()), event, event)

    assert status(over(cann, EVENT_SYNC)) == 107006  # without time line
    assert status(cann.event(EVENT_TIME_LINE)) == 507000  # never recorded
    assert status(recorded(cann, EVENT_TIME_LINE, stalled)) == 107006
    event = recorded(cann)
    cann.ok(cann.aclrtSynchronizeStream(None))  # the stream alone was waited for
    assert status(event) == 107006
    assert cann.number("aclrtQueryEventStatus", event) == 1
    assert status(event) == 0
    cann.ok(cann.aclrtRecordEvent(event, None))  # again: it must be waited for again
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert status(event) == 107006

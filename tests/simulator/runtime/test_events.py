"""Events."""

from __future__ import annotations

from ctypes import byref, c_float, c_int
from typing import TYPE_CHECKING

import pytest

from .raw import EVENT_SYNC, EVENT_TIME_LINE

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


@pytest.fixture
def stalled(cann: Cann, simulator: Simulator) -> int:
    """A stream whose work does not end."""
    stream = cann.stream()
    simulator.fail("aclrtMemsetAsync", status=507015, what="stall")
    cann.ok(cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, stream))
    return stream


def recorded(cann: Cann, flags: int) -> int:
    """An event that is over."""
    event = cann.event(flags)
    cann.ok(cann.aclrtRecordEvent(event, None))
    cann.ok(cann.aclrtSynchronizeEvent(event))
    return event


def test_the_two_queries_answer_with_opposite_numbers(cann: Cann) -> None:
    event = cann.made("aclrtCreateEvent")
    cann.ok(cann.aclrtRecordEvent(event, None))
    cann.ok(cann.aclrtSynchronizeEvent(event))
    assert [
        cann.number("aclrtQueryEventStatus", event),
        cann.number("aclrtQueryEvent", event),
    ] == [1, 0]


def test_an_event_that_was_never_recorded_is_complete_only_if_it_is_extended(cann: Cann) -> None:
    events = [cann.event(), cann.made("aclrtCreateEvent")]
    assert [cann.number("aclrtQueryEventStatus", event) for event in events] == [1, 0]


def test_the_old_query_does_not_take_extended_events(cann: Cann) -> None:
    assert cann.aclrtQueryEvent(cann.event(), byref(c_int())) == 207000


def test_a_stream_waits_only_for_events_with_sync(cann: Cann) -> None:
    event = recorded(cann, EVENT_TIME_LINE)
    assert cann.aclrtStreamWaitEvent(cann.stream(), event) == 207000


def test_waiting_for_an_event_that_was_never_recorded_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    cann.ok(cann.aclrtStreamWaitEvent(cann.stream(), cann.event()))
    assert simulator.violations() == [
        "aclrtStreamWaitEvent: waits for an event that was never recorded"
    ]


def test_a_timeout_of_an_event_answers_507047(cann: Cann, stalled: int) -> None:
    event = cann.event()
    cann.ok(cann.aclrtRecordEvent(event, stalled))
    assert cann.aclrtSynchronizeEventWithTimeout(event, 1) == 507047


def test_an_event_proves_that_the_work_before_it_is_over(cann: Cann, simulator: Simulator) -> None:
    address, stream, event = cann.device(4), cann.stream(), cann.event()
    cann.ok(cann.aclrtMemsetAsync(address, 4, 0, 4, stream))
    cann.ok(cann.aclrtRecordEvent(event, stream))
    cann.ok(cann.aclrtSynchronizeEvent(event))
    cann.ok(cann.aclrtFree(address))
    assert simulator.violations() == []


def test_an_event_proves_nothing_of_the_work_behind_it(cann: Cann, simulator: Simulator) -> None:
    address, stream, event = cann.device(4), cann.stream(), cann.event()
    cann.ok(cann.aclrtRecordEvent(event, stream))
    cann.ok(cann.aclrtMemsetAsync(address, 4, 0, 4, stream))
    cann.ok(cann.aclrtSynchronizeEvent(event))
    cann.aclrtFree(address)
    assert len(simulator.violations()) == 1


def test_an_event_that_is_destroyed_behind_its_stream_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    event, stream = cann.event(), cann.stream()
    cann.ok(cann.aclrtRecordEvent(event, stream))
    cann.ok(cann.aclrtDestroyStream(stream))
    cann.ok(cann.aclrtDestroyEvent(event))
    assert simulator.violations() == ["aclrtDestroyEvent: its stream was destroyed before it"]


def test_time_passes_between_two_events(cann: Cann) -> None:
    first, second = recorded(cann, EVENT_TIME_LINE), recorded(cann, EVENT_TIME_LINE)
    milliseconds = c_float(-1)
    cann.ok(cann.aclrtEventElapsedTime(byref(milliseconds), first, second))
    assert milliseconds.value >= 0


def test_events_in_the_wrong_order_have_a_negative_time(cann: Cann, simulator: Simulator) -> None:
    first = recorded(cann, EVENT_TIME_LINE)
    simulator.set_delays(bytes_per_second=1000)
    cann.upload(b"abcd")
    second = recorded(cann, EVENT_TIME_LINE)
    milliseconds = c_float(0)
    cann.ok(cann.aclrtEventElapsedTime(byref(milliseconds), second, first))
    assert milliseconds.value <= -4


def test_an_event_without_time_line_has_no_time(cann: Cann) -> None:
    event = recorded(cann, EVENT_SYNC)
    assert cann.aclrtEventElapsedTime(byref(c_float()), event, event) == 107006


def test_an_event_that_was_never_recorded_has_no_time(cann: Cann) -> None:
    event = cann.event(EVENT_TIME_LINE)
    assert cann.aclrtEventElapsedTime(byref(c_float()), event, event) == 507000


def test_an_event_that_only_its_stream_was_waited_for_has_no_time(cann: Cann) -> None:
    event = cann.event(EVENT_TIME_LINE)
    cann.ok(cann.aclrtRecordEvent(event, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.aclrtEventElapsedTime(byref(c_float()), event, event) == 107006


def test_an_event_that_is_recorded_again_must_be_waited_for_again(cann: Cann) -> None:
    event = recorded(cann, EVENT_TIME_LINE)
    cann.ok(cann.aclrtRecordEvent(event, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.aclrtEventElapsedTime(byref(c_float()), event, event) == 107006


def test_an_event_that_says_that_it_is_over_has_a_time(cann: Cann) -> None:
    event = cann.event(EVENT_TIME_LINE)
    cann.ok(cann.aclrtRecordEvent(event, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.number("aclrtQueryEventStatus", event) == 1
    assert cann.aclrtEventElapsedTime(byref(c_float()), event, event) == 0


def test_an_event_that_is_not_over_has_no_time(cann: Cann, stalled: int) -> None:
    event = cann.event(EVENT_TIME_LINE)
    cann.ok(cann.aclrtRecordEvent(event, stalled))
    assert cann.aclrtEventElapsedTime(byref(c_float()), event, event) == 107006

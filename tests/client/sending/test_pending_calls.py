"""The future of a pipeline's call: whoever waits is told, and nobody else costs a condition."""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import pytest

from npucall_client.sending.pipeline import PendingCall

PATIENCE = 60.0
ROUNDS = 300


def by_callback(call: PendingCall[int]) -> object:
    told = threading.Event()
    call.add_done_callback(lambda _: told.set())
    assert told.wait(PATIENCE)
    return call.result(0)


def by_wait(call: PendingCall[int]) -> object:
    done, _ = concurrent.futures.wait([call], PATIENCE)
    assert done == {call}
    return call.result(0)


def by_as_completed(call: PendingCall[int]) -> object:
    (found,) = concurrent.futures.as_completed([call], PATIENCE)
    return found.result(0)


def by_exception(call: PendingCall[int]) -> object:
    error = call.exception(PATIENCE)
    if error is not None:
        raise error
    return call.result(0)


WAYS: list[Callable[[PendingCall[int]], object]] = [
    lambda call: call.result(PATIENCE), by_callback, by_wait, by_as_completed, by_exception,
]  # fmt: skip


def test_whoever_waits_is_told_however_the_ends_fall_together() -> None:
    """Each way waits in a thread of its own, while another one ends the call."""
    for number in range(ROUNDS):
        call, together = PendingCall[int](), threading.Barrier(len(WAYS) + 1)
        fails = number % 2

        def waits(way: Callable[[Any], object], call: Any = call, at: Any = together) -> object:
            at.wait(PATIENCE)
            try:
                return way(call)
            except KeyError as error:
                return error.args[0]

        with concurrent.futures.ThreadPoolExecutor(len(WAYS)) as pool:
            found = [pool.submit(waits, way) for way in WAYS]
            together.wait(PATIENCE)
            if fails:
                call.set_exception(KeyError(number))
            else:
                call.set_result(number)
            assert [each.result(PATIENCE) for each in found] == [number] * len(WAYS)


def test_a_call_that_has_ended_costs_no_condition() -> None:
    call = PendingCall[int]()
    assert not call.done()
    call.set_result(3)
    assert (call.done(), call.result(), call.cancel()) == (True, 3, False)
    assert "condition" not in vars(call)


def test_who_waits_in_vain_gets_a_timeout() -> None:
    call = PendingCall[int]()
    with pytest.raises(TimeoutError):
        call.result(0.01)
    call.set_result(4)
    assert call.result(0) == 4

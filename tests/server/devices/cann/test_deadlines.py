"""Calls for which nobody waits any more: not launched, or their results thrown away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall.errors import CancelledError, DeadlineError, NpucallError

from .situations import add, l1

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asked import Asked
    from .opened import Opened
    from .situations import Ask

EXECUTOR = "aclOpExecutor"


@pytest.fixture(params=[l1, add])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Descriptors are kept, or made for the call."""
    asked: Ask = request.param
    return asked


def launches(device: Opened, asked: Asked) -> int:
    """How often its operator was; what clears memory is another one."""
    return device.simulator.call_count(asked.call.operator.name)


def raising(error: NpucallError, *, at: int) -> Callable[[], None]:
    """A check that passes until it is asked for the nth time."""
    left = [at]

    def check() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return check


@pytest.mark.parametrize("error", [DeadlineError("late"), CancelledError("gone")])
def test_a_call_that_nobody_waits_for_is_not_launched(
    device: Opened, ask: Ask, error: NpucallError
) -> None:
    asked = ask(device.device)
    with pytest.raises(type(error)) as caught:
        device.run(asked, raising(error, at=1))
    assert caught.value is error
    assert launches(device, asked) == 0
    assert EXECUTOR not in device.simulator.live_objects()
    assert device.serves(asked)


def test_its_executor_is_destroyed_once(device: Opened, ask: Ask) -> None:
    with pytest.raises(DeadlineError):
        device.run(ask(device.device), raising(DeadlineError("late"), at=1))
    assert device.simulator.call_count("aclDestroyAclOpExecutor") == 1
    assert device.simulator.violations() == []


def test_an_executor_that_cannot_be_destroyed_hides_nothing(device: Opened, ask: Ask) -> None:
    device.simulator.fail("aclDestroyAclOpExecutor", status=561000)
    with pytest.raises(DeadlineError):
        device.run(ask(device.device), raising(DeadlineError("late"), at=1))
    assert device.serves(ask(device.device))


def test_a_result_that_comes_too_late_is_thrown_away(device: Opened, ask: Ask) -> None:
    asked = ask(device.device)
    with pytest.raises(DeadlineError):
        device.run(asked, raising(DeadlineError("late"), at=2))
    assert launches(device, asked) == 1
    assert device.serves(asked)


def test_copies_under_way_are_waited_for_before_the_call_ends(device: Opened, ask: Ask) -> None:
    device.simulator.set_delays(bytes_per_second=100_000)
    with pytest.raises(CancelledError):
        device.run(ask(device.device), raising(CancelledError("gone"), at=1))
    assert device.simulator.call_count("aclrtSynchronizeStreamWithTimeout") == 1
    # Its memory can be used for the next one at once.
    assert device.serves(ask(device.device))
    assert device.simulator.violations() == []

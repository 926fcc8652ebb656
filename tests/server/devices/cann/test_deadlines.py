"""Calls for which nobody waits any more: not begun, or their results thrown away.

Nothing is asked between the phases: a first phase without its second one spends the lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall.errors import CancelledError, DeadlineError, NpucallError

from .situations import l1, rsub

if TYPE_CHECKING:
    from collections.abc import Callable

    from .opened import Opened
    from .situations import Ask


@pytest.fixture(params=[l1, rsub])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Descriptors are kept, or made for the call."""
    asked: Ask = request.param
    return asked


def raising(error: NpucallError, *, at: int) -> Callable[[], None]:
    """A check that passes until it is asked for the nth time."""
    left = [at]

    def check() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return check


@pytest.mark.parametrize("error", [DeadlineError("late"), CancelledError("gone")])
def test_a_call_that_nobody_waits_for_is_neither_planned_nor_launched(
    device: Opened, ask: Ask, error: NpucallError
) -> None:
    asked = ask(device.device)

    def late() -> None:
        with pytest.raises(type(error)) as caught:
            device.run(asked, raising(error, at=1))
        assert caught.value is error

    used = device.functions(late)
    own = asked.call.operator.name
    assert not [name for name in used if name.startswith(own) or "DestroyAclOpExecutor" in name]
    assert device.serves(asked)


def test_nobody_is_asked_between_the_phases(device: Opened, ask: Ask) -> None:
    asked, calls = ask(device.device), []
    phase_one = f"{asked.call.operator.name}GetWorkspaceSize"
    device.run(asked, lambda: calls.append(device.simulator.call_count(phase_one)))
    before, after = calls
    assert (before, after) == (0, 1)
    assert device.simulator.call_count(asked.call.operator.name) == 1


def test_a_result_that_comes_too_late_is_thrown_away(device: Opened, ask: Ask) -> None:
    asked = ask(device.device)
    with pytest.raises(DeadlineError):
        device.run(asked, raising(DeadlineError("late"), at=2))
    assert device.simulator.call_count(asked.call.operator.name) == 1
    assert device.serves(asked)


def test_copies_under_way_are_waited_for_before_the_call_ends(device: Opened, ask: Ask) -> None:
    device.simulator.set_delays(bytes_per_second=100_000)
    with pytest.raises(CancelledError):
        device.run(ask(device.device), raising(CancelledError("gone"), at=1))
    assert device.simulator.call_count("aclrtSynchronizeStreamWithTimeout") == 1
    # Its memory can be used for the next one at once.
    assert device.serves(ask(device.device))
    assert device.simulator.violations() == []

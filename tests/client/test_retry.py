"""npucall_client.remote.retry: which errors are worth another attempt, and when there is one."""

from __future__ import annotations

import math
import time

from tests.rows import each

from npucall.errors import BY_REASON, NpucallError, Repeat
from npucall_client.remote.retry import PAUSES, Attempts, repeated
from npucall_client.senders import finished

HERE = {"BUSY", "DRAINING", "SERVER_UNREACHABLE", "STALLED"}
A_FEW_TIMES = {"CONNECTION_LOST", "DEVICE_LOST"}
LATER = {"QUEUE_FULL", "RESERVED"}
LATER_HERE = {"QUOTA"}
ELSEWHERE = {
    "NO_MEMBER",
    "DEVICE_MEMORY",
    "OPERATOR_UNAVAILABLE",
    "VARIANT_UNAVAILABLE",
}


@each("reason", BY_REASON)
def test_every_error_says_whether_its_call_is_repeated(reason: str) -> None:
    groups = {
        Repeat.HERE: HERE,
        Repeat.FEW_TIMES: A_FEW_TIMES,
        Repeat.LATER: LATER,
        Repeat.LATER_HERE: LATER_HERE,
        Repeat.ELSEWHERE: ELSEWHERE,
    }
    expected = next((each for each, reasons in groups.items() if reason in reasons), Repeat.NEVER)
    assert BY_REASON[reason].repeat is expected


def error_that(repeat: Repeat) -> NpucallError:
    return next(kind for kind in BY_REASON.values() if kind.repeat is repeat)("as it says")


@each("repeat", [Repeat.NEVER, Repeat.LATER, Repeat.LATER_HERE, Repeat.ELSEWHERE])
def test_what_is_not_repeated_here_is_told_at_once(repeat: Repeat) -> None:
    assert Attempts().pause_after(error_that(repeat)) is None


@each("repeat", [Repeat.LATER, Repeat.LATER_HERE])
def test_a_full_server_is_waited_for_as_long_as_it_says_and_a_little_more(repeat: Repeat) -> None:
    error = error_that(repeat)
    error.retry_after = 0.5
    pauses = [Attempts().pause_after(error) for _ in range(50)]
    assert all(pause is not None and 0.5 <= pause <= 0.625 for pause in pauses)
    assert len(set(pauses)) > 1  # those who are refused together do not come back together
    assert Attempts(waits=False).pause_after(error) is None
    assert Attempts(time.monotonic() + 0.4).pause_after(error) is None
    error.retry_after = 0.0  # who says no delay at all is not stormed
    assert (Attempts().pause_after(error) or 0) > 0


def test_a_member_of_a_pool_waits_for_the_callers_own_limit_alone() -> None:
    for repeat in Repeat:
        error = error_that(repeat)
        error.retry_after = 0.5
        pause = Attempts(alone=False).pause_after(error)
        assert (pause is not None) is (repeat is Repeat.LATER_HERE)


@each("repeat", [Repeat.HERE, Repeat.FEW_TIMES])
def test_the_pauses_grow_and_then_stay_as_long_as_time_is_left(repeat: Repeat) -> None:
    """Whether the call's own work ended the server, its losses say."""
    attempts, error = Attempts(math.inf), error_that(repeat)
    assert all(attempts.may_follow(error) for _ in range(9))  # which counts nothing
    assert [attempts.pause_after(error) for _ in range(100)] == [*PAUSES, *[PAUSES[-1]] * 96]
    assert list(PAUSES) == sorted(PAUSES)
    assert Attempts(time.monotonic() + PAUSES[0] / 2).pause_after(error) is None


def test_an_attempt_gets_the_seconds_that_are_left_and_pauses_are_waited_for() -> None:
    given: list[float] = []
    waited: list[float] = []

    async def attempt(seconds: float) -> str:
        given.append(seconds)
        if len(given) < 3:
            raise error_that(Repeat.HERE)
        return "answer"

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    assert finished(repeated(attempt, 100.0, wait)) == "answer"
    assert waited == list(PAUSES[:2])
    assert 100.0 >= given[0] >= given[1] >= given[2] > 90.0

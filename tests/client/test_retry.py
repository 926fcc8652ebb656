"""Which errors are worth another attempt, and when a call is lost too often to be sent again."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.errors import (
    BY_REASON,
    ConnectionLostError,
    DeviceLostError,
    DrainingError,
    NpucallError,
    PoisonedCallError,
    Repeat,
)
from npucall.wire.status import ALONE, BEGUN, INSTANCE, LOSSES, NONE, SHARED
from npucall_client.sending.losses import Losses, told
from npucall_client.sending.retry import PAUSES, Attempts, repeated
from npucall_client.sending.senders import finished

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


FIRST, SECOND = "a:50051", "b:50051"


def broken(
    begun: str | None = None, kind: type[NpucallError] = ConnectionLostError
) -> NpucallError:
    """``begun``: what an attempt that asked was told; None: it did not ask."""
    return kind("it broke", **({} if begun is None else {BEGUN: begun}))


def carried(losses: Losses) -> str | None:
    return dict(losses.metadata).get(LOSSES)


def test_a_call_that_is_lost_and_lost_again_alone_is_not_sent_a_third_time() -> None:
    losses = Losses("aclnnKlDivBackward", "mine")
    assert losses.heard(broken(), FIRST, "i1", ended=True) is None
    assert carried(losses) == "1"
    error = losses.heard(broken(ALONE), SECOND, "i2", ended=True)
    assert isinstance(error, PoisonedCallError)
    assert str(error) == (
        "aclnnKlDivBackward: each server that ran this call ended, so the client does not send "
        "it again: a:50051 (instance i1), b:50051 (instance i2); request id mine"
    )
    assert error.details == {
        "operator": "aclnnKlDivBackward",
        "request_id": "mine",
        "servers": "a:50051 (instance i1), b:50051 (instance i2)",
    }


def test_an_attempt_that_asked_says_what_it_was_told() -> None:
    silent, spoken = broken(), broken()
    told(silent, ())
    told(spoken, ((BEGUN, SHARED), (INSTANCE, "i1"), ("some-bin", b"")))
    assert silent.details == {BEGUN: NONE}
    assert spoken.details == {BEGUN: SHARED, INSTANCE: "i1"}


def test_the_instance_that_the_server_told_goes_before_the_one_that_was_known() -> None:
    losses = Losses()
    error = ConnectionLostError("it broke", **{BEGUN: SHARED, INSTANCE: "new"})
    losses.heard(error, FIRST, "old", ended=True)
    assert losses.lost == [(FIRST, "new")]


class End(NamedTuple):
    """How an attempt ended."""

    kind: type[NpucallError]
    begun: str
    ended: bool


ENDS = st.builds(
    End,
    st.sampled_from([ConnectionLostError, DeviceLostError, DrainingError]),
    st.sampled_from([NONE, SHARED, ALONE]),
    st.booleans(),
)


@given(st.lists(ENDS, max_size=12))
def test_the_rule_is_the_plain_one(ends: list[End]) -> None:
    """The plain one: a list of how the losses began, looked at as a whole each time."""
    losses, lost = Losses("op"), list[str]()
    asked = False
    for end in ends:
        must_be_alone = carried(losses) == ALONE
        begun = end.begun
        if must_be_alone and begun == SHARED:
            begun = NONE  # no server does that
        error = end.kind("it broke", **({BEGUN: begun} if asked else {}))
        poisoned = losses.heard(error, FIRST, ended=end.ended)
        counts = end.kind is not DrainingError
        went = end.ended or end.kind is DeviceLostError
        if counts and went and (begun != NONE or not asked):
            lost.append(begun if asked else SHARED)
        asked = asked or counts
        assert len(losses.lost) == len(lost)
        assert (poisoned is not None) is (
            len(lost) >= 2 and lost[-1] == ALONE and counts and went and begun != NONE
        )
        if poisoned is not None:
            assert len(lost) <= 3
            assert lost[:-1] in ([SHARED], [ALONE], [SHARED, SHARED], [ALONE, SHARED])
            return
        expected = None
        if asked:
            expected = ALONE if lost[-1:] == [SHARED] and len(lost) == 2 else str(len(lost))
        assert carried(losses) == expected

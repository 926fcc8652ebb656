"""The poison rule: which attempts count as lost, and when a call is not sent again."""

from __future__ import annotations

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
from npucall_client.remote.losses import Losses, is_break, told

HERE, THERE = "a:50051", "b:50051"


def broken(
    begun: str | None = None, kind: type[NpucallError] = ConnectionLostError
) -> NpucallError:
    """``begun``: what an attempt that asked was told; None: it did not ask."""
    return kind("it broke", **({} if begun is None else {BEGUN: begun}))


def carried(losses: Losses) -> str | None:
    return dict(losses.metadata).get(LOSSES)


def test_a_call_that_is_lost_and_lost_again_alone_is_not_sent_a_third_time() -> None:
    losses = Losses("aclnnKlDivBackward", "mine")
    assert losses.heard(broken(), HERE, "i1", ended=True) is None
    assert carried(losses) == "1"
    error = losses.heard(broken(ALONE), THERE, "i2", ended=True)
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


@each("reason", BY_REASON)
def test_errors_that_count_are_those_that_say_so(reason: str) -> None:
    error = BY_REASON[reason]("as it says")
    assert is_break(error) is (error.repeat is Repeat.FEW_TIMES)


def test_an_attempt_that_asked_says_what_it_was_told() -> None:
    silent, spoken = broken(), broken()
    told(silent, ())
    told(spoken, ((BEGUN, SHARED), (INSTANCE, "i1"), ("some-bin", b"")))
    assert silent.details == {BEGUN: NONE}
    assert spoken.details == {BEGUN: SHARED, INSTANCE: "i1"}


def test_the_instance_that_the_server_told_goes_before_the_one_that_was_known() -> None:
    losses = Losses()
    error = ConnectionLostError("it broke", **{BEGUN: SHARED, INSTANCE: "new"})
    losses.heard(error, HERE, "old", ended=True)
    assert losses.lost == [(HERE, "new")]


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
        poisoned = losses.heard(error, HERE, ended=end.ended)
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

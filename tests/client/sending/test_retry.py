"""Which errors are worth another attempt, and when a call is lost too often to be sent again."""

import math
from typing import Any

import pytest
from tests.rows import each

from npucall.errors import (
    BY_REASON,
    ConnectionLostError,
    CredentialInvalidError,
    DeadlineError,
    DeviceLostError,
    DrainingError,
    NpucallError,
    PoisonedCallError,
    Repeat,
    SharedMemoryError,
    TooLargeError,
)
from npucall_client.sending.attempts import PAUSES, Attempts
from npucall_client.sending.follow_ups import FOLLOWS, Next, delay_of
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished

HERE = {"BUSY", "DRAINING", "SERVER_UNREACHABLE", "STALLED"}
A_FEW_TIMES = {"CONNECTION_LOST", "DEVICE_LOST"}
LATER = {"QUEUE_FULL", "RESERVED"}
LATER_HERE = {"QUOTA"}
ELSEWHERE = {
    "NO_MEMBER",
    "DEVICE_MEMORY",
    "OPERATOR_UNAVAILABLE",
    "PROTOCOL",
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


class Place:
    """One server, or a pool of which another member may always be asked; records what is done."""

    target, instance = "a:50051", "first"

    def __init__(self, *, pooled: bool = False) -> None:
        self.only: Any = None if pooled else self
        self.waited: list[float] = []
        self.ended = False

    async def take(self, attempts: Attempts) -> Any:
        attempts.place = self
        return self

    def give_back(self, attempts: Attempts, error: BaseException | None) -> None:
        pass

    def elsewhere(self, attempts: Attempts, error: NpucallError) -> float | None:
        return 0.0

    async def wait(self, seconds: float) -> None:
        self.waited.append(seconds)

    async def ask(self, attempts: Attempts) -> None:
        raise AssertionError("it is known which process answers")

    async def has_ended(self, instance: str) -> bool:
        assert instance == self.instance
        return self.ended

    async def has_another(self, error: NpucallError, sent: str) -> bool:
        return sent == "old"

    def withdraw(self, request: Request) -> bool:
        return request.name == "has shared memory"


def tried(place: Any, *errors: NpucallError, **request: Any) -> int:
    """How many attempts a request makes where the first of them fail."""
    left, count = list(errors), 0

    async def attempt(_: Any, attempts: Attempts) -> None:
        nonlocal count
        count += 1
        attempts.sent = "old"
        if left:
            raise left.pop(0)

    finished(Attempts(Request(**{"timeout": 100.0, **request})).run(place, attempt))
    return count


@each("situation", ["once", "server", "pool"])
@each("key", FOLLOWS)
def test_what_follows_from_an_error_is_what_the_table_says(key: Any, situation: str) -> None:
    error = key("so") if isinstance(key, type) else error_that(key)
    error.retry_after = 0.5
    error.details["method"] = "ExecuteStream"
    follows = getattr(FOLLOWS[key], situation)
    place = Place(pooled=situation == "pool")
    given: dict[str, Any] = {"once": situation == "once", "name": "has shared memory"}
    if follows is Next.NEVER:
        with pytest.raises(type(error)):
            tried(place, error, **given)
        return
    assert tried(place, error, **given) == 2
    if follows is Next.AGAIN:
        assert place.waited == [PAUSES[0]]
    elif follows is Next.LATER:
        assert 0.5 <= place.waited[0] <= 0.625
    else:
        assert place.waited == []


def test_a_call_whose_server_ended_while_its_time_went_by_says_so() -> None:
    """Before: "give the call a longer timeout", where the system killed the server for memory."""
    for endings, said in ((1, "ended once while"), (2, "ended 2 times while")):
        place = Place()
        place.ended = True
        lost = [ConnectionLostError("it broke")] * endings
        with pytest.raises(DeadlineError, match=said) as raised:
            tried(place, *lost, DeadlineError("give the call a longer timeout"))
        assert "a:50051" in str(raised.value)
    with pytest.raises(DeadlineError, match="give the call a longer timeout"):
        tried(Place(), DeadlineError("give the call a longer timeout"))


def error_of_table(kind: type[NpucallError]) -> Any:
    return next((key for key in FOLLOWS if isinstance(key, type) and issubclass(kind, key)), None)


@each("reason", BY_REASON)
def test_only_errors_that_are_not_repeated_can_be_mended(reason: str) -> None:
    kind = BY_REASON[reason]
    if error_of_table(kind) is not None:
        assert kind.repeat is Repeat.NEVER


@each("kind", [CredentialInvalidError, SharedMemoryError, TooLargeError])
def test_what_is_mended_is_mended_once(kind: type[NpucallError]) -> None:
    errors = [kind("so", method="ExecuteStream") for _ in range(2)]
    with pytest.raises(kind):
        tried(Place(), *errors, name="has shared memory")


@each("repeat", [Repeat.LATER, Repeat.LATER_HERE])
def test_a_full_server_is_waited_for_as_long_as_it_says_and_a_little_more(repeat: Repeat) -> None:
    error = error_that(repeat)
    error.retry_after = 0.5
    pauses = [delay_of(error) for _ in range(50)]
    assert all(pause is not None and 0.5 <= pause <= 0.625 for pause in pauses)
    assert len(set(pauses)) > 1  # those who are refused together do not come back together
    for given in {"waits": False}, {"timeout": 0.4}:
        with pytest.raises(type(error)):
            tried(Place(), error, **given)
    error.retry_after = 0.0  # who says no delay at all is not stormed
    assert (delay_of(error) or 0) > 0


@each("repeat", [Repeat.HERE, Repeat.FEW_TIMES])
def test_the_pauses_grow_and_then_stay_as_long_as_time_is_left(repeat: Repeat) -> None:
    place = Place()
    errors = [ConnectionLostError("it broke") if repeat is Repeat.FEW_TIMES else error_that(repeat)]
    assert tried(place, *errors * 9, timeout=math.inf) == 10
    assert place.waited == [*PAUSES, *[PAUSES[-1]] * 5]
    assert list(PAUSES) == sorted(PAUSES)
    with pytest.raises(type(errors[0])):
        tried(Place(), *errors, timeout=PAUSES[0] / 2)


@each("pooled", [False, True])
@each("kind", [ConnectionLostError, DeviceLostError])
def test_a_call_under_which_three_processes_ended_is_not_sent_again(
    kind: type[NpucallError], pooled: bool
) -> None:
    place = Place(pooled=pooled)
    place.ended = True
    lost = [kind("it broke") for _ in range(3)]
    assert tried(place, *lost[:2]) == 3
    with pytest.raises(PoisonedCallError) as raised:
        tried(place, *lost, name="aclnnKlDivBackward", request_id="mine")
    servers = ", ".join(["a:50051 (instance first)"] * 3)
    assert str(raised.value) == (
        "aclnnKlDivBackward: each server that ran this call ended, so the client does not send "
        f"it again: {servers}; request id mine"
    )
    assert raised.value.details == {
        "operator": "aclnnKlDivBackward",
        "request_id": "mine",
        "servers": servers,
    }


def test_a_process_that_has_not_ended_does_not_count() -> None:
    assert tried(Place(), *[ConnectionLostError("it broke")] * 9) == 10
    assert tried(Place(), *[DrainingError("going")] * 9) == 10

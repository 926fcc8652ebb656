"""A server that has no time, or goes away, is not a failure of an operator."""

import pytest
from tests.rows import each

import npucall_client
from npucall.errors import (
    DeadlineError,
    NpucallError,
    QueueFullError,
    QuotaError,
    ReservedError,
    ServerUnreachableError,
)
from npucall_client.testing import running_server
from npucall_conformance.cases.blocks import BLOCKS
from npucall_conformance.reporting.report import CaseOutcome
from npucall_conformance.running import subject as module
from npucall_conformance.running.crowd import CALLERS
from npucall_conformance.running.subject import open_subject

from .servers import Failing, altered, client_of, failed, flip, run

KL = ("aclnnKlDivBackward",)
GRID = {"operators": KL, "blocks": ("grid",)}
BUSY = {
    "QUOTA": QuotaError("quota: none left"),
    "QUEUE_FULL": QueueFullError("queue: full"),
    "RESERVED": ReservedError("device: reserved"),
}


class FakeTime:
    """Nobody waits: the clock goes on by as much."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """What a run waits by."""
    fake = FakeTime()
    monkeypatch.setattr(module, "time", fake)
    return fake


def busy_in_the_middle(error: NpucallError) -> Failing:
    """The tenth to the nineteenth call."""
    return Failing(lambda asked: error if 10 <= asked < 20 else None)


def skipped(outcomes: list[CaseOutcome]) -> list[CaseOutcome]:
    return [outcome for outcome in outcomes if outcome.status == "skipped"]


@each("reason", BUSY)
def test_a_server_that_has_no_time_in_the_middle_lowers_and_does_not_fail(reason: str) -> None:
    server = open_subject(client_of(busy_in_the_middle(BUSY[reason])), "busy")
    outcomes = run(server, **GRID)
    assert failed(outcomes) == []
    assert len(skipped(outcomes)) == 10
    assert all(o.lowers and f"busy answered {reason}" in o.problems[0] for o in skipped(outcomes))


def test_a_server_that_says_when_is_asked_again(clock: FakeTime) -> None:
    transport = busy_in_the_middle(QueueFullError("queue: full", retry_after=0.5))
    outcomes = run(open_subject(client_of(transport), "busy"), **GRID)
    assert {outcome.status for outcome in outcomes} == {"passed"}
    assert (transport.asked, clock.now) == (len(outcomes) + 10, 5.0)


def test_nobody_waits_for_a_quota_of_tomorrow(clock: FakeTime) -> None:
    transport = busy_in_the_middle(QuotaError("quota: none left", retry_after=40_000.0))
    assert len(skipped(run(open_subject(client_of(transport), "busy"), **GRID))) == 10
    assert clock.now == 0


def test_a_run_does_not_wait_for_ever_in_small_steps(clock: FakeTime) -> None:
    transport = Failing(lambda _: QueueFullError("queue: full", retry_after=1.0))
    server = open_subject(client_of(transport), "busy")
    server.waits = 5
    outcomes = run(server, **GRID)
    assert {outcome.status for outcome in outcomes} == {"skipped"}
    assert (transport.asked, clock.now) == (len(outcomes) + 5, 5)


def test_a_server_without_time_for_the_second_look_lowers() -> None:
    transport = Failing(lambda asked: BUSY["QUEUE_FULL"] if asked >= 1 else None)
    (first, *_) = run(
        open_subject(client_of(transport), "busy"),
        operators=KL,
        blocks=("determinism",),
        quick=True,
    )
    assert (first.status, first.lowers) == ("skipped", True)


def test_what_was_wrong_before_a_second_server_had_no_time_stays_wrong() -> None:
    busy = open_subject(client_of(Failing(lambda _: BUSY["QUOTA"])), "busy")
    (outcome,) = run(altered(flip), busy, cases=("aclnnKlDivBackward/grid/f32-none-4x6-0001",))
    assert outcome.status == "failed"


@pytest.mark.more
def test_a_server_that_is_killed_in_the_middle_ends_the_run() -> None:
    asked = 0
    with running_server() as server, npucall_client.connect(server.target) as client:
        subject = open_subject(client, server.target)
        answer = subject.adapter.answer

        def counted(*arguments: object) -> object:
            nonlocal asked
            asked += 1
            if asked == 100:
                server.process.kill()
                server.process.wait()
            return answer(*arguments)  # type: ignore[arg-type]

        subject.adapter.answer = counted  # type: ignore[method-assign,assignment]
        outcomes = run(subject, operators=KL)
    gone = failed(outcomes)  # those that were under way
    assert 1 <= len(gone) <= CALLERS
    assert all("SERVER_UNREACHABLE" in outcome.problems[0] for outcome in gone)
    rest = [o for o in outcomes[outcomes.index(gone[-1]) + 1 :] if o.status != "skipped"]
    assert rest == []
    lost = [outcome for outcome in skipped(outcomes) if outcome.lowers]
    assert len(lost) > 300
    assert {o.problems[0] for o in lost} == {f"{server.target} went away: SERVER_UNREACHABLE"}
    assert 100 <= asked < 100 + CALLERS


def test_a_server_that_is_gone_is_asked_once_more_whether_it_lives() -> None:
    transport = Failing(
        lambda asked: ServerUnreachableError("target: none") if asked >= 5 else None, lives=False
    )
    outcomes = run(open_subject(client_of(transport), "gone"), **GRID)
    assert [o.status for o in outcomes[:6]] == ["passed"] * 5 + ["failed"]
    assert {o.status for o in outcomes[6:]} == {"skipped"}
    assert transport.asked == 6


def test_a_server_that_lives_and_answers_nothing_is_not_asked_for_ever() -> None:
    transport = Failing(lambda _: DeadlineError("timeout: no answer"))
    outcomes = run(open_subject(client_of(transport), "hanging"), **GRID)
    assert [o.status for o in outcomes[:4]] == ["failed"] * 3 + ["skipped"]
    assert "lives, but answered 3 calls with nothing" in outcomes[3].problems[0]
    assert transport.asked == 4  # the first one twice


def test_a_server_that_was_started_again_fails_once() -> None:
    class Restarted(Failing):
        async def execute(self, *arguments: object) -> object:  # type: ignore[override]
            if self.asked == 7:
                other = Failing(lambda _: None)
                self._reply, self._identity = other._reply, other._identity
            return await super().execute(*arguments)  # type: ignore[arg-type]

    outcomes = run(open_subject(client_of(Restarted(lambda _: None)), "restarted"), **GRID)
    (wrong,) = failed(outcomes)
    assert wrong is outcomes[7]
    assert "started again" in wrong.problems[0]


@each("block", BLOCKS)
def test_no_block_calls_a_server_wrong_that_is_busy_now_and_then(block: str) -> None:
    transport = Failing(lambda asked: BUSY["QUEUE_FULL"] if asked % 5 == 2 else None)
    outcomes = run(
        open_subject(client_of(transport), "busy"), operators=KL, blocks=(block,), quick=True
    )
    assert [(o.case, *o.problems) for o in failed(outcomes)] == []
    assert all(outcome.lowers for outcome in skipped(outcomes) if "busy" in outcome.problems[0])

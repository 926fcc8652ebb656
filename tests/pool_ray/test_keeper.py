"""When a keeper starts its server, starts it again, and leaves it alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from npucall.membership import DIRECTORY_PORT
from npucall_pool import command
from npucall_pool.keeper import MANY_SECONDS, NEEDS_A_PERSON, WAS_ASKED, Keeper, Phase
from npucall_server.exits import ExitCode


@dataclass
class FakeChild:
    code: int | None = None
    ready: bool = False
    said: list[str] = field(default_factory=list)

    def exit_code(self) -> int | None:
        return self.code

    def answers(self) -> bool:
        return self.ready

    def last_words(self) -> str:
        return "its last words"

    def terminate(self) -> None:
        self.said.append("terminate")

    def kill(self) -> None:
        self.said.append("kill")
        self.code = -9


class Stage:
    """A keeper with children that do as the test says, and a clock that stands until told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.children: list[FakeChild] = []
        self.fault: OSError | None = None
        self.keeper = Keeper(self._start, lambda: self.now)

    def _start(self) -> FakeChild:
        if self.fault is not None:
            raise self.fault
        self.children.append(FakeChild())
        return self.children[-1]

    def after(self, seconds: float) -> Phase:
        self.now += seconds
        self.keeper.look()
        return self.keeper.course.phase

    def serve(self) -> None:
        assert self.after(0) is Phase.STARTING
        self.children[-1].ready = True
        assert self.after(0) is Phase.SERVING

    def end(self, code: int) -> Phase:
        self.children[-1].code = code
        return self.after(0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_server_serves_once_it_answers(stage: Stage) -> None:
    stage.serve()
    assert stage.after(1e6) is Phase.SERVING
    assert len(stage.children) == 1


@pytest.mark.parametrize("code", [-9, -11, 1, 70, 71, 72, 99])
def test_a_server_that_ended_is_started_again_after_half_a_second(stage: Stage, code: int) -> None:
    stage.serve()
    assert stage.end(code) is Phase.PAUSING
    assert stage.after(0.4) is Phase.PAUSING
    assert stage.after(0.2) is Phase.STARTING
    assert len(stage.children) == 2


def test_the_second_pause_is_longer(stage: Stage) -> None:
    stage.serve()
    stage.end(1)
    stage.after(0.5)
    assert stage.end(1) is Phase.PAUSING
    assert stage.after(1.9) is Phase.PAUSING
    assert stage.after(0.2) is Phase.STARTING


def test_after_three_ends_in_a_minute_it_stays_out_and_says_why(stage: Stage) -> None:
    stage.serve()
    for pause in 0.5, 2.0:
        stage.end(-9)
        stage.after(pause)
    assert stage.end(-9) is Phase.OUT
    assert stage.keeper.course.why == "3 ends in 60 s; the last one: signal 9: its last words"
    assert stage.after(1e6) is Phase.OUT
    assert stage.keeper.course.starts == 3


def test_ends_that_lie_further_apart_do_not_count_together(stage: Stage) -> None:
    stage.serve()
    for _ in range(10):
        assert stage.end(-9) is Phase.PAUSING
        stage.after(MANY_SECONDS / 2 + 1)
    assert stage.keeper.course.starts == 11


@pytest.mark.parametrize("code", [*NEEDS_A_PERSON, *WAS_ASKED])
def test_what_another_start_would_not_mend_is_not_started_again(stage: Stage, code: int) -> None:
    stage.serve()
    assert stage.end(code) is Phase.OUT
    assert stage.keeper.course.why.startswith(f"exit code {code}, it")


def test_the_codes_that_are_retried_are_those_of_the_documentation() -> None:
    left_alone = {code for code in {*NEEDS_A_PERSON, *WAS_ASKED} if code != 127}
    assert left_alone == {int(code) for code in ExitCode if not code.restart}


def test_a_server_that_cannot_be_started_is_out(stage: Stage) -> None:
    stage.fault = FileNotFoundError("expected a file, found none at /opt/npucall/bin/python")
    assert stage.after(0) is Phase.OUT
    assert stage.keeper.course.why.startswith("it cannot be started: expected a file, found none")


def test_one_that_is_out_is_started_again_when_a_person_says_so(stage: Stage) -> None:
    stage.serve()
    stage.end(2)
    stage.keeper.again()
    assert stage.after(0) is Phase.STARTING
    assert [stage.end(1), stage.after(0.5), stage.end(1)].count(Phase.PAUSING) == 2


def test_a_server_that_runs_is_not_started_again(stage: Stage) -> None:
    stage.serve()
    stage.keeper.again()
    assert stage.after(0) is Phase.SERVING
    assert len(stage.children) == 1


def test_a_stopped_server_is_asked_once_and_not_started_again(stage: Stage) -> None:
    stage.serve()
    stage.keeper.stop(30)
    stage.keeper.stop(30)
    assert stage.after(29) is Phase.STOPPING
    assert stage.end(0) is Phase.STOPPED
    assert stage.after(1e6) is Phase.STOPPED
    assert stage.children[0].said == ["terminate"]


def test_a_server_that_does_not_stop_in_time_is_killed(stage: Stage) -> None:
    stage.serve()
    stage.keeper.stop(30)
    assert stage.after(31) is Phase.STOPPING
    assert stage.children[0].said == ["terminate", "kill"]
    assert stage.after(0) is Phase.STOPPED
    assert stage.keeper.course.exit_code == -9


def test_a_server_that_is_about_to_be_started_again_is_stopped_at_once(stage: Stage) -> None:
    stage.serve()
    stage.end(1)
    stage.keeper.stop(30)
    assert stage.keeper.course.phase is Phase.STOPPED
    assert stage.after(10) is Phase.STOPPED
    assert len(stage.children) == 1


def test_the_directory_has_the_port_of_the_contract() -> None:
    assert command.DIRECTORY_PORT == DIRECTORY_PORT

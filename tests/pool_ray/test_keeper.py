"""When a keeper starts its server, starts it again, and leaves it alone."""

from dataclasses import dataclass, field

import pytest
from tests.rows import each

from npucall.membership import DIRECTORY_PORT
from npucall_pool.keeper import MANY_SECONDS, NEEDS_A_PERSON, WAS_ASKED, Keeper, Phase
from npucall_pool.plan import PlannedDirectory
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


class KeptServer:
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
def kept() -> KeptServer:
    return KeptServer()


def test_a_server_serves_once_it_answers(kept: KeptServer) -> None:
    kept.serve()
    assert kept.after(1e6) is Phase.SERVING
    assert len(kept.children) == 1


@each("code", [-9, -11, 1, 70, 71, 72, 99])
def test_a_server_that_ended_is_started_again_after_half_a_second(code: int) -> None:
    kept = KeptServer()
    kept.serve()
    assert kept.end(code) is Phase.PAUSING
    assert kept.after(0.4) is Phase.PAUSING
    assert kept.after(0.2) is Phase.STARTING
    assert len(kept.children) == 2


def test_the_second_pause_is_longer(kept: KeptServer) -> None:
    kept.serve()
    kept.end(1)
    kept.after(0.5)
    assert kept.end(1) is Phase.PAUSING
    assert kept.after(1.9) is Phase.PAUSING
    assert kept.after(0.2) is Phase.STARTING


def test_after_three_ends_in_a_minute_it_stays_out_and_says_why(kept: KeptServer) -> None:
    kept.serve()
    for pause in 0.5, 2.0:
        kept.end(-9)
        kept.after(pause)
    assert kept.end(-9) is Phase.OUT
    assert kept.keeper.course.why == "3 ends in 60 s; the last one: signal 9: its last words"
    assert kept.after(1e6) is Phase.OUT
    assert kept.keeper.course.starts == 3


def test_ends_that_lie_further_apart_do_not_count_together(kept: KeptServer) -> None:
    kept.serve()
    for _ in range(10):
        assert kept.end(-9) is Phase.PAUSING
        kept.after(MANY_SECONDS / 2 + 1)
    assert kept.keeper.course.starts == 11


@each("code", [*NEEDS_A_PERSON, *WAS_ASKED])
def test_what_another_start_would_not_mend_is_not_started_again(code: int) -> None:
    kept = KeptServer()
    kept.serve()
    assert kept.end(code) is Phase.OUT
    assert kept.keeper.course.why.startswith(f"exit code {code}, it")


def test_the_codes_that_are_retried_are_those_of_the_documentation() -> None:
    left_alone = {code for code in {*NEEDS_A_PERSON, *WAS_ASKED} if code != 127}
    assert left_alone == {int(code) for code in ExitCode if not code.restart}


def test_a_server_that_cannot_be_started_is_out(kept: KeptServer) -> None:
    kept.fault = FileNotFoundError("expected a file, found none at /opt/npucall/bin/python")
    assert kept.after(0) is Phase.OUT
    assert kept.keeper.course.why.startswith("it cannot be started: expected a file, found none")


def test_one_that_is_out_is_started_again_when_a_person_says_so(kept: KeptServer) -> None:
    kept.serve()
    kept.end(2)
    kept.keeper.again()
    assert kept.after(0) is Phase.STARTING
    assert [kept.end(1), kept.after(0.5), kept.end(1)].count(Phase.PAUSING) == 2


def test_a_server_that_runs_is_not_started_again(kept: KeptServer) -> None:
    kept.serve()
    kept.keeper.again()
    assert kept.after(0) is Phase.SERVING
    assert len(kept.children) == 1


def test_a_stopped_server_is_asked_once_and_not_started_again(kept: KeptServer) -> None:
    kept.serve()
    kept.keeper.stop(30)
    kept.keeper.stop(30)
    assert kept.after(29) is Phase.STOPPING
    assert kept.end(0) is Phase.STOPPED
    assert kept.after(1e6) is Phase.STOPPED
    assert kept.children[0].said == ["terminate"]


def test_a_server_that_does_not_stop_in_time_is_killed(kept: KeptServer) -> None:
    kept.serve()
    kept.keeper.stop(30)
    assert kept.after(31) is Phase.STOPPING
    assert kept.children[0].said == ["terminate", "kill"]
    assert kept.after(0) is Phase.STOPPED
    assert kept.keeper.course.exit_code == -9


def test_a_server_that_is_about_to_be_started_again_is_stopped_at_once(kept: KeptServer) -> None:
    kept.serve()
    kept.end(1)
    kept.keeper.stop(30)
    assert kept.keeper.course.phase is Phase.STOPPED
    assert kept.after(10) is Phase.STOPPED
    assert len(kept.children) == 1


def test_the_directory_has_the_port_of_the_contract() -> None:
    assert PlannedDirectory().port == DIRECTORY_PORT

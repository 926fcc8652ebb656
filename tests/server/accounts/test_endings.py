"""Whose calls ended a process is remembered by the next one, and nobody else is slowed."""

import io
import json
from pathlib import Path

import pytest
from tests.rows import each
from tests.server.fakes import FakeClock, person

from npucall.errors import QueueFullError, QuotaError, Repeat
from npucall_server.access.identity import Identity, anybody
from npucall_server.accounts.endings import Endings
from npucall_server.telemetry.log import Log

ALICE, BOB = person("vision/alice"), person("vision/bob")


class Host:
    """Processes of a server, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.log = folder, FakeClock(), io.StringIO()

    def process(self) -> Endings:
        log, clock = Log(stream=self.log), self.clock
        started = Endings(self.folder, "cann:0", log, clock.wall, clock.monotonic)
        started.start()
        return started

    def ends_under(self, *people: Identity) -> Endings:
        """A process ends while these have turns; the next one."""
        process = self.process()
        for each_one in people:
            process.begins(each_one)
        return self.process()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_after_two_processes_calls_of_that_person_go_one_at_a_time_with_a_growing_pause(
    host: Host,
) -> None:
    """Before: seven calls of one person ended 14 servers in 15 s."""
    now = host.ends_under(ALICE)
    assert now.enter(ALICE) is None
    for pause in (1.0, 2.0, 4.0):
        now = host.ends_under(ALICE)
        first = now.enter(ALICE)
        assert first is not None
        with pytest.raises(QuotaError, match="vision/alice ended") as refused:
            now.enter(ALICE)
        assert refused.value.repeat is Repeat.LATER_HERE  # at this member of a pool
        assert now.enter(BOB) is None  # nobody else is slowed
        first.give_back()
        first.give_back()
        with pytest.raises(QuotaError) as early:
            now.enter(ALICE)
        assert early.value.retry_after == pytest.approx(pause)
        host.clock.advance(pause)
        again = now.enter(ALICE)
        assert again is not None
        again.give_back()
    assert now.slowed() == ["vision/alice"]


def test_who_was_beside_such_a_call_once_or_twice_is_not_slowed(host: Host) -> None:
    for _ in range(2):
        now = host.ends_under(ALICE, BOB)
    assert not now.slowed()
    now = host.ends_under(ALICE)
    assert now.slowed() == ["vision/alice"]


@each("end", ["drained", "idle", "stranger", "given back"])
def test_nobody_is_charged_for_an_end_without_calls_of_a_known_person(
    tmp_path_factory: pytest.TempPathFactory, end: str
) -> None:
    host = Host(tmp_path_factory.mktemp("state"))
    for _ in range(3):
        process = host.process()
        if end == "stranger":
            process.begins(anybody("ipv4:127.0.0.1:4711"))
        elif end != "idle":
            process.begins(ALICE)
        if end == "given back":
            process.is_over(ALICE)
        if end == "drained":
            process.drained()
    now = host.process()
    assert not now.slowed()
    assert now.undrained == (0 if end == "drained" else 3)
    assert host.log.getvalue().count("ended without drain") == now.undrained


def test_an_administrator_lifts_it_and_time_does_too(host: Host) -> None:
    for _ in range(3):
        now = host.ends_under(ALICE)
    file = host.folder / "endings-cann-0.json"
    assert json.loads(file.read_text())["people"]["vision/alice"][0] == 3
    now.lift("vision/alice")
    now.lift("vision/bob")
    assert (now.slowed(), now.enter(ALICE)) == ([], None)
    for _ in range(2):
        now = host.ends_under(ALICE)
    file.unlink()
    now.look()
    assert (now.slowed(), now.enter(ALICE)) == ([], None)
    for _ in range(2):
        now = host.ends_under(ALICE)
    assert now.slowed()
    host.clock.advance(3601)
    assert (now.slowed(), now.enter(ALICE)) == ([], None)
    file.write_text("{half")
    now.look()
    assert not now.slowed()


def test_what_the_pool_knows_counts_too_and_another_member_may_have_to_take_the_calls(
    host: Host,
) -> None:
    now = host.ends_under(ALICE)  # one: too few by itself
    now.hear({"vision/alice": (3.0, "npu-b:1")})
    with pytest.raises(QueueFullError, match="only npu-b:1 takes them") as refused:
        now.enter(ALICE)
    assert refused.value.repeat is Repeat.LATER  # another member of the pool may take it
    assert now.enter(BOB) is None
    now.hear({"vision/alice": (3.0, "")})
    turnstile = now.enter(ALICE)
    assert turnstile is not None
    turnstile.give_back()
    host.clock.advance(31)  # no directory has said so again
    assert now.enter(ALICE) is None


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        Host(tmp_path / "nowhere").process()

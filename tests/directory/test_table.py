"""The table of a directory, beside a model that remembers everything that was ever said."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from npucall.errors import QueueFullError
from npucall_server.directory.table import Beat, MemberTable, ReportedState

ADDRESSES = ["a:1", "b:1", "c:2"]
INSTANCES = ["x", "y", "z"]
MOST, MOST_OF_CALLER = 3, 2


def beat(
    address: str = "a:1",
    instance: str = "x",
    sequence: int = 1,
    state: ReportedState = ReportedState.SERVING,
    body: bytes = b"",
) -> Beat:
    return Beat(address, instance, sequence, state, body)


def shown(table: MemberTable) -> dict[str, tuple[Beat, bool]]:
    changes = table.since(0)
    assert changes is not None
    return {each.beat.address: (each.beat, each.suspect) for each in changes.members}


@dataclass
class Watcher:
    """One who is told of changes, and puts them together as a client does."""

    version: int = 0
    members: dict[str, tuple[bytes, bool, ReportedState]] = field(default_factory=dict)

    def look(self, table: MemberTable) -> None:
        changes = table.since(self.version)
        if changes is None:  # begins anew, as the end of its stream makes a client do
            self.version, self.members = 0, {}
            changes = table.since(0)
            assert changes is not None
        for name in changes.gone:
            self.members.pop(name, None)  # it may have come and gone in between
        for each in changes.members:
            self.members[each.beat.address] = (each.beat.body, each.suspect, each.beat.state)
        self.version = changes.version


class Tables(RuleBasedStateMachine):
    """Beats in any order, of several instances and callers, silence, ends."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.table = MemberTable(self.now, MOST, MOST_OF_CALLER)
        self.heard: dict[str, tuple[Beat, str, float]] = {}
        self.ended: dict[tuple[str, str], float] = {}
        self.watchers = [Watcher(), Watcher()]

    @rule(
        address=st.sampled_from(ADDRESSES),
        instance=st.sampled_from(INSTANCES),
        sequence=st.integers(1, 6),
        state=st.sampled_from(ReportedState),
        body=st.sampled_from([b"idle", b"busy"]),
        caller=st.sampled_from(["one", "two"]),
    )
    def announces(
        self,
        address: str,
        instance: str,
        sequence: int,
        state: ReportedState,
        body: bytes,
        caller: str,
    ) -> None:
        said = Beat(address, instance, sequence, state, body)
        before = self.heard.get(address)
        counts = self.ended.get((address, instance)) is None and (
            before is None or before[0].instance != instance or before[0].sequence < sequence
        )
        if counts and state is ReportedState.GONE:
            if before is not None and before[0].instance == instance:
                del self.heard[address]
                self.ended[address, instance] = self.now
                if len(self.ended) > MOST:  # it remembers no more ends than it takes members
                    del self.ended[next(iter(self.ended))]
        elif counts and self.has_room(address, caller):
            self.heard[address] = (said, caller, self.now)
        elif counts:
            with pytest.raises(QueueFullError):
                self.table.beat(said, caller, self.now)
            return
        self.table.beat(said, caller, self.now)

    def has_room(self, address: str, caller: str) -> bool:
        if address in self.heard and self.heard[address][1] == caller:
            return True
        of_caller = [each for each in self.heard.values() if each[1] == caller]
        is_known = address in self.heard or len(self.heard) < MOST
        return is_known and len(of_caller) < MOST_OF_CALLER

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5, 3.0, 20.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.table.look(self.now)
        self.heard = {
            address: each for address, each in self.heard.items() if self.now - each[2] < 30
        }
        self.ended = {who: at for who, at in self.ended.items() if self.now - at < 30}
        self.looked = self.now

    @rule(which=st.integers(0, 1))
    def one_watches(self, which: int) -> None:
        self.watchers[which].look(self.table)
        assert self.watchers[which].members == {
            address: (said.body, suspect, said.state)
            for address, (said, suspect) in self.expected().items()
        }

    @invariant()
    def shows_what_was_said(self) -> None:
        assert shown(self.table).keys() == self.expected().keys()
        for address, (said, suspect) in self.expected().items():
            found, is_suspect = shown(self.table)[address]
            assert is_suspect == suspect
            assert (found.instance, found.state, found.body) == (
                said.instance,
                said.state,
                said.body,
            )

    def expected(self) -> dict[str, tuple[Beat, bool]]:
        """Suspect is what was silent for 3 s when somebody last looked."""
        looked = getattr(self, "looked", self.now)
        return {address: (said, looked - at >= 3) for address, (said, _, at) in self.heard.items()}


Tables.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_table_shows_what_the_model_says = Tables.TestCase


def test_another_load_can_wait_and_another_state_or_the_end_of_suspicion_cannot() -> None:
    table = MemberTable(0.0)
    said = beat()
    table.beat(said, "one", 0.0)
    for now, changed, is_change, is_urgent in (
        (1.0, {}, False, False),
        (2.0, {"body": b"busy"}, True, False),
        (3.0, {"state": ReportedState.DRAINING}, True, True),
        (8.0, {}, True, True),
    ):
        table.look(now)
        table.is_urgent, before = False, table.version
        said = said._replace(sequence=said.sequence + 1, **changed)
        table.beat(said, "one", now)
        assert (table.version > before, table.is_urgent) == (is_change, is_urgent), now


def test_the_table_is_complete_when_every_server_had_time_for_a_beat() -> None:
    table = MemberTable(50.0)
    assert [table.is_complete(now) for now in (50.0, 52.9, 53.0)] == [False, False, True]


def test_ten_thousand_restarts_leave_no_more_behind_than_the_table_may_hold() -> None:
    table = MemberTable(0.0, most=10)
    for number in range(10_000):
        table.beat(beat(f"h:{number + 1}", f"i{number}"), "one", 0.0)
        table.beat(beat(f"h:{number + 1}", f"i{number}", 2, ReportedState.GONE), "one", 0.0)
    assert len(table._gone) <= 10
    assert len(table._ended) <= 10
    assert not table._heard
    assert not table._of_callers
    assert table.since(1) is None

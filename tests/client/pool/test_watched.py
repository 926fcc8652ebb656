"""What counts of what directories say, and what the members of a pool answer together."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.pool.members import Load, Member, MemberState
from npucall_client.pool.sources.changes import Changes
from npucall_client.pool.sources.known_members import KnownMembers
from npucall_client.pool.sums import sum_of_activity, sum_of_usage

ADDRESSES = st.sampled_from([f"m{number}:1" for number in range(5)])
MEMBERS = st.builds(
    Member,
    ADDRESSES,
    state=st.sampled_from(MemberState),
    load=st.builds(Load, *[st.integers(0, 9)] * 4, reserved=st.booleans()),
)


class ADirectoryIsWatched(RuleBasedStateMachine):
    """A directory that starts anew at times, and what a client should know of it."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = KnownMembers()
        self.table: dict[str, Member] = {}
        """Of the directory that is watched."""
        self.old: dict[str, Member] = {}
        """What was known when it began, and has not been said since."""
        self.epoch = 0
        self.complete = False

    @initialize()
    def first(self) -> None:
        self.starts_anew({})

    def say(self, changed: list[Member], gone: list[str]) -> None:
        self.watched.hear(Changes(self.epoch, self.complete, changed, gone))
        for address in [*gone, *(member.address for member in changed)]:
            self.old.pop(address, None)
        if self.complete and self.table:
            self.old = {}

    def begin(self, table: dict[str, Member]) -> None:
        self.old |= self.table
        self.table = table
        self.watched.begin()
        self.say([*table.values()], [])

    @rule(members=st.dictionaries(ADDRESSES, MEMBERS, max_size=3))
    def starts_anew(self, members: dict[str, Member]) -> None:
        self.epoch, self.complete = self.epoch + 1, False
        self.begin({member.address: member for member in members.values()})

    @rule()
    def the_stream_ends_and_begins(self) -> None:
        self.begin(self.table)

    @rule()
    def is_complete(self) -> None:
        self.complete = True
        self.say([], [])

    @rule(member=MEMBERS)
    def says_a_member(self, member: Member) -> None:
        self.table = self.table | {member.address: member}
        self.say([member], [])

    @rule(address=ADDRESSES)
    def says_that_one_is_gone(self, address: str) -> None:
        self.table = {key: member for key, member in self.table.items() if key != address}
        self.say([], [address])

    @rule()
    def nobody_answers(self) -> None:
        self.watched.forget_loads()
        assert not any(self._is_busy(member) for member in self.watched.members)
        self.begin(self.table)

    @invariant()
    def all_are_known(self) -> None:
        known = {member.address: member for member in self.watched.members}
        assert known.keys() == {**self.old, **self.table}.keys()
        assert {address: known[address] for address in self.table} == self.table
        assert self.watched.complete == self.complete

    def _is_busy(self, member: Member) -> Any:
        load = member.load
        return load and (load.running or load.waiting or load.bytes_in_flight or load.reserved)


TestADirectoryIsWatched = ADirectoryIsWatched.TestCase
TestADirectoryIsWatched.settings = settings(max_examples=40, deadline=None)


def used(caller: str, calls: int, **refusals: int) -> access.UsageLine:
    return access.UsageLine(
        tenant="t", caller=caller, operator="o", calls=calls, request_bytes=10 * calls,
        response_bytes=20 * calls, device_seconds=0.5 * calls, refusals=refusals,
    )  # fmt: skip


def test_lines_of_one_caller_and_operator_become_one() -> None:
    one = access.GetUsageResponse(since=5.0, lines=[used("b", 1, BUSY=1), used("c", 7)])
    two = access.GetUsageResponse(since=9.0, lines=[used("a", 2), used("b", 3, BUSY=2, QUOTA=1)])
    total = sum_of_usage([one, two])
    assert total.since == 9.0  # all of it is known from then on
    assert list(total.lines) == [used("a", 2), used("b", 4, BUSY=3, QUOTA=1), used("c", 7)]


def test_callers_of_several_members_become_one_and_what_is_busy_adds_up() -> None:
    def active(name: str, count: int) -> access.CallerActivity:
        return access.CallerActivity(
            caller=pb.CallerInfo(tenant="t", name=name), calls=count, bytes=count, streams=count,
            device_seconds=count, calls_answered=count, calls_in_frames=count,
        )  # fmt: skip

    def answer(count: int, *callers: access.CallerActivity) -> access.GetActivityResponse:
        return access.GetActivityResponse(
            callers=callers, running=count, waiting=count, lanes=count, device_seconds=count
        )

    total = sum_of_activity([answer(1, active("a", 1)), answer(2, active("b", 5), active("a", 2))])
    assert total == answer(3, active("a", 3), active("b", 5))

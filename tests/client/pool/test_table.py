"""Which member of a pool gets a call: of those that fit, serve, and have little to do."""

import heapq
import itertools
from collections import Counter
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.rows import each

from npucall.errors import (
    InternalError,
    MixedPoolError,
    NoMemberError,
    Repeat,
    ServerUnreachableError,
)
from npucall.limits import MIB
from npucall_client.pool.links import Links
from npucall_client.pool.members import Load, Member, MemberState
from npucall_client.pool.picking import Requirements, Wanted
from npucall_client.pool.table import Table
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS
from npucall_client.settings import ClientSettings
from npucall_client.targets import ANY

DOWN, BUG = ServerUnreachableError("down"), InternalError("bug")


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def member(address: str, **said: Any) -> Member:
    return Member(address, **{"instance": "1", "soc": "A", "device": "cpu", **said})


def table(*members: Member, wish: Requirements | None = None) -> tuple[Table[Any], Clock]:
    """A pool in which each member has said what it is."""
    clock = Clock()
    made: Table[Any] = Table(wish or Requirements(), clock=clock)
    made.update(members, complete=True)
    prove(made)
    return made, clock


def prove(pool: Table[Any], *addresses: str) -> None:
    """These members say what they are; if none is named, all that have not done so."""
    for known in pool.known.values():
        if known.address in addresses or not (addresses or known.is_proved):
            known.link = object()
            pool.learn(known, known.member)
            pool.asked(known, None)


def taken(pool: Table[Any], count: int, wanted: Wanted | None = None) -> Counter[str]:
    """Who gets calls that end at once."""
    addresses: Counter[str] = Counter()
    for _ in range(count):
        candidate = pool.take(wanted or Wanted())
        assert candidate is not None
        addresses[candidate.address] += 1
        pool.give_back(candidate, 0, well=True)
    return addresses


@each(("members", "calls"), [(4, 4000), (24, 24_000)])
def test_calls_spread_over_all_that_have_nothing_to_do(members: int, calls: int) -> None:
    pool, _ = table(*(member(f"{number}:1") for number in range(members)))
    taken(pool, 1000)
    counts = taken(pool, calls)
    assert len(counts) == members
    assert min(counts.values()) > 800


@pytest.mark.more
@each("says", [False, True])
@each("large", [MIB, 16 * MIB])
def test_members_have_equally_much_to_do_under_many_clients(large: int, *, says: bool) -> None:
    """30 clients of 24 members, for whom time passes as they work, so that load does not matter.

    ``says``: each second all members say what they have to do, as a directory passes it on.
    """
    addresses = [f"{number}:1" for number in range(24)]
    pools = [table(*map(member, addresses))[0] for _ in range(30)]
    sizes = [itertools.islice(itertools.cycle([1, 1, 1, large]), n, None) for n in range(30)]
    free_at, done = dict.fromkeys(addresses, 0.0), Counter[str]()
    under_way: list[tuple[float, int, Any, int]] = [(0.0, n, None, 0) for n in range(30)]
    says_at = 1.0
    for _ in range(120_000):
        now = under_way[0][0]
        if says and now >= says_at:
            says_at += 1.0
            tell_all(pools, addresses, under_way)
        _, number, place, nbytes = heapq.heappop(under_way)
        if place is not None:
            pools[number].give_back(place, nbytes, well=True)
        nbytes = next(sizes[number])
        place = pools[number].take(Wanted(nbytes=nbytes))
        work = 1 + nbytes / MIB
        done[place.address] += work
        free_at[place.address] = max(now, free_at[place.address]) + work / 200
        heapq.heappush(under_way, (free_at[place.address], number, place, nbytes))
    assert len(done) == 24
    assert max(done.values()) <= 1.3 * min(done.values())


def tell_all(pools: list[Table[Any]], addresses: list[str], under_way: list[Any]) -> None:
    """Each client hears what each member has to do."""
    calls, sent = Counter[str](), Counter[str]()
    for _, _, place, nbytes in under_way:
        if place is not None:
            calls[place.address] += 1
            sent[place.address] += nbytes
    loads = {each: Load(calls[each], 0, 1, sent[each], reserved=False) for each in addresses}
    for pool in pools:
        pool.update([member(name, load=load) for name, load in loads.items()], complete=True)


def test_of_two_the_one_with_less_to_do_gets_the_call_and_bytes_count() -> None:
    pool, _ = table(member("a:1"), member("b:1"))
    large = pool.take(Wanted(nbytes=2**30))
    assert large is not None
    others = taken(pool, 100)
    assert large.address not in others


def test_what_others_do_there_counts_and_lanes_share_it() -> None:
    busy = Load(3, 5, 1, 0, reserved=False)
    wide = Load(3, 5, 16, 0, reserved=False)
    pool, _ = table(member("a:1", load=busy), member("b:1", load=wide))
    assert taken(pool, 50) == {"b:1": 50}


def test_own_calls_are_not_counted_a_second_time_in_what_the_member_says() -> None:
    pool, _ = table(member("a:1", load=Load(0, 0, 1, 0, reserved=False)))
    own = pool.take()
    assert own is not None
    pool.update([member("a:1", load=Load(1, 0, 1, 0, reserved=False))], complete=True)
    assert own.work == 1.0


@each(
    "wish", [Requirements(soc="B"), Requirements(product="P2"), Requirements(labels={"rack": "7"})]
)
def test_only_members_that_fit_the_wish_are_called(wish: Requirements) -> None:
    fits = member("b:1", soc="B", product="P2", labels={"rack": "7"})
    pool, _ = table(member("a:1", product="P1"), fits, wish=wish)
    assert taken(pool, 20) == {"b:1": 20}


def test_members_of_another_major_version_are_left_out_and_named_where_nobody_fits() -> None:
    other = member("a:1", version="99.1")
    assert taken(table(other, member("b:1"))[0], 20) == {"b:1": 20}
    with pytest.raises(NoMemberError, match=r"A on cpu of version 99\.1, while this client has"):
        table(other)[0].take()
    with pytest.raises(NoMemberError, match=r"soc B, found 1 others \(A on cpu\)"):
        table(member("a:1"), wish=Requirements(soc="B"))[0].take()


def begun(*members: Member, wish: Requirements | None = None, dead: str = "") -> Table[Any]:
    """A pool of which one member cannot be reached."""
    pool: Table[Any] = Table(wish or Requirements())
    pool.update(members, complete=True)
    for known in pool.to_ask():
        if known.address == dead:
            pool.asked(known, DOWN)
        else:
            prove(pool, known.address)
    return pool


A1, A2, B1, N1 = (
    member("a:1"), member("a:2"), member("b:1", soc="B"), member("n:1", device="cann:0")
)  # fmt: skip
ANYTHING = Requirements(soc=ANY)


def test_the_kind_of_a_pool_is_that_of_most_living_members_and_the_odd_one_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = begun(A1, A2, B1)
    assert pool.begins()
    assert set(taken(pool, 50)) == {"a:1", "a:2"}
    pool.update([A1, A2, B1, member("b:2", soc="B"), N1], complete=True)
    assert [record.getMessage() for record in caplog.records] == [
        f"pool: {address} gets no calls: it is {kind}, the pool is A on cpu"
        for address, kind in (("b:1", "B on cpu"), ("b:2", "B on cpu"), ("n:1", "A on cann"))
    ]
    pool.update([B1, N1], complete=True)  # results never change: it is not another pool now
    with pytest.raises(NoMemberError, match=r"when this client connected \(A on cpu\), found 2"):
        pool.take()


@each(
    ("members", "dead", "called"),
    [
        ([A1, B1], "b:1", {"a:1"}),  # who cannot be reached has no kind
        ([A1, member("b:1", soc="B", state=MemberState.DRAINING)], "", {"a:1"}),
        ([A1, member("b:1", soc="")], "b:1", {"a:1"}),
    ],
)
def test_who_does_not_live_has_no_kind(members: list[Member], dead: str, called: set[str]) -> None:
    pool = begun(*members, dead=dead)
    assert pool.begins()
    assert set(taken(pool, 20)) == called


def test_where_no_kind_is_that_of_most_members_it_has_to_be_chosen() -> None:
    with pytest.raises(MixedPoolError, match=r"A on cpu: a:1; B on cpu: b:1"):
        begun(A1, B1).begins()
    with pytest.raises(MixedPoolError, match=r"A on cann: n:1; A on cpu: a:1"):
        begun(A1, N1).begins()
    for wish, called in ((ANYTHING, {"a:1", "b:1"}), (Requirements(soc="B"), {"b:1"})):
        pool = begun(A1, B1, wish=wish)
        assert pool.begins()
        assert set(taken(pool, 50)) == called


def test_what_others_say_of_dead_members_decides_nothing() -> None:
    """Somebody has announced six dead members of another kind: all of them are asked."""
    pool: Table[Any] = Table(Requirements())
    dead = [member(f"b:{number}", soc="B") for number in range(6)]
    pool.update([A1, *dead], complete=True)
    prove(pool, "a:1")
    assert not pool.begins()
    while asked := pool.to_ask():
        for known in asked:
            assert known.address.startswith("b")
            pool.asked(known, DOWN)
    assert pool.begins()
    assert taken(pool, 10) == {"a:1": 10}


def test_members_that_have_not_said_what_they_are_get_no_calls() -> None:
    pool: Table[Any] = Table(Requirements())
    pool.update([A1, A2], complete=True)
    assert pool.take() is None
    prove(pool, "a:2")
    assert taken(pool, 10) == {"a:2": 10}
    assert pool.take(tried=["a:2"]).address == "a:1"  # type: ignore[union-attr]  # where it must be
    pool.update([A1, member("a:2", instance="2")], complete=True)  # another process
    assert pool.take() is None
    assert {each.address for each in pool.to_ask()} == {"a:1", "a:2"}


def test_more_are_asked_at_a_time_while_nobody_answers() -> None:
    pool: Table[Any] = Table(Requirements())
    pool.update([member(f"{number}:1") for number in range(200)], complete=True)
    asked = [len(pool.to_ask()) for _ in range(8)]
    assert asked == [4, 4, 8, 16, 32, 0, 0, 0]  # 64 are under way


def test_a_member_with_five_errors_of_its_own_in_a_row_rests_but_never_more_than_half() -> None:
    pool, clock = table(member("a:1"), member("b:1"), member("c:1"))
    broken, other = pool.of("a:1"), pool.of("b:1")
    assert broken is not None
    assert other is not None
    for _ in range(2):
        for _ in range(4):
            pool.erred(broken, BUG)
        pool.give_back(broken, 0, well=True)  # in a row
    for _ in range(5):
        pool.erred(broken, BUG)
        pool.erred(other, BUG)
    assert set(taken(pool, 50)) == {"b:1", "c:1"}
    for rest in (1, 2, 4):
        clock.now += rest
        assert pool.to_ask() == [broken]
        pool.asked(broken, None)
        pool.erred(broken, BUG)  # it has answered no call since
        assert set(taken(pool, 50)) == {"b:1", "c:1"}


def test_those_that_drain_get_none_suspects_and_those_reserved_only_the_last() -> None:
    reserved = Load(0, 0, 1, 0, reserved=True)
    pool, _ = table(
        member("a:1", state=MemberState.DRAINING),
        member("b:1", load=reserved),
        member("c:1", state=MemberState.SUSPECT),
        member("d:1"),
    )
    assert taken(pool, 20) == {"d:1": 20}
    assert pool.take(tried=["d:1"]).address == "c:1"  # type: ignore[union-attr]
    assert pool.take(tried=["d:1", "c:1"]).address == "b:1"  # type: ignore[union-attr]
    assert pool.take(tried=["d:1", "c:1", "b:1"]) is None
    assert pool.take(only=["b:1"]).address == "b:1"  # type: ignore[union-attr]


def test_a_call_goes_where_its_operator_is_and_anywhere_if_nobody_has_it() -> None:
    pool, _ = table(member("a:1", catalogue=1), member("b:1", catalogue=2))
    pool.catalogues.update({1: frozenset({("x", "")}), 2: frozenset({("x", ""), ("y", "")})})
    assert taken(pool, 20, Wanted("y")) == {"b:1": 20}
    assert len(taken(pool, 100, Wanted("x"))) == 2
    assert len(taken(pool, 100, Wanted("z"))) == 2  # so that a server says that it is unknown


def test_a_call_goes_where_there_is_room_for_its_bytes() -> None:
    pool, _ = table(member("a:1", memory_limit=100), member("b:1", memory_limit=1000))
    assert taken(pool, 20, Wanted(nbytes=500)) == {"b:1": 20}
    assert sum(taken(pool, 20, Wanted(nbytes=5000)).values()) == 20  # the server refuses it


def test_another_machine_is_asked_first_behind_one_that_broke_off() -> None:
    pool, _ = table(member("a:1"), member("a:2"), member("b:1"))
    for _ in range(20):
        candidate = pool.take(tried=["a:1"], hosts=["a"])
        assert candidate is not None
        assert candidate.address == "b:1"
        pool.give_back(candidate, 0, well=True)


def test_who_failed_rests_twice_as_long_each_time_and_is_asked_before_it_is_called() -> None:
    pool, clock = table(member("a:1"), member("b:1"))
    failing = pool.of("a:1")
    assert failing is not None
    for rest in (1, 2, 4, 8, 16, 30, 30):
        pool.failed(failing, DOWN)
        pool.failed(failing, DOWN)  # of many calls at once
        assert taken(pool, 10) == {"b:1": 10}
        clock.now += rest - 0.01
        assert pool.to_ask() == []
        clock.now += 0.02
        assert pool.to_ask() == [failing]
        assert pool.to_ask() == []
        assert taken(pool, 10) == {"b:1": 10}
        pool.asked(failing, None)  # it is called again, and fails again
    pool.failed(failing, DOWN)
    pool.update([member("a:1", instance="2"), member("b:1")], complete=True)
    assert pool.to_ask() == [failing]  # another process is asked at once


def test_where_nobody_serves_all_are_asked_again_soon() -> None:
    pool, clock = table(member("a:1"), member("b:1"))
    for known in pool.known.values():
        pool.failed(known, DOWN)
    assert pool.take() is None
    assert pool.to_ask() == []
    clock.now += 0.11
    assert len(pool.to_ask()) == 2


def test_a_source_that_may_not_know_all_removes_none() -> None:
    pool, _ = table(member("a:1"), member("b:1"))
    assert pool.update([member("a:1")], complete=False) == []
    assert set(pool.known) == {"a:1", "b:1"}
    assert [each.address for each in pool.update([member("a:1")], complete=True)] == ["b:1"]


def test_a_client_that_has_called_little_keeps_to_few_members() -> None:
    pool: Table[Any] = Table(Requirements())
    pool.update([member(f"h{number}:1") for number in range(24)], complete=True)

    def connect() -> int:
        for known in pool.to_ask():
            prove(pool, known.address)
        return sum(known.is_proved for known in pool.known.values())

    assert connect() == 4
    taken(pool, 31)
    assert connect() == 4
    under_way = [pool.take() for _ in range(200) if connect()]
    assert len({each.address for each in under_way if each}) == 24


def test_a_member_that_is_asked_for_one_call_is_not_called_against_the_wish() -> None:
    """Several threads want a member that nobody knows; the first one asks it, the others wait."""
    table: Table[Any] = Table(Requirements(labels={"kind": "cpu"}))
    table.update([Member("a:1")], complete=True)
    picked = table.take(only=["a:1"])
    assert picked is not None
    link = picked.link = cast("Any", object())
    links = Links(ClientSettings(target="pool:a:1"), table, THREADS)
    for kind in ("cpu", "npu"):
        told = Member("a:1", instance="1", soc="A", device="cann:0", labels={"kind": kind})
        table.learn(picked, told)
        if kind == "cpu":
            assert finished(links.of(picked, 1.0)) is link
            continue
        with pytest.raises(NoMemberError, match="kind=cpu") as raised:
            finished(links.of(picked, 1.0))
        assert raised.value.repeat is Repeat.ELSEWHERE


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: calls go to members that are listed and serve."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.clock = table()
        self.listed: set[str] = set()
        self.resting: set[str] = set()
        self.under_way: list[Any] = []

    @rule(numbers=st.sets(st.integers(0, 6), max_size=6), complete=st.booleans())
    def source_lists(self, numbers: set[int], complete: bool) -> None:
        addresses = {f"h{number}:1" for number in numbers}
        gone = self.pool.update([member(each) for each in sorted(addresses)], complete=complete)
        prove(self.pool)
        assert {each.address for each in gone} == (self.listed - addresses if complete else set())
        self.listed = addresses if complete else self.listed | addresses
        self.resting &= self.listed

    @rule(nbytes=st.sampled_from([0, 4096, 2**26]))
    def call_begins(self, nbytes: int) -> None:
        candidate = self.pool.take(Wanted(nbytes=nbytes))
        if candidate is None:
            assert self.resting == self.listed
        else:
            assert candidate.address in self.listed - self.resting
            self.under_way.append((candidate, nbytes))

    @precondition(lambda self: self.under_way)
    @rule(well=st.booleans())
    def call_ends(self, well: bool) -> None:
        candidate, nbytes = self.under_way.pop()
        self.pool.give_back(candidate, nbytes, well=well)
        if not well and self.pool.of(candidate.address) is candidate:
            self.pool.failed(candidate, DOWN)
            self.resting.add(candidate.address)

    @rule(seconds=st.sampled_from([0.5, 2.0, 40.0]), serves=st.booleans())
    def time_passes(self, seconds: float, serves: bool) -> None:
        self.clock.now += seconds
        for candidate in self.pool.to_ask():
            assert candidate.address in self.resting
            self.pool.asked(candidate, None if serves else DOWN)
            if serves:
                self.resting.discard(candidate.address)

    @invariant()
    def nothing_is_counted_that_is_over(self) -> None:
        busy = {id(candidate) for candidate, _ in self.under_way}
        for known in self.pool.known.values():
            assert bool(known.own) == (id(known) in busy)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, deadline=None)

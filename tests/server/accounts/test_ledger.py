"""Room: parts of what callers share, what may be on its way in, memory that is kept."""

import gc
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from tests.more import every_third
from tests.server.fakes import PATIENCE, FakeCaller

from npucall.limits import FRAME_BYTES, GIB, KIB, MIB
from npucall_server.accounts import giving_way
from npucall_server.accounts import ledger as module
from npucall_server.accounts.budget import HEALTH_MESSAGES, LISTING_MESSAGES, Budget
from npucall_server.accounts.ledger import Entry, Ledger, Quota
from npucall_server.scheduling.kept_memory import IdleMemory, KeptMemory, StrayMemory
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.tenants import Tenant, Tenants


class FullError(Exception):
    """What the ledgers here refuse with."""


def holder(name: str) -> FakeCaller:
    return FakeCaller(peer=name)


def of(limit: int) -> Ledger:
    return Ledger(limit, FullError)  # type: ignore[arg-type]


def test_who_holds_more_than_half_gives_way_the_newest_first() -> None:
    subject = of(10)
    ended: list[int] = []

    def hog(number: int) -> Entry:
        entry: Entry = subject.take(
            holder("hog"),
            2,
            lambda: (ended.append(number), entry.give_back()),
        )
        return entry

    for number in range(5):
        hog(number)
    subject.take(holder("other"), 3)
    assert ended == [4, 3]
    assert subject.used == 9


@pytest.mark.parametrize(
    ("held", "asks", "amount"),
    [
        ([("a", 5, True), ("b", 5, True)], "c", 1),  # who holds half keeps it
        (
            [("hog", 8, False), ("hog", 2, True)],
            "other",
            4,
        ),  # it would be in vain: 8 cannot be ended
        ([("hog", 10, True)], "other", 6),  # who asks for more than half
        ([("hog", 10, True)], "hog", 1),  # one's own do not give way to oneself
    ],
)
def test_nobody_is_ended(held: list[tuple[str, int, bool]], asks: str, amount: int) -> None:
    subject = of(10)
    for name, size, may_end in held:
        subject.take(holder(name), size, pytest.fail if may_end else None)
    with pytest.raises(FullError):
        subject.take(holder(asks), amount)


def test_who_does_not_give_way_in_time_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GIVE_WAY_SECONDS", 0.05)
    subject = of(10)
    told = threading.Event()
    subject.take(holder("hog"), 10, told.set)
    with pytest.raises(FullError):
        subject.take(holder("other"), 1)
    assert told.is_set()
    assert subject.owners == {"hog": 10}


def test_what_was_told_to_end_too_late_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GIVE_WAY_SECONDS", 0.05)
    subject = of(10)
    entry = subject.take(holder("hog"), 10)
    entry.yields = entry.must_stay  # it begins to run this moment
    with pytest.raises(FullError):
        subject.take(holder("other"), 1)
    monkeypatch.setattr(module, "_GIVE_WAY_SECONDS", PATIENCE)
    with pytest.raises(FullError):
        subject.take(holder("other"), 1)  # at once
    assert not entry.leaving


def test_what_is_idle_gives_way_however_little_its_owner_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(giving_way, "IDLE_SECONDS", 0.0)
    subject = of(2)
    entry = subject.take(holder("a"), 1)
    entry.yields = entry.give_back
    entry.idle_since = 0.0
    subject.take(holder("b"), 1, pytest.fail)
    subject.take(holder("c"), 1)
    assert (subject.held("a"), subject.held("c")) == (0, 1)


def test_who_has_more_than_half_does_not_get_what_was_given_back_for_another() -> None:
    subject = of(10)
    entries = [subject.take(holder("hog"), 2) for _ in range(5)]
    asked, got = threading.Event(), []
    entries[4].yields = asked.set
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: got.append(subject.take(holder("other"), 2)))
        assert asked.wait(PATIENCE)
        with pytest.raises(FullError):
            subject.take(holder("hog"), 1)
        entries[4].give_back()
    assert [entry.owner for entry in got] == ["other"]


@pytest.mark.parametrize("seed", every_third(range(3)))
def test_whatever_threads_do_the_sum_is_right_and_never_above_the_limit(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(module, "_GIVE_WAY_SECONDS", 0.01)
    subject = of(100)
    above: list[int] = []

    def work(owner: int) -> None:
        rolls = random.Random(seed * 100 + owner)
        mine: list[Entry] = []
        for _ in range(300):
            if mine and rolls.random() < 0.5:
                mine.pop(rolls.randrange(len(mine))).give_back()
            try:
                entry: Entry = subject.take(
                    holder(f"{owner % 3}"), rolls.randint(1, 40), lambda: None
                )
            except FullError:
                continue
            mine.append(entry)
            if subject.used > subject.limit:
                above.append(subject.used)
        for entry in mine:
            entry.give_back()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    gc.collect()
    assert above == []
    assert (subject.used, subject.owners, subject.waiting) == (0, {}, {})


# --- The tree: what a tenant and a session may hold -----------------------------------------------


class TenantFullError(Exception):
    """What a tenant's quota refuses with."""


def by_tenant(**limits: int) -> tuple[Ledger, Tenants]:
    """Ten for all, and ``streams`` for tenants with such a limit."""
    tenants = Tenants({name: Tenant(streams=limit) for name, limit in limits.items()})
    quota = Quota(tenants, "streams", TenantFullError)  # type: ignore[arg-type]
    return Ledger(10, FullError, quota), tenants  # type: ignore[arg-type]


def who(name: str) -> FakeCaller:
    return FakeCaller(who=name)


def test_a_tenant_holds_what_all_of_its_callers_hold_and_no_more_than_its_limit() -> None:
    subject, _ = by_tenant(lab=3)
    held = [subject.take(who("lab/a"), 1), subject.take(who("lab/b"), 2)]
    with pytest.raises(TenantFullError):
        subject.take(who("lab/c"), 1)
    subject.take(who("other/a"), 7)
    with pytest.raises(FullError):
        subject.take(who("none/a"), 1)
    held.pop().give_back()
    assert subject.take(who("lab/c"), 2).amount == 2


def test_a_limit_of_a_tenant_is_the_one_that_is_set_now() -> None:
    subject, tenants = by_tenant(lab=1)
    subject.take(who("lab/a"), 1)
    tenants.replace({"lab": Tenant(streams=2)})
    subject.take(who("lab/a"), 1)
    tenants.replace({"lab": Tenant(streams=1)})
    with pytest.raises(TenantFullError):
        subject.take(who("lab/a"), 0)
    tenants.replace({})
    subject.take(who("lab/a"), 8)


def test_who_waits_gets_no_more_than_its_tenant_may_have_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_GIVE_WAY_SECONDS", PATIENCE)
    subject, tenants = by_tenant(lab=3)
    hog = [subject.take(who("hog/a"), 3) for _ in range(3)]
    asked = threading.Event()
    hog[-1].yields = asked.set
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(subject.take, who("lab/a"), 3)
        assert asked.wait(PATIENCE)
        tenants.replace({"lab": Tenant(streams=2)})
        subject.take(who("lab/b"), 1).give_back()  # it finds the new limit
        hog.pop().give_back()
        assert subject.owners == {"hog/a": 6}
        tenants.replace({})
        subject.take(who("lab/b"), 1).give_back()
        assert asking.result(PATIENCE).amount == 3


def test_a_child_has_a_limit_of_its_own_and_counts_for_its_tenant_and_for_all() -> None:
    subject, _ = by_tenant(lab=5)
    child = subject.child("lab", 4, TenantFullError)  # type: ignore[arg-type]
    entry = subject.take_for(child, 4)
    assert (child.used, subject.used) == (4, 4)
    for amount in 1, 2:
        with pytest.raises(TenantFullError):
            subject.take_for(child, amount)
    with pytest.raises(TenantFullError):
        subject.take(who("lab/a"), 2)
    entry.give_back()
    assert (child.used, subject.used) == (0, 0)


def test_owners_who_hold_nothing_are_forgotten_where_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MANY_OWNERS", 4)
    subject = of(1000)
    kept = [subject.take(holder(f"kept {number}"), 1) for number in range(3)]
    for number in range(100):
        subject.take(holder(f"gone {number}"), 1).give_back()
    assert len(subject._owners) <= 8
    assert subject.owners == {f"kept {number}": 1 for number in range(3)}
    for entry in kept:
        entry.give_back()
    assert subject.used == 0


# --- Half is half of the tenant, then of the person, then of the connection -----------------------


@pytest.mark.parametrize(
    ("held", "asks", "ended"),
    [
        (["hog/b", "hog/a", "hog/c", "hog/a", "hog/b"], "lab/a", "hog/b"),  # names give nothing
        (["lab/a", "lab/a", "lab/a", "lab/a", "lab/b"], "lab/c", "lab/a"),
        (["lab/a", "lab/a", "lab/a", "lab/b", "hog/a"], "lab/b", "lab/a"),  # of one's own tenant
        (["hog/a", "hog/b", "lab/a", "lab/a", "lab/a"], "lab/a", ""),  # another connection of it
        (["lab/a", "lab/b", "lab/c", "hog/a", "hog/b"], "lab/b", ""),  # nobody has more than half
    ],
)
def test_names_and_connections_give_nobody_more(held: list[str], asks: str, ended: str) -> None:
    subject, ends = by_tenant()[0], []
    for name in held:
        caller = FakeCaller(who=name, peer="first")
        entry = subject.take(caller, 2)
        entry.yields = lambda entry=entry: (ends.append(entry.owner), entry.give_back())
    other = FakeCaller(who=asks, peer="second")
    if not ended and held.count(asks) < 3:
        with pytest.raises(FullError):
            subject.take(other, 1)
        return
    subject.take(other, 1)
    assert ends == [ended or asks]


def test_strangers_have_three_quarters_and_end_nothing_of_who_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(giving_way, "IDLE_SECONDS", 0.0)
    known = {"known"}
    subject = Ledger(4, FullError, is_known=known.__contains__)  # type: ignore[arg-type]
    kept = subject.take(holder("known"), 1)
    kept.idle_since, kept.yields = 0.0, pytest.fail
    for number in range(3):
        subject.take(holder(f"stranger {number}"), 1)
    with pytest.raises(FullError):
        subject.take(holder("stranger 3"), 1)
    kept.give_back()
    with pytest.raises(FullError):
        subject.take(holder("stranger 3"), 1)
    known.add("stranger 0")
    subject.take(holder("stranger 3"), 1)
    assert subject.used == 4


def test_what_is_idle_ends_for_its_owner_with_most_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_way, "IDLE_SECONDS", 0.0)
    subject, ended = of(4), []
    for name, since in ("a", 1.0), ("b", 3.0), ("b", 2.0), ("c", 0.0):
        entry = subject.take(holder(name), 1)
        entry.yields = lambda e=entry, s=since: (ended.append((e.owner, s)), e.give_back())
        entry.idle_since = since
    subject.take(holder("d"), 2)
    assert ended == [("b", 2.0), ("b", 3.0)]


def test_what_is_spare_is_taken_at_once_or_not_at_all_and_ends_for_anybody() -> None:
    subject = of(10)
    subject.take(holder("a"), 4)
    ended: list[int] = []
    assert subject.hold_spare("spare", 7, lambda: ended.append(7)) is None
    spare = subject.hold_spare("spare", 6, lambda: (ended.append(6), spare and spare.give_back()))
    assert spare is not None
    subject.take(holder("b"), 2)
    assert ended == [6]
    assert subject.owners == {"a": 4, "b": 2}


# --- What may be on its way in, by the memory that there is ---------------------------------------

_PROCESS = 120 * MIB
"""Of a server that has done nothing yet."""


def budget_of(memory: int, descriptors: int = 10_000, **settings: object) -> Budget:
    return Budget.of(ServerSettings(memory_limit=memory, **settings), descriptors)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", [64 * MIB, 256 * MIB, GIB, 4 * GIB, 12 * GIB, 512 * GIB])
def test_all_of_it_keeps_the_promise_of_the_memory_limit(memory: int) -> None:
    budget = budget_of(memory)
    messages = budget.messages + budget.max_streams + LISTING_MESSAGES + HEALTH_MESSAGES
    most = memory + messages * budget.max_message_bytes + _PROCESS
    assert most < 1.5 * memory + 256 * MIB


@pytest.mark.parametrize(
    ("memory", "message", "streams", "messages", "frame"),
    [
        (256 * MIB, 8 * MIB, 8, 12, 24 * MIB),
        (GIB, 16 * MIB, 10, 12, 48 * MIB),
        (12 * GIB, 16 * MIB, 64, 100, 400 * MIB),
    ],
)
def test_what_follows_from_the_memory(
    memory: int, message: int, streams: int, messages: int, frame: int
) -> None:
    budget = budget_of(memory)
    found = (budget.max_message_bytes, budget.max_streams, budget.messages, budget.frame_bytes)
    assert found == (message, streams, messages, frame)


def test_a_small_server_takes_a_few_of_everything() -> None:
    budget = budget_of(1)
    assert min(budget.messages, budget.max_streams) >= 4
    assert budget.max_message_bytes == 256 * KIB


def test_what_is_set_counts() -> None:
    budget = budget_of(GIB, max_message_bytes="1MiB", max_streams=0, max_connections=3)
    assert (budget.max_message_bytes, budget.max_streams, budget.max_connections) == (MIB, 0, 3)
    assert budget.frame_bytes == MIB


def test_a_chunk_fits_into_a_message() -> None:
    assert budget_of(GIB, max_message_bytes="1MiB").chunk_bytes == MIB - FRAME_BYTES
    assert budget_of(GIB, max_message_bytes=10).chunk_bytes == 1


def test_there_are_no_more_connections_than_descriptors() -> None:
    assert budget_of(GIB, descriptors=7).max_connections == 7


# --- Kept memory goes back when no call has come for a while, once after each time of work --------


def test_after_work_memory_goes_back_once_and_not_while_a_call_runs() -> None:
    executor: Any = SimpleNamespace(calls_admitted=0, calls_in_flight=0)
    given: list[int] = []
    idle = IdleMemory(executor, lambda: given.append(executor.calls_admitted))

    def looks(admitted: int, in_flight: int) -> list[int]:
        """What was given back after a few looks, and the calls that had been admitted then."""
        executor.calls_admitted, executor.calls_in_flight = admitted, in_flight
        for _ in range(3):
            idle.look()
        return given

    assert looks(admitted=0, in_flight=0) == []
    assert looks(admitted=1, in_flight=0) == [1]
    assert looks(admitted=1, in_flight=0) == [1]
    assert looks(admitted=3, in_flight=1) == [1]
    assert looks(admitted=3, in_flight=0) == [1, 3]
    executor.calls_admitted = 4
    idle.look()
    assert given == [1, 3]  # a call has come since the last look


@pytest.mark.parametrize(
    ("resident", "size", "given_back"),
    [(500, 500, 0), (600, 500, 1), (600, 400, 0), (990, 63, 1), (1000, 61, 0)],
)
def test_a_large_call_has_kept_memory_given_back_where_it_would_be_too_much(
    resident: int, size: int, given_back: int
) -> None:
    given: list[str] = []
    now = [0]
    subject = KeptMemory(1000, lambda: given.append("back"), lambda: now[0])
    now[0] = resident
    subject.make_room(size)
    assert len(given) == given_back


def test_what_no_call_explains_counts_against_the_calls_that_come_next() -> None:
    """Usual are half of the limit and 128 MiB; what is freed in time does not count."""
    ledger, resident = Ledger(1000 * MIB, FullError), [100 * MIB]
    given: list[int] = []
    stray = StrayMemory(ledger, lambda: given.append(resident[0]), lambda: resident[0])
    call = ledger.take(holder("caller"), 200 * MIB)
    counted: list[int] = []
    for megabytes in (100, 728, 928, 1228, 900):
        resident[0] = megabytes * MIB
        stray.look()
        counted.append(ledger.used // MIB)
    assert counted == [200, 200, 200, 500, 200]
    assert given == [1228 * MIB]
    resident[0] = 1728 * MIB
    stray.look()
    with pytest.raises(FullError):
        ledger.take(holder("other"), MIB)
    call.give_back()
    resident[0] = 100 * MIB
    stray.look()
    assert ledger.used == 0

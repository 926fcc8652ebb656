"""All sessions: their ids, owners and leases, and what they may take."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.server.scripted import ScriptedCaller, ledger
from tests.server.sessions.held import (
    INSTANCE,
    LEASE,
    ONE,
    PLACE,
    A,
    B,
    Device,
    Held,
    User,
    filled,
    known,
    part,
    read,
)

from npucall.errors import (
    HandleLostError,
    HandleMemoryError,
    MessageError,
    QueueFullError,
    QuotaError,
    SessionExpiredError,
    SessionUnknownError,
    UnauthenticatedError,
    WrongServerError,
)
from npucall.limits import MAX_SESSION_CHARACTERS
from npucall_server.sessions import sessions as module
from npucall_server.sessions.ids import place_of
from npucall_server.sessions.room import HANDLE_BYTES, PAGE_BYTES, SESSION_BYTES
from npucall_server.sessions.sessions import Rules
from npucall_server.settings import ServerSettings

RULES = Rules(1 << 20, 1 << 20, 8, LEASE)


# --- Ids ------------------------------------------------------------------------------------------


def test_an_id_says_which_server_opened_it_and_is_not_guessed() -> None:
    held = Held()
    first, second = held.open(), held.open()
    assert re.fullmatch(f"{PLACE}-{INSTANCE}-[0-9a-f]{{32}}", first.id)
    assert first.id != second.id
    assert len(first.id) <= MAX_SESSION_CHARACTERS


def test_the_place_of_a_server_is_that_of_its_device_and_address() -> None:
    places = {place_of("cpu", "a:1"), place_of("cpu", "a:2"), place_of("cann:0", "a:1")}
    assert len(places) == 3
    assert place_of("cpu", "a:1") in places


def test_the_id_of_another_server_is_sent_there() -> None:
    held = Held()
    name = held.open().id.replace(PLACE, "ffffffff")
    with pytest.raises(WrongServerError, match="ffffffff"):
        held.sessions.of(User(name))


def test_the_id_of_a_server_before_the_restart_names_what_was_lost() -> None:
    held = Held()
    name = held.open().id.replace(INSTANCE, "abcdefabcdef")
    with pytest.raises(HandleLostError) as caught:
        held.sessions.of(User(name), [A, B])
    assert caught.value.details == {
        "instance": "abcdefabcdef",
        "handles": f"{A.hex()},{B.hex()}",
    }


@pytest.mark.parametrize(
    "name", ["", "x", f"{PLACE}-{INSTANCE}-{'0' * 32}", f"{PLACE}-{INSTANCE}-{'0' * 31}", "é" * 16]
)
def test_what_is_no_session_is_unknown(name: str) -> None:
    with pytest.raises(SessionUnknownError, match="npucall-session"):
        Held().sessions.of(User(name))


# --- Owners ---------------------------------------------------------------------------------------


def test_a_session_is_of_the_person_who_opened_it() -> None:
    held = Held()
    session = held.open(known("vision/ann"))
    assert held.sessions.of(User(session, "vision/ann")) is session
    told = []
    for who in "vision/bob", "speech/ann", "":
        with pytest.raises(SessionUnknownError) as caught:
            held.sessions.of(User(session, who))
        told.append((str(caught.value), caught.value.details))
    with pytest.raises(SessionUnknownError) as caught:
        held.sessions.of(User(f"{PLACE}-{INSTANCE}-{'0' * 32}", "vision/bob"))
    assert told == [(str(caught.value), caught.value.details)] * 3


def test_another_person_cannot_close_it() -> None:
    held = Held()
    session = held.open(known("vision/ann"))
    with pytest.raises(SessionUnknownError):
        held.sessions.of(User(session, "vision/bob"))
    held.sessions.close(User(session, "vision/bob"))
    assert held.sessions.of(User(session, "vision/ann")) is session


def test_another_person_is_not_told_that_it_has_expired() -> None:
    held = Held()
    session = held.open(known("vision/ann"))
    held.clock.advance(LEASE)
    held.sessions.look()
    with pytest.raises(SessionUnknownError):
        held.sessions.of(User(session, "vision/bob"))
    with pytest.raises(SessionExpiredError):
        held.sessions.of(User(session, "vision/ann"))


def test_without_tenants_whoever_has_the_id_may_use_it() -> None:
    held = Held()
    session = held.open(ScriptedCaller(peer="ipv4:10.0.0.1:5"))
    other = User(session)
    other.peer = "ipv4:10.0.0.2:6"
    assert held.sessions.of(other) is session


@pytest.mark.parametrize("who", ["vision/ann", "vision/bob"])
def test_ids_and_owners_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    held = Held()
    names = [held.open(known("vision/ann")).id, f"{PLACE}-{INSTANCE}-{'0' * 32}"]
    compared: list[int] = []
    real = module.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return real(a, b)

    monkeypatch.setattr(module, "compare_digest", counted)
    for name in names:
        compared.clear()
        try:
            held.sessions.of(User(name, who))
        except SessionUnknownError:
            assert compared == [16, len(who), len(who)]
        else:
            assert compared == [16, len(who)]


# --- Leases ---------------------------------------------------------------------------------------


def test_a_lease_ends_and_all_is_freed() -> None:
    held = Held()
    session = held.open()
    filled(session, A)
    filled(session, B)
    held.clock.advance(LEASE - 0.5)
    held.sessions.look()
    assert held.device.live == 8
    held.clock.advance(0.5)
    held.sessions.look()
    assert held.is_empty
    held.clock.advance(2.0)
    with pytest.raises(SessionExpiredError, match=r"2\.0 s ago") as caught:
        held.sessions.of(User(session))
    assert caught.value.details["expired_seconds"] == "2.0"


def test_who_comes_too_late_is_told_so_before_anybody_has_looked() -> None:
    held = Held()
    session = held.open()
    held.clock.advance(LEASE)
    with pytest.raises(SessionExpiredError, match=r"0\.0 s ago"):
        held.sessions.of(User(session))
    assert held.is_empty


def test_every_use_renews_the_lease() -> None:
    held = Held()
    session = held.open()
    for _ in range(5):
        held.clock.advance(LEASE * 0.9)
        held.sessions.look()
        assert held.sessions.of(User(session)) is session


def test_a_lease_does_not_end_while_a_call_runs_and_begins_anew_behind_it() -> None:
    held = Held()
    session = held.open()
    with session.use():
        held.clock.advance(10 * LEASE)
        held.sessions.look()
        assert held.sessions.of(User(session)) is session
        held.clock.advance(10 * LEASE)
    held.clock.advance(LEASE * 0.9)
    held.sessions.look()
    assert len(held.sessions) == 1
    held.clock.advance(LEASE)
    held.sessions.look()
    assert held.is_empty


@pytest.mark.parametrize(("wanted", "given"), [(0, LEASE), (7.5, 7.5), (1e9, LEASE)])
def test_a_lease_is_as_long_as_asked_for_or_allowed(wanted: float, given: float) -> None:
    assert Held().open(lease=wanted).lease == given


@pytest.mark.parametrize("wanted", [-1.0, float("nan"), float("inf")])
def test_a_lease_of_no_length_is_no_lease(wanted: float) -> None:
    with pytest.raises(MessageError, match="lease_seconds"):
        Held().open(lease=wanted)


def test_a_session_of_somebody_who_is_known_no_more_ends() -> None:
    revoked = False

    def check(_: object) -> None:
        if revoked:
            raise UnauthenticatedError("revoked")

    held = Held(check=check)
    filled(held.open(known("vision/ann")), A)
    held.sessions.look()
    assert len(held.sessions) == 1
    revoked = True
    held.sessions.look()
    assert held.is_empty


def test_so_many_ended_sessions_are_remembered_of_each_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_ENDED", 3)
    monkeypatch.setattr(module, "_MOST_ENDED_OF_ONE", 2)
    held = Held()
    ends = []
    for who in "v/ann", "v/bob", "v/bob", "v/bob", "v/cid":
        session = held.open(known(who))
        held.clock.advance(LEASE)
        held.sessions.look()
        ends.append(User(session, who))
    told = []
    for user in ends:
        with pytest.raises((SessionExpiredError, SessionUnknownError)) as caught:
            held.sessions.of(user)
        told.append(caught.type is SessionExpiredError)
    assert told == [False, False, True, True, True]


def test_closing_twice_closes_once_and_then_it_is_unknown() -> None:
    held = Held()
    session = held.open()
    filled(session, A)
    held.sessions.close(User(session))
    held.sessions.close(User(session))
    assert held.is_empty
    with pytest.raises(SessionUnknownError):
        held.sessions.of(User(session))


# --- What they may take ---------------------------------------------------------------------------


def refused(held: Held, session: Any, size: int) -> dict[str, str]:
    """The details of the refusal, which leaves nothing."""
    before = held.device.live, held.memory.budget.held, held.host.used, session.held
    with pytest.raises(HandleMemoryError) as caught:
        session.fill(B, size, ONE)
    assert (held.device.live, held.memory.budget.held, held.host.used, session.held) == before
    assert caught.value.details["wanted"] in str(caught.value)
    return caught.value.details


def test_a_session_holds_no_more_than_its_own_limit() -> None:
    held = Held(Rules(1000, 100, 8, LEASE))
    session = held.open()
    filled(session, A, bytes(60))
    assert refused(held, session, 41) == {
        "limit": "100", "held": "60", "wanted": "41", "setting": "session_memory",
    }  # fmt: skip
    filled(session, B, bytes(40))


def test_a_session_holds_no_more_than_its_caller_asked_for() -> None:
    held = Held(Rules(1000, 100, 8, LEASE))
    session = held.open(budget=50)
    assert session.budget == 50
    assert refused(held, session, 51)["setting"] == "budget_bytes of OpenSession"
    assert held.open(budget=500).budget == 100


def test_all_sessions_hold_no_more_than_the_server_allows() -> None:
    held = Held(Rules(100, 100, 8, LEASE))
    filled(held.open(), A, bytes(60))
    session = held.open()
    assert refused(held, session, 41) == {
        "limit": "100", "held": "60", "wanted": "41", "setting": "handle_memory",
    }  # fmt: skip


def test_the_sessions_of_a_tenant_hold_no_more_than_its_quota() -> None:
    held = Held(RULES, tenants={"vision": {"handle_memory": 100}})
    filled(held.open(known("vision/ann")), A, bytes(60))
    details = refused(held, held.open(known("vision/bob")), 41)
    assert details == {
        "limit": "100", "held": "60", "wanted": "41", "setting": "tenants.vision.handle_memory",
    }  # fmt: skip
    filled(held.open(known("speech/cid")), A, bytes(200))


def test_handles_on_a_device_without_memory_count_as_memory_of_the_host() -> None:
    host = ledger(2 * SESSION_BYTES)
    held = Held(RULES, host=host)
    session = held.open()
    filled(session, A, bytes(1000))
    assert host.used == SESSION_BYTES + HANDLE_BYTES + 1000
    details = refused(held, session, SESSION_BYTES)
    assert details["setting"] == "memory_limit"
    session.release([A])
    assert host.used == SESSION_BYTES


def test_handles_on_a_device_with_memory_take_little_of_the_host() -> None:
    held = Held(RULES, device=Device(own_memory=1 << 30))
    session = held.open()
    filled(session, A, bytes(100_000))
    assert held.host.used == SESSION_BYTES + HANDLE_BYTES


def test_a_device_without_memory_left_refuses_the_handle() -> None:
    device = Device(own_memory=1 << 30)
    device.has = 100
    held = Held(RULES, device=device)
    session = held.open()
    filled(session, A, bytes(60))
    details = refused(held, session, 41)
    assert (details["setting"], details["held"]) == ("handle_memory", str(PAGE_BYTES))


def test_handles_take_whole_pages_of_a_devices_own_memory() -> None:
    held = Held(Rules(3 * PAGE_BYTES, 1 << 20, 8, LEASE), device=Device(own_memory=1 << 30))
    session = held.open()
    filled(session, A, bytes(PAGE_BYTES + 1))
    assert session.held == PAGE_BYTES + 1
    assert refused(held, session, PAGE_BYTES + 1)["held"] == str(2 * PAGE_BYTES)
    filled(session, B, b"")
    assert held.memory.budget.held == 3 * PAGE_BYTES


def test_a_handle_that_found_no_room_may_be_filled_later() -> None:
    held = Held(Rules(100, 100, 8, LEASE))
    session = held.open()
    filled(session, A, bytes(60))
    refused(held, session, 50)
    session.release([A])
    filled(session, B, b"data" * 12)
    assert read(session, B) == b"data"


def test_what_a_handle_is_counted_for_comes_back_when_filling_fails() -> None:
    held = Held(RULES)
    session = held.open()
    used = held.host.used
    session.fill(A, 60, ONE).fail(MessageError("no"))
    assert (held.device.live, held.memory.budget.held, held.host.used) == (0, 0, used)


def test_so_many_sessions_are_open_at_a_time() -> None:
    held = Held(Rules(1, 1, 2, LEASE))
    first, _ = held.open(), held.open()
    used = held.host.used
    with pytest.raises(QueueFullError, match="max_sessions = 2") as caught:
        held.open()
    assert caught.value.retry_after
    assert caught.value.details["setting"] == "max_sessions"
    assert held.host.used == used
    held.sessions.close(User(first))
    held.open()


def test_a_session_whose_lease_has_ended_takes_no_place() -> None:
    held = Held(Rules(1, 1, 1, LEASE))
    held.open()
    held.clock.advance(LEASE)
    held.open()


def test_a_tenant_has_so_many_sessions() -> None:
    held = Held(RULES, tenants={"vision": {"sessions": 1}})
    session = held.open(known("vision/ann"))
    with pytest.raises(QuotaError):
        held.open(known("vision/bob"))
    held.sessions.close(User(session, "vision/ann"))
    held.clock.advance(1)
    other = held.open(known("vision/bob"))
    held.clock.advance(LEASE)
    held.sessions.look()
    with pytest.raises(SessionExpiredError):
        held.sessions.of(User(other, "vision/bob"))
    held.open(known("vision/ann"))


@pytest.mark.parametrize("name", Rules._fields)
def test_a_limit_of_nothing_turns_sessions_off(name: str) -> None:
    rules = RULES._replace(**{name: 0})
    assert rules.off == name
    with pytest.raises(HandleMemoryError, match=f"{name} is 0"):
        Held(rules).open()
    assert not RULES.off


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        (0, {}, (500, 500)),  # half of memory_limit
        (7000, {}, (7000, 7000)),
        (7000, {"handle_memory": 50}, (50, 50)),
        (0, {"session_memory": 60}, (500, 60)),
        (0, {"session_memory": 6000}, (500, 500)),
    ],
)
def test_what_settings_leave_out_follows_from_the_device(
    own: int, given: dict[str, Any], expected: tuple[int, int]
) -> None:
    settings = ServerSettings(memory_limit=1000, **given)
    assert Rules.of(settings, Device(own))[:2] == expected


def test_a_part_of_a_handle_is_read_by_whoever_names_the_session() -> None:
    held = Held()
    filled(held.open(), A)
    other = held.open()
    with pytest.raises(Exception, match="nothing has filled"):
        other.read(part(A), "x")

"""All sessions: their ids, owners and leases, and what they may take."""

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.server.fakes import FakeCaller, FakeDevice
from tests.server.serving import Offline, filled
from tests.server.sessions.raw import A, B

from npucall.errors import (
    HandleMemoryError,
    MessageError,
    QueueFullError,
    QuotaError,
    SessionExpiredError,
    SessionUnknownError,
)
from npucall.limits import MAX_SESSION_CHARACTERS
from npucall_server.sessions import open_sessions as module
from npucall_server.sessions.handle_room import HANDLE_BYTES, PAGE_BYTES, SESSION_BYTES
from npucall_server.sessions.ids import place_of
from npucall_server.sessions.open_sessions import SessionLimits
from npucall_server.settings.server import ServerSettings

LEASE = 60.0
ONE = b"1" * 32


@pytest.fixture
def server() -> Offline:
    return Offline()


def of(server: Offline, session: Any, who: str = "") -> Any:
    """The session as its id, or an id, finds it."""
    return server.sessions.of(FakeCaller(who=who, session=session))


def close(server: Offline, session: Any, who: str = "") -> None:
    server.sessions.close(FakeCaller(who=who, session=session))


def later(server: Offline, seconds: float) -> None:
    server.clock.advance(seconds)
    server.sessions.look()


def guessed(session: Any) -> str:
    """The id of a session that was never there."""
    return f"{session.id[:-32]}{'0' * 32}"


def test_an_id_says_which_server_opened_it_and_is_not_guessed(server: Offline) -> None:
    first, second = server.open(), server.open()
    place, instance, secret = first.id.split("-")
    assert re.fullmatch("[0-9a-f]{8}", place)
    assert place == second.id.split("-")[0]
    assert instance == server.core.identity.instance
    assert re.fullmatch("[0-9a-f]{32}", secret)
    assert first.id != second.id
    assert len(first.id) <= MAX_SESSION_CHARACTERS


def test_the_place_of_a_server_is_that_of_its_device_and_address() -> None:
    where = [("cpu", "a:1"), ("cpu", "a:2"), ("cann:0", "a:1"), ("cpu", "a:1")]
    places = [place_of(*each) for each in where]
    assert len(set(places)) == 3
    assert places[3] == places[0]


def test_a_server_is_known_by_its_id_whatever_its_address_and_two_on_any_port_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(**settings: Any) -> str:
        return Offline(**settings).open().id.partition("-")[0]

    assert place() != place()
    named = [place(server_id="npu1", listen=f"127.0.0.1:{port}") for port in (1, 2)]
    assert named[0] == named[1] != place(server_id="npu2")
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}:/elsewhere")  # as systemd names it
    kept = [place(), place(listen="127.0.0.1:9")]
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert kept == [place()] * 2
    assert (tmp_path / "server-id").read_text()


def test_what_is_no_session_is_unknown(server: Offline) -> None:
    never = guessed(server.open())
    for name in ("", "x", never, never[:-1], "é" * 16):
        with pytest.raises(SessionUnknownError, match="npucall-session"):
            of(server, name)


def test_a_session_is_of_the_person_who_opened_it(server: Offline) -> None:
    """Nobody else finds it, closes it, or is told that it has expired; all are told alike."""
    session = server.open("vision/ann")
    assert of(server, session, "vision/ann") is session
    told = set()
    for who in "vision/bob", "speech/ann", "":
        close(server, session, who)
        for name in session, guessed(session):
            with pytest.raises(SessionUnknownError) as caught:
                of(server, name, who)
            told.add((str(caught.value), *caught.value.details))
    assert of(server, session, "vision/ann") is session
    later(server, LEASE)
    with pytest.raises(SessionUnknownError) as caught:
        of(server, session, "vision/bob")
    told.add((str(caught.value), *caught.value.details))
    assert len(told) == 1
    with pytest.raises(SessionExpiredError):
        of(server, session, "vision/ann")


def test_without_tenants_whoever_has_the_id_may_use_it(server: Offline) -> None:
    session = server.sessions.open(FakeCaller(peer="ipv4:10.0.0.1:5"))
    other = FakeCaller(peer="ipv4:10.0.0.2:6", session=session)
    assert server.sessions.of(other) is session


@pytest.mark.parametrize("who", ["vision/ann", "vision/bob"])
def test_ids_and_owners_are_compared_in_constant_time(
    server: Offline, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    session = server.open("vision/ann")
    compared: list[int] = []
    real = module.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return real(a, b)

    monkeypatch.setattr(module, "compare_digest", counted)
    for name in session.id, guessed(session):
        compared.clear()
        try:
            of(server, name, who)
        except SessionUnknownError:
            assert compared == [16, len(who), len(who)]
        else:
            assert compared == [16, len(who)]


def test_a_lease_ends_and_all_is_freed(server: Offline) -> None:
    session = server.open()
    filled(session, A)
    filled(session, B)
    later(server, LEASE - 0.5)
    assert server.device.allocated == 8
    later(server, 0.5)
    assert server.is_empty
    assert not session.end(lambda: MessageError("a second time"))
    assert server.is_empty
    later(server, 2.0)
    with pytest.raises(SessionExpiredError, match=r"2\.0 s ago") as caught:
        of(server, session)
    assert caught.value.details["expired_seconds"] == "2.0"


def test_who_comes_too_late_is_told_so_before_anybody_has_looked(server: Offline) -> None:
    session = server.open()
    server.clock.advance(LEASE)
    with pytest.raises(SessionExpiredError, match=r"0\.0 s ago"):
        of(server, session)
    assert server.is_empty


def test_a_lease_begins_anew_behind_every_use_and_does_not_end_in_one(server: Offline) -> None:
    session = server.open()
    with session.use():
        later(server, 10 * LEASE)
        assert of(server, session) is session
        server.clock.advance(10 * LEASE)
    for _ in range(2):
        later(server, LEASE * 0.9)
        assert of(server, session) is session
    later(server, LEASE)
    assert server.is_empty


def test_a_lease_is_as_long_as_asked_for_or_allowed(server: Offline) -> None:
    for wanted, given in (0, LEASE), (7.5, 7.5), (1e9, LEASE):
        assert server.open(lease=wanted).lease == given
    for wanted in -1.0, float("nan"), float("inf"):
        with pytest.raises(MessageError, match="lease_seconds"):
            server.open(lease=wanted)


def test_so_many_ended_sessions_are_remembered_of_each_owner(
    server: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_ENDED", 3)
    monkeypatch.setattr(module, "_MOST_ENDED_OF_ONE", 2)
    ended = []
    for who in "v/ann", "v/bob", "v/bob", "v/bob", "v/cid":
        ended.append((server.open(who), who))
        later(server, LEASE)
    told = []
    for session, who in ended:
        with pytest.raises((SessionExpiredError, SessionUnknownError)) as caught:
            of(server, session, who)
        told.append(caught.type is SessionExpiredError)
    assert told == [False, False, True, True, True]


def refused(server: Offline, session: Any, size: int) -> dict[str, str]:
    """The details of the refusal, which leaves nothing."""

    def state() -> tuple[int, ...]:
        taken = server.executor.memory.used
        return server.device.allocated, server.handle_bytes, taken, session.held

    before = state()
    with pytest.raises(HandleMemoryError) as caught:
        session.fill(B, size, ONE)
    assert state() == before
    assert caught.value.details["wanted"] in str(caught.value)
    return caught.value.details


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("handle_memory", {"handle_memory": 100}),
        ("tenants.vision.handle_memory", {"tenants": {"vision": {"handle_memory": 100}}}),
    ],
)
def test_what_is_more_than_a_limit_is_refused_by_its_name(
    setting: str, given: dict[str, Any]
) -> None:
    """Of all sessions, of those of a tenant."""
    server = Offline(**given)
    first = server.open("vision/ann")
    filled(first, A, bytes(60))
    session = server.open("vision/bob")
    assert refused(server, session, 41) == {
        "limit": "100", "held": "60", "wanted": "41", "setting": setting,
    }  # fmt: skip
    filled(session, B, bytes(40))
    if "tenants" in given:
        filled(server.open("speech/cid"), A, bytes(200))


def test_a_session_holds_no_more_than_its_caller_asked_for() -> None:
    server = Offline(handle_memory=100)
    session = server.open(budget=50)
    assert session.budget == 50
    assert refused(server, session, 51)["setting"] == "budget_bytes of OpenSession"
    assert server.open(budget=500).budget == 100


def test_handles_on_a_device_without_memory_count_as_memory_of_the_host() -> None:
    server = Offline(memory_limit=2 * SESSION_BYTES, handle_memory=1 << 20)
    host, session = server.executor.memory, server.open()
    filled(session, A, bytes(1000))
    assert host.used == SESSION_BYTES + HANDLE_BYTES + 1000
    assert refused(server, session, SESSION_BYTES)["setting"] == "memory_limit"
    session.release([A])
    assert host.used == SESSION_BYTES
    session.fill(B, 60, ONE).fail(MessageError("no"))
    assert (server.device.allocated, server.handle_bytes, host.used) == (0, 0, SESSION_BYTES)


def test_handles_take_whole_pages_of_a_devices_own_memory_and_little_of_the_host() -> None:
    server = Offline(FakeDevice(own_memory=1 << 30), handle_memory=3 * PAGE_BYTES)
    session = server.open()
    filled(session, A, bytes(PAGE_BYTES + 1))
    assert session.held == PAGE_BYTES + 1
    assert server.executor.memory.used == SESSION_BYTES + HANDLE_BYTES
    assert refused(server, session, PAGE_BYTES + 1)["held"] == str(2 * PAGE_BYTES)
    filled(session, B, b"")
    assert server.handle_bytes == 3 * PAGE_BYTES


def test_a_device_without_memory_left_refuses_the_handle() -> None:
    device = FakeDevice(own_memory=1 << 30)
    device.has = 100
    server = Offline(device)
    session = server.open()
    filled(session, A, bytes(60))
    details = refused(server, session, 41)
    assert (details["setting"], details["held"]) == ("handle_memory", str(PAGE_BYTES))


def test_so_many_sessions_are_open_at_a_time() -> None:
    server = Offline(max_sessions=2)
    first, _ = server.open(), server.open()
    used = server.executor.memory.used
    with pytest.raises(QueueFullError, match="max_sessions = 2") as caught:
        server.open()
    assert caught.value.retry_after
    assert caught.value.details["setting"] == "max_sessions"
    assert server.executor.memory.used == used
    close(server, first)
    server.open()
    server.clock.advance(LEASE)  # those whose lease has ended take no place
    server.open()


def test_sessions_give_way_what_holds_nothing_first_then_of_who_has_more_than_half() -> None:
    """Before, one person took all sessions for good."""
    server = Offline(max_sessions=4)
    sessions = [server.open("hog/a") for _ in range(3)]
    idle = server.open("lab/b")
    for number, each in enumerate(sessions):
        filled(each, bytes([number]) * HANDLE_BYTES)
    server.clock.advance(2.0)
    with sessions[2].use():
        server.open("lab/c")  # of lab/b, which holds nothing
        with pytest.raises(SessionExpiredError, match="others asked for its room"):
            idle.check_open()
        server.open("lab/d")  # of hog, though it holds something: not the one that a call uses
        assert [each.idle_seconds is None for each in sessions] == [False, False, True]
        sessions[2].check_open()
        assert len(server.sessions) == 4
    with pytest.raises(QueueFullError):
        server.open("hog/a")


def test_handles_that_can_be_filled_again_give_way_and_of_who_has_more_than_half() -> None:
    server = Offline(handle_memory=100, memory_limit=1 << 22)
    whose = {"a/x": 40, "b/x": 40}
    sessions = {
        who: server.sessions.open(FakeCaller(who=who), refillable=who == "b/x") for who in whose
    }
    for who, size in whose.items():
        filled(sessions[who], b"h" * HANDLE_BYTES, bytes(size))
    server.clock.advance(2.0)
    other = server.open("c/x")
    filled(other, b"h" * HANDLE_BYTES, bytes(40))
    sessions["a/x"].check_open()
    with pytest.raises(SessionExpiredError):
        sessions["b/x"].check_open()
    with pytest.raises(HandleMemoryError):  # nobody has more than half
        filled(other, b"i" * HANDLE_BYTES, bytes(40))
    filled(sessions["a/x"], b"i" * HANDLE_BYTES, bytes(20))
    server.clock.advance(2.0)
    filled(server.open("d/x"), b"h" * HANDLE_BYTES, bytes(10))
    with pytest.raises(SessionExpiredError):
        sessions["a/x"].check_open()


def test_a_tenant_has_so_many_sessions() -> None:
    server = Offline(tenants={"vision": {"sessions": 1}})
    session = server.open("vision/ann")
    with pytest.raises(QuotaError):
        server.open("vision/bob")
    close(server, session, "vision/ann")
    close(server, session, "vision/ann")  # a second time closes nothing
    server.open("vision/bob")
    later(server, LEASE)
    server.open("vision/ann")


@pytest.mark.parametrize("name", SessionLimits._fields)
def test_a_limit_of_nothing_turns_sessions_off(name: str) -> None:
    with pytest.raises(HandleMemoryError, match=f"{name} is 0"):
        Offline(**{name: 0}).open()


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        (0, {}, 500),  # half of memory_limit
        (7000, {}, 7000),
        (7000, {"handle_memory": 50}, 50),
    ],
)
def test_what_settings_leave_out_follows_from_the_device(
    own: int, given: dict[str, Any], expected: int
) -> None:
    settings = ServerSettings(memory_limit=1000, **given)
    device: Any = FakeDevice(own_memory=own)
    assert SessionLimits.of(settings, device).handle_memory == expected

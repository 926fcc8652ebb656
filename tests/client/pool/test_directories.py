"""``pool:directory:``: a directory is watched, and the next one where it fails."""

import gc
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.pool.fake_directories import (
    DRAINING,
    GONE,
    SUSPECT,
    FakeDirectory,
    fake_directory,
    member,
)
from tests.client.pool.heard import PATIENCE, Heard, threads_named, until
from tests.rows import each

import npucall_client
from npucall import errors
from npucall_client.pool.members import Load, MemberState, Source
from npucall_client.pool.sources import directories, source_of
from npucall_client.settings import ClientSettings

NOBODY = "127.0.0.1:1"


@pytest.fixture
def directory() -> Iterator[FakeDirectory]:
    with fake_directory() as directory:
        yield directory


@pytest.fixture
def other() -> Iterator[FakeDirectory]:
    with fake_directory(epoch=7) as directory:
        yield directory


@pytest.fixture
def watch() -> Iterator[Callable[..., tuple[Heard, Source]]]:
    """Watches directories, until the test ends."""
    sources = []

    def begin(*addresses: str, **settings: Any) -> tuple[Heard, Source]:
        target = f"pool:directory:{','.join(addresses)}"
        source = source_of(ClientSettings.of(target=target, **settings))
        sources.append(source)
        heard = Heard()
        source.start(heard)
        return heard, source

    yield begin
    for source in sources:
        source.close()
    until(lambda: not threads_named("npucall-directory"))


def test_what_a_directory_says_of_a_member_is_known(directory: Any, watch: Any) -> None:
    told = member("10.0.0.1:5", running=1, waiting=2, bytes_in_flight=3)
    told.load.reservation.ends_seconds = 60
    told.product, told.host, told.version = "Ascend910B", "n1", "0.1.0"
    told.catalogue, told.memory_limit = 2**63 + 1, 77
    told.labels["rack"] = "3"
    directory.say(told)
    heard, source = watch(directory.address)
    heard.until_listed("10.0.0.1:5")
    found = heard.members["10.0.0.1:5"]
    assert found.load == Load(1, 2, 1, 3, reserved=True)
    assert (found.instance, found.device, found.soc) == ("of 10.0.0.1:5", "cpu", "X")
    assert (found.product, found.host, found.version) == ("Ascend910B", "n1", "0.1.0")
    assert (found.catalogue, found.memory_limit) == (2**63 + 1, 77)
    assert (found.labels, found.state, found.server_name) == (
        {"rack": "3"},
        MemberState.SERVING,
        "",
    )
    assert source.why_empty() == ""


def test_members_come_change_and_go(directory: Any, watch: Any) -> None:
    directory.say("a:1", "unix:1", "unix:/run/npucall.sock", "dns:///x:1", "evil", "0.0.0.0:1")
    heard, _ = watch(directory.address)
    heard.until_listed("a:1")
    assert heard.updates[0] == ["a:1"]  # those without an address are left out
    directory.say("b:2")
    heard.until_listed("a:1", "b:2")
    directory.say(member("a:1", DRAINING), member("c:3", SUSPECT), gone=("b:2",))
    heard.until_listed("a:1", "c:3")
    assert heard.members["a:1"].state is MemberState.DRAINING
    assert heard.members["c:3"].state is MemberState.SUSPECT
    directory.say(member("a:1", GONE))
    heard.until_listed("c:3")


def test_while_no_directory_answers_the_last_table_counts_and_all_are_idle(watch: Any) -> None:
    with fake_directory() as directory:
        directory.say(member("a:1", running=1, waiting=9, bytes_in_flight=5))
        heard, source = watch(directory.address)
        heard.until_listed("a:1")
    until(source.why_empty)
    heard.until(lambda heard: heard.members["a:1"].load == Load(0, 0, 1, 0, reserved=False))
    assert heard.members["a:1"].soc == "X"


def is_silent(directory: FakeDirectory) -> None:
    directory.is_silent = True


def drains(directory: FakeDirectory) -> None:
    directory.refusal = errors.DrainingError("it is going down")


def knows_suspects_alone(directory: FakeDirectory) -> None:
    directory.say(member("a:1", SUSPECT), member("b:2", SUSPECT))


@each("fault", [FakeDirectory.stop, FakeDirectory.say, knows_suspects_alone, is_silent, drains])
def test_a_directory_that_is_of_no_use_is_left_for_the_next_one(
    watch: Any, monkeypatch: pytest.MonkeyPatch, fault: Callable[[FakeDirectory], None]
) -> None:
    monkeypatch.setattr(directories, "FIRST_SECONDS", 0.2 if fault is is_silent else 1000.0)
    with fake_directory() as directory, fake_directory(epoch=7) as other:
        fault(directory)
        other.say("a:1")
        heard, source = watch(directory.address, other.address)
        heard.until_listed("a:1")
        until(lambda: heard.members["a:1"].state is MemberState.SERVING)
        assert source.why_empty() == ""
        directory.is_silent = False


def test_the_next_directory_is_watched_where_one_ends_not_before(other: Any, watch: Any) -> None:
    other.say("b:2", "c:3")
    with fake_directory() as directory:
        directory.say("a:1")
        heard, _ = watch(directory.address, other.address)
        heard.until_listed("a:1")
        directory.say("b:2")
        heard.until_listed("a:1", "b:2")
        assert not other.watched
    heard.until_listed("b:2", "c:3")
    assert heard.complete


def test_a_directory_that_becomes_stale_is_left_too(directory: Any, other: Any, watch: Any) -> None:
    directory.say("a:1", "b:2")
    other.say("a:1", "b:2")
    heard, _ = watch(directory.address, other.address)
    heard.until_listed("a:1", "b:2")
    directory.say(member("a:1", SUSPECT))
    directory.say(member("b:2", SUSPECT))
    until(lambda: other.watched)
    heard.until(lambda heard: {e.state for e in heard.members.values()} == {MemberState.SERVING})


def test_a_directory_alone_is_watched_although_it_lists_nobody_and_again_where_it_ends(
    directory: Any, watch: Any
) -> None:
    heard, source = watch(directory.address)
    heard.until(lambda heard: heard.updates)
    assert source.why_empty() == f"directory {directory.address}: it lists no members"
    directory.say("a:1", "b:2")
    heard.until_listed("a:1", "b:2")
    assert directory.watched == 1
    directory.table.pop("b:2")
    directory.end_streams()
    heard.until_listed("a:1")
    assert directory.watched == 2


def test_a_directory_that_falls_silent_is_asked_again(
    directory: Any, watch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "PATIENCE_SECONDS", 0.1)
    directory.say("a:1")
    heard, _ = watch(directory.address)
    heard.until_listed("a:1")
    until(lambda: directory.watched >= 2)
    assert set(heard.members) == {"a:1"}


def test_where_no_directory_answers_at_first_each_is_named_with_its_reason(watch: Any) -> None:
    heard, source = watch(NOBODY, "127.0.0.1:2")
    until(lambda: source.why_empty().count("refused") == 2)
    assert f"directory {NOBODY}: " in source.why_empty()
    assert "directory 127.0.0.1:2: " in source.why_empty()
    assert heard.updates == []


def test_what_a_directory_refuses_is_told(directory: Any, watch: Any) -> None:
    directory.refusal = errors.PermissionDeniedError("no one may watch")
    heard, source = watch(directory.address)
    until(lambda: "no one may watch" in source.why_empty())
    assert isinstance(source.refusal(), errors.PermissionDeniedError)
    directory.refusal = errors.CredentialMissingError("expected a token")
    with pytest.raises(errors.CredentialMissingError, match="expected a token"):  # at once
        npucall_client.connect(f"pool:directory:{directory.address}", connect_timeout=1000.0)
    directory.refusal = None
    directory.say("a:1")
    source.look()
    heard.until_listed("a:1")
    assert source.refusal() is None


def test_a_token_is_sent_and_asked_again_where_it_has_ended(directory: Any, watch: Any) -> None:
    tokens = iter(("first", "second", "third"))
    directory.refusal = errors.CredentialExpiredError("it has ended")
    heard, _ = watch(directory.address, token=lambda: next(tokens))
    until(lambda: directory.authorizations)
    directory.refusal = None
    directory.say("a:1")
    heard.until_listed("a:1")
    assert directory.authorizations[0] == "Bearer first"
    assert directory.authorizations[-1] != "Bearer first"


def test_a_token_does_not_travel_to_a_directory_without_tls() -> None:
    with pytest.raises(ValueError, match=r"token: expected TLS to directory\.lab:50050, found"):
        source_of(ClientSettings.of(target="pool:directory:directory.lab", token="secret"))


def test_a_source_that_nobody_has_any_more_ends_its_threads(directory: Any) -> None:
    class Pool(Heard):
        def update(self, members: Any, *, complete: bool) -> None:
            self(members, complete=complete)

    pool = Pool()
    source = source_of(ClientSettings.of(target=f"pool:directory:{directory.address}"))
    source.start(pool.update)
    directory.say("a:1")
    pool.until_listed("a:1")
    del pool, source
    gc.collect()
    directory.say("b:2")
    until(lambda: not threads_named("npucall-directory"))


def test_a_source_that_is_closed_while_it_connects_ends_its_threads(watch: Any) -> None:
    for _ in range(20):
        watch(NOBODY)[1].close()
    until(lambda: not threads_named("npucall-directory"))


@pytest.mark.long
def test_ten_thousand_beats_of_24_members_leave_nothing_behind(directory: Any) -> None:
    heard = threading.Semaphore(0)
    last: dict[str, int] = {}

    def update(members: Any, *, complete: bool) -> None:
        last.update({each.address: each.load.waiting for each in members})
        heard.release()

    source = source_of(ClientSettings.of(target=f"pool:directory:{directory.address}"))
    source.start(update)
    assert heard.acquire(timeout=PATIENCE)
    resident = []
    for beat in range(12_000):
        directory.say(*(member(f"n{number}:1", waiting=beat) for number in range(24)))
        assert heard.acquire(timeout=PATIENCE)
        if beat in (1999, 11_999):
            gc.collect()
            resident.append(_resident_bytes())
    assert set(last.values()) == {11_999}
    assert len(last) == 24
    source.close()
    assert resident[1] - resident[0] < 4 * 2**20


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()

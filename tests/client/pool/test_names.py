"""``pool:dns:``: a name's addresses are the members, asked again and again."""

from __future__ import annotations

import gc
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.pool.heard import Heard, threads_named, until

from npucall_client.pool.sources import names, source_of
from npucall_client.pool.sources.looking import LookingSource
from npucall_client.settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client.pool.members import Source

TARGET = "pool:dns:npu.lab:50051"


class Zone:
    """What a name server answers."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self, name: str, port: int, **_: Any) -> list[Any]:
        self.asked.append((name, port))
        self.goes_on.wait(20)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [_entry(address, port) for address in self.addresses]


def _entry(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Zone:
    zone = Zone()
    monkeypatch.setattr(names.socket, "getaddrinfo", zone)
    return zone


@pytest.fixture
def source() -> Iterator[Source]:
    source = source_of(ClientSettings.of(target=TARGET))
    yield source
    source.close()


def test_each_address_of_a_name_is_a_member_whose_certificate_has_that_name(
    zone: Zone, source: Source
) -> None:
    zone.addresses = ["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"]
    heard = Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:50051", "10.0.0.2:50051", "[fd00::1]:50051")
    assert {member.server_name for member in heard.members.values()} == {"npu.lab"}
    assert zone.asked[0] == ("npu.lab", 50051)
    assert heard.complete
    assert source.why_empty() == ""


def test_a_look_asks_again(zone: Zone, source: Source) -> None:
    zone.addresses = ["10.0.0.1"]
    heard = Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:50051")
    zone.addresses = ["10.0.0.2"]
    source.look()
    heard.until_listed("10.0.0.2:50051")


def test_a_name_is_asked_again_without_a_look(zone: Zone) -> None:
    zone.addresses = ["10.0.0.1"]
    source = LookingSource(names.Resolver("npu.lab", 1), 0.25, "npucall-dns")
    heard = Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:1")
    zone.addresses = ["10.0.0.2"]
    heard.until_listed("10.0.0.2:1")
    source.close()


def test_where_a_name_has_gone_the_last_list_counts(zone: Zone, source: Source) -> None:
    zone.addresses = ["10.0.0.1"]
    heard = Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:50051")
    zone.addresses = []
    source.look()
    until(source.why_empty)
    assert source.why_empty() == ("npu.lab: the name has no addresses: Name or service not known")
    assert list(heard.members) == ["10.0.0.1:50051"]
    zone.addresses = ["10.0.0.3"]
    source.look()
    heard.until_listed("10.0.0.3:50051")
    assert source.why_empty() == ""


def test_who_hears_is_told_of_changes_alone(zone: Zone, source: Source) -> None:
    zone.addresses = ["10.0.0.1", "10.0.0.2"]
    heard = Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:50051", "10.0.0.2:50051")
    zone.addresses.reverse()
    source.look()
    until(lambda: len(zone.asked) == 2)
    zone.addresses = ["10.0.0.3"]
    source.look()
    heard.until_listed("10.0.0.3:50051")
    assert len(heard.updates) == 2


def test_many_members_that_fail_at_once_ask_few_times(zone: Zone, source: Source) -> None:
    zone.addresses = ["10.0.0.1"]
    heard = Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:50051")
    zone.goes_on.clear()
    source.look()
    until(lambda: len(zone.asked) == 2)
    for _ in range(1000):
        source.look()
    zone.goes_on.set()
    until(lambda: len(zone.asked) == 3)
    assert len(zone.asked) == 3


def test_a_source_that_is_closed_has_no_thread(zone: Zone, source: Source) -> None:
    zone.addresses = ["10.0.0.1"]
    heard = Heard()
    source.start(heard)
    heard.until_listed("10.0.0.1:50051")
    source.close()
    until(lambda: not threads_named("npucall-dns"))


def test_nobody_hears_of_a_name_after_the_source_was_closed(zone: Zone, source: Source) -> None:
    zone.addresses = ["10.0.0.1"]
    zone.goes_on.clear()
    heard = Heard()
    source.start(heard)
    until(lambda: zone.asked)
    source.close()
    zone.goes_on.set()
    until(lambda: not threads_named("npucall-dns"))
    assert heard.updates == []


def test_a_source_does_not_keep_alive_who_hears(zone: Zone, source: Source) -> None:
    class Pool(Heard):
        def update(self, members: Any, *, complete: bool) -> None:
            self(members, complete=complete)

    zone.addresses = ["10.0.0.1"]
    pool = Pool()
    source.start(pool.update)
    pool.until_listed("10.0.0.1:50051")
    del pool
    gc.collect()
    source.look()
    until(lambda: not threads_named("npucall-dns"))

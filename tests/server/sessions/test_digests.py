"""Bytes that are kept by their digests."""

from hashlib import sha256
from threading import Thread

import pytest
from tests.server.fakes import PATIENCE, FakeCaller, ledger

from npucall_server.accounts.ledger import Ledger
from npucall_server.sessions import digests as module
from npucall_server.sessions.digests import DIGEST_BYTES, Digests

EACH = DIGEST_BYTES + 10
"""What ten bytes count for."""


def of(room: int, host: Ledger | None = None) -> Digests:
    return Digests(room, host or ledger())


def data(number: int) -> bytes:
    return bytes([number]) * 10


def key(number: int) -> bytes:
    return sha256(data(number)).digest()


def kept(subject: Digests, *numbers: int) -> None:
    for number in numbers:
        assert subject.remember("vision", key(number), data(number))


def found(subject: Digests, tenant: str = "vision") -> list[int]:
    return [number for number in range(10) if subject.find(tenant, key(number)) is not None]


def test_bytes_are_found_by_tenant_and_digest() -> None:
    subject = of(1 << 20)
    kept(subject, 1)
    assert bytes(subject.find("vision", key(1)) or b"") == data(1)
    assert subject.find("vision", key(2)) is None
    assert subject.find("speech", key(1)) is None
    assert (subject.hits, subject.misses) == (1, 2)


def test_what_was_used_longest_ago_goes_first() -> None:
    subject = of(3 * EACH)
    kept(subject, 1, 2, 3)
    subject.find("vision", key(1))
    kept(subject, 4)
    assert found(subject) == [1, 3, 4]
    kept(subject, 1, 5)
    assert found(subject) == [1, 4, 5]


def test_all_tenants_share_the_room_and_none_sees_the_others() -> None:
    subject = of(2 * EACH)
    kept(subject, 1)
    subject.remember("speech", key(1), data(1))
    kept(subject, 2)
    assert found(subject) == [2]
    assert found(subject, "speech") == [1]


def test_bytes_of_the_tenant_with_most_go_first() -> None:
    subject = of(3 * (10 + DIGEST_BYTES))
    assert subject.remember("speech", key(0), data(0))
    kept(subject, 1, 2, 3)
    assert found(subject, "speech") == [0]
    assert found(subject) == [2, 3]


def test_what_is_kept_counts_and_what_is_not_does_not() -> None:
    host = ledger()
    subject = of(2 * EACH, host)
    kept(subject, 1, 2, 3, 3)
    assert subject.used == host.used == 2 * EACH


def test_what_has_no_room_is_not_kept_nor_where_calls_hold_the_memory() -> None:
    host = ledger(2 * EACH)
    host.take(FakeCaller(), EACH + 1)
    for subject in of(0), of(EACH - 1), of(1 << 20, host):
        assert not subject.remember("vision", key(1), data(1))
        assert subject.used == 0


def test_calls_that_need_the_memory_get_it() -> None:
    host = ledger(3 * EACH)
    subject = of(1 << 20, host)
    kept(subject, 1, 2, 3)
    entry = host.take(FakeCaller(), 2 * EACH)
    assert len(found(subject)) == 1
    assert subject.used == EACH
    entry.give_back()
    assert host.used == EACH


def test_so_many_are_kept_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    subject = of(1 << 20)
    kept(subject, 1, 2, 3)
    assert found(subject) == [2, 3]


def test_nobody_changes_what_is_kept() -> None:
    subject = of(1 << 20)
    subject.remember("vision", key(1), bytearray(data(1)))
    kept_bytes = subject.find("vision", key(1))
    assert isinstance(kept_bytes, memoryview)
    assert kept_bytes.readonly


def test_many_threads_keep_and_need_memory_at_a_time() -> None:
    host = ledger(20 * EACH)
    subject = of(10 * EACH, host)

    def work(tenant: str) -> None:
        for number in range(200):
            subject.remember(tenant, key(number % 10), data(number % 10))
            if (again := subject.find(tenant, key(number % 7))) is not None:
                assert bytes(again) == data(number % 7)
            host.take(FakeCaller(peer=tenant), 4 * EACH).give_back()

    threads = [Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert subject.used == host.used <= 10 * EACH

"""Parts of what callers share: who gets one, who waits, who gives way."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from npucall_server import ledger as module
from npucall_server.ledger import Entry, Ledger

from .scripted import PATIENCE, until


class FullError(Exception):
    """What the ledgers here refuse with."""


def of(limit: int, **waiting: float) -> Ledger:
    return Ledger(limit, FullError, **waiting)  # type: ignore[arg-type]


def test_a_part_is_taken_until_it_is_given_back() -> None:
    subject = of(10)
    entry = subject.take("a", 10)
    with pytest.raises(FullError):
        subject.take("b", 1)
    entry.give_back()
    assert subject.used == 0
    subject.take("b", 10)


def test_giving_back_twice_gives_back_once() -> None:
    subject = of(10)
    first, _ = subject.take("a", 4), subject.take("a", 4)
    first.give_back()
    first.give_back()
    assert (subject.used, subject.held("a")) == (4, 4)


def test_who_holds_more_than_half_gives_way_the_newest_first() -> None:
    subject = of(10)
    ended: list[int] = []

    def hog(number: int) -> Entry:
        entry: Entry = subject.take("hog", 2, lambda: (ended.append(number), entry.give_back()))
        return entry

    for number in range(5):
        hog(number)
    subject.take("other", 3)
    assert ended == [4, 3]
    assert subject.used == 9


def test_who_holds_half_keeps_it() -> None:
    subject = of(10)
    subject.take("a", 5, pytest.fail)
    subject.take("b", 5, pytest.fail)
    with pytest.raises(FullError):
        subject.take("c", 1)


def test_nobody_is_ended_in_vain() -> None:
    """What cannot be ended keeps its room, so ending the rest would not help."""
    subject = of(10)
    subject.take("hog", 8)
    subject.take("hog", 2, pytest.fail)
    with pytest.raises(FullError):
        subject.take("other", 4)


def test_who_asks_for_more_than_half_makes_nobody_give_way() -> None:
    subject = of(10)
    subject.take("hog", 10, pytest.fail)
    with pytest.raises(FullError):
        subject.take("other", 6)


def test_ones_own_parts_do_not_give_way_to_oneself() -> None:
    subject = of(10)
    subject.take("hog", 10, pytest.fail)
    with pytest.raises(FullError):
        subject.take("hog", 1)


def test_who_does_not_give_way_in_time_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = of(10, patience=0.05)
    told = threading.Event()
    subject.take("hog", 10, told.set)
    with pytest.raises(FullError):
        subject.take("other", 1)
    assert told.is_set()
    assert not subject.is_wanted


def test_what_is_idle_gives_way_however_little_its_owner_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.0)
    subject = of(2)
    entry = subject.take("a", 1)
    entry.yields = entry.give_back
    entry.idle_since = 0.0
    subject.take("b", 1, pytest.fail)
    subject.take("c", 1)
    assert (subject.held("a"), subject.held("c")) == (0, 1)


def test_those_who_may_wait_get_what_is_given_back_first_who_holds_least() -> None:
    subject = of(2, queue=4, patience=PATIENCE)
    held = [subject.take("a", 1), subject.take("b", 1)]
    order: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        for count, owner in enumerate(("a", "c"), 1):
            pool.submit(lambda owner=owner: (subject.take(owner, 1), order.append(owner)))
            until(lambda count=count: len(subject._waiting) == count, "it waits")  # type: ignore[misc]
        held[1].give_back()
        until(lambda: order == ["c"], "who holds nothing comes first")
        held[0].give_back()
    assert order == ["c", "a"]


def test_nobody_fills_the_queue() -> None:
    """Who has most of it gives the last place up for one who has less."""
    subject = of(1, queue=3, patience=PATIENCE)
    holder = subject.take("x", 1)
    ends: Counter[str] = Counter()

    def ask(owner: str) -> None:
        try:
            subject.take(owner, 1).give_back()
            ends[f"{owner} got it"] += 1
        except FullError:
            ends[f"{owner} was refused"] += 1

    with ThreadPoolExecutor(5) as pool:
        for count in 1, 2, 3:
            pool.submit(ask, "many")
            until(lambda count=count: len(subject._waiting) == count, "it waits")  # type: ignore[misc]
        pool.submit(ask, "many")
        until(lambda: ends["many was refused"] == 1, "its queue is full")
        pool.submit(ask, "one")
        until(lambda: ends["many was refused"] == 2, "it gives way")
        holder.give_back()
    assert ends == {"many was refused": 2, "many got it": 2, "one got it": 1}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_threads_do_the_sum_is_right_and_never_above_the_limit(seed: int) -> None:
    subject = of(100, queue=3, patience=0.01)
    above: list[int] = []

    def work(owner: int) -> None:
        rolls = random.Random(seed * 100 + owner)
        mine: list[Entry] = []
        for _ in range(300):
            if mine and rolls.random() < 0.5:
                mine.pop(rolls.randrange(len(mine))).give_back()
            try:
                entry: Entry = subject.take(f"{owner % 3}", rolls.randint(1, 40), lambda: None)
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
    assert (subject.used, subject._owners, subject._waiting) == (0, {}, [])

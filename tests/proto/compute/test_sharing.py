"""npucall.compute.helpers: idle threads help with a call's blocks, and nothing shows of it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.compute.helpers import Helpers, SharedBlocks, Unlimited
from npucall.compute.quiet import quietly
from npucall.errors import InternalError

PATIENCE = 20.0


class Turns:
    """A number of turns, of which it counts how many are held, and how many were at most."""

    def __init__(self, spare: int) -> None:
        self.left, self.held, self.most = spare, 0, 0
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self.held += 1
            self.most = max(self.most, self.held)
        yield
        with self._lock:
            self.held -= 1

    def spare(self) -> Any:
        with self._lock:
            if not self.left:
                return None
            self.left -= 1
        return self._spare()

    @contextmanager
    def _spare(self) -> Iterator[None]:
        with self():
            yield
        with self._lock:
            self.left += 1


def shared(
    compute: Callable[[int], Any], turn: Any, helpers: Helpers, count: int = 40
) -> list[tuple[int, Any]]:
    """What was added, in that order."""
    added: list[tuple[int, Any]] = []
    SharedBlocks(range(count), compute, lambda block, part: added.append((block, part))).run(
        turn, helpers
    )
    return added


def test_a_thread_that_ends_without_its_block_is_not_passed_over(helpers: Helpers) -> None:
    """What such a block should have written held the bytes of other calls."""
    caller = threading.get_ident()
    helped = threading.Event()

    def compute(block: int) -> None:
        if threading.get_ident() != caller:
            helped.set()
            raise SystemExit
        if block:
            assert helped.wait(PATIENCE)

    with pytest.raises(InternalError, match="computed 1 of 5"):
        shared(compute, Turns(spare=1), helpers, 5)


def test_each_block_is_computed_once_and_added_in_order_nobody_is_far_ahead_of_one_that_takes_long(
    helpers: Helpers,
) -> None:
    """What waits to be added would fill the memory otherwise: here 4 blocks a thread."""
    far, computed, ahead = threading.Event(), [], []

    def compute(block: int) -> int:
        computed.append(block)
        if len(computed) == 4 * 4:
            far.set()
        if block == 0:  # the caller's; helpers leave once they are too far ahead of it
            assert far.wait(PATIENCE)
            for _ in range(3):
                assert helpers._idle.acquire(timeout=PATIENCE)
            ahead.append(len(computed))
            for _ in range(3):
                helpers.dismiss()
        return block * block

    added = shared(compute, Unlimited(), helpers, 1000)
    assert ahead == [4 * 4]
    assert sorted(computed) == list(range(1000))
    assert added == [(block, block * block) for block in range(1000)]


def test_helpers_and_the_caller_compute_at_the_same_time(helpers: Helpers) -> None:
    together = threading.Barrier(4, timeout=PATIENCE)
    names = set()

    def compute(block: int) -> None:
        if block:
            together.wait()
        names.add(threading.current_thread().name)

    shared(compute, Unlimited(), helpers, 5)
    assert len(names) == 4


ASKED = [(1, []), (2, []), (3, [1]), (4, [1, 2]), (5, [0, 1, 2, 3])]


@each(("count", "asked"), ASKED)
def test_help_is_wanted_while_there_are_more_and_behind_the_first_block_of_few(
    helpers: Helpers, count: int, asked: list[int]
) -> None:
    """The numbers are those of the blocks that were done when a spare turn was asked for."""

    class Asked(Turns):
        def spare(self) -> Any:
            found.append(len(done))
            return None

    done: list[int] = []
    found: list[int] = []
    shared(done.append, Asked(spare=0), helpers, count)
    assert found == asked


@each(("spare", "idle"), [(0, 3), (2, 0)])
def test_without_a_spare_turn_or_an_idle_helper_the_caller_computes_alone(
    helpers: Helpers, spare: int, idle: int
) -> None:
    """It takes no further turn."""
    busy = [helpers.engage() for _ in range(3 - idle)]
    turns, threads = Turns(spare), set()
    shared(lambda _: threads.add(threading.get_ident()), turns, helpers)
    assert (threads, turns.most, turns.left) == ({threading.get_ident()}, 1, spare)
    for _ in busy:
        helpers.dismiss()


def test_no_block_is_computed_without_a_turn_and_every_turn_and_helper_is_given_back(
    helpers: Helpers,
) -> None:
    caller, held_then = threading.get_ident(), []

    class Watched(Turns):
        def spare(self) -> Any:
            if threading.get_ident() == caller:  # a helper asks between the caller's turns too
                held_then.append(self.held)
            return super().spare()

    turns, seen = Watched(spare=2), []
    for _ in range(20):
        shared(lambda _: seen.append(turns.held), turns, helpers)
        assert (turns.held, turns.left) == (0, 2)
    assert [helpers.engage() for _ in range(4)] == [True, True, True, False]
    assert min(seen) >= 1
    assert turns.most <= 3
    assert min(held_then) >= 1  # the caller has its own before it takes one for a helper


def test_a_turn_that_becomes_free_later_is_used_then(helpers: Helpers) -> None:
    turns = Turns(spare=0)
    threads = {}
    helped = threading.Event()

    def compute(block: int) -> None:
        threads[block] = threading.get_ident()
        if block == 3:
            turns.left = 1
        elif threading.get_ident() != caller:
            helped.set()
        elif block > 3:
            assert helped.wait(PATIENCE)

    caller = threading.get_ident()
    shared(compute, turns, helpers, 8)
    assert [threads[block] == caller for block in range(4)] == [True] * 4
    assert any(threads[block] != caller for block in range(4, 8))


def test_the_error_of_the_first_block_that_failed_is_raised_whoever_failed_first(
    helpers: Helpers,
) -> None:
    later = threading.Event()

    def compute(block: int) -> None:
        if block == 2:
            later.set()
            raise ValueError("2")
        if block == 1:
            assert later.wait(PATIENCE)
            raise ValueError("1")

    with pytest.raises(ValueError, match="1"):
        shared(compute, Unlimited(), helpers)


def test_after_an_error_no_further_block_is_begun(helpers: Helpers) -> None:
    begun = []

    def compute(block: int) -> None:
        begun.append(block)
        raise ValueError(str(block))

    with pytest.raises(ValueError, match="0"):
        shared(compute, Turns(spare=0), helpers)
    assert begun == [0]


def test_a_turn_that_is_refused_ends_the_call_once_the_helpers_have_left(helpers: Helpers) -> None:
    caller, helping, refused = threading.get_ident(), threading.Event(), threading.Event()
    own: list[int] = []
    begun: list[int] = []
    ended: list[int] = []

    class Ending(Turns):
        """The caller's second turn is refused, while a helper is at work."""

        def __call__(self) -> Any:
            if threading.get_ident() == caller and own:
                assert helping.wait(PATIENCE)
                refused.set()
                raise TimeoutError("the end")
            return super().__call__()

    def compute(block: int) -> None:
        begun.append(block)
        if threading.get_ident() == caller:
            own.append(block)
        else:
            helping.set()
            assert refused.wait(PATIENCE)
        ended.append(block)

    turns = Ending(spare=1)
    with pytest.raises(TimeoutError, match="the end"):
        shared(compute, turns, helpers, 1_000_000)
    assert len(begun) < 900_000
    assert sorted(begun) == sorted(ended)
    assert (turns.held, turns.left) == (0, 1)


def test_an_error_while_adding_is_raised_too(helpers: Helpers) -> None:
    def add(block: int, _: Any) -> None:
        if block == 3:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        SharedBlocks(range(40), lambda block: block, add).run(Unlimited(), helpers)


def test_nothing_to_do_is_done_and_no_helpers_at_all_are_never_idle(helpers: Helpers) -> None:
    assert shared(lambda block: block, Turns(spare=1), helpers, 0) == []
    none = Helpers(0)
    assert not none.engage()
    none.close()


def test_what_computes_has_numpy_quiet_and_the_caller_keeps_its_settings() -> None:
    def settings() -> tuple[Any, int]:
        return np.geterr()["divide"], np.getbufsize()

    before = settings()
    assert quietly(lambda: (settings(), quietly(settings))) == (("ignore", 1024),) * 2
    with pytest.raises(ZeroDivisionError):
        quietly(lambda: 1 // 0)
    assert quietly(settings) == ("ignore", 1024)
    assert settings() == before

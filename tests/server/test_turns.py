"""``Turns`` against models: whatever is taken, given back and given up, in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from npucall.errors import DrainingError
from npucall_server.access.identity import anybody
from npucall_server.scheduling.turns import Turns

from .fakes import FakeClock, FakeTurn


def turns_of(count: int, **more: Any) -> Any:
    """That take all that they ask of a turn."""
    return Turns(count, **more)


class TurnsMachine(RuleBasedStateMachine):
    """Several callers; takers have turns, further ones, or wait, those of a caller in order."""

    @initialize(count=st.integers(1, 4))
    def start(self, count: int) -> None:
        self.count = count
        self.clock = FakeClock()
        self.turns = turns_of(count, clock=self.clock.monotonic)
        self.waiting: list[FakeTurn] = []
        self.holders: list[FakeTurn] = []
        self.further: list[tuple[FakeTurn, Any]] = []

    @rule(who=st.integers(0, 2))
    def take(self, who: int) -> None:
        self._asked(taker := FakeTurn(anybody(str(who))), self.turns.take(taker))

    @rule(who=st.integers(0, 2), must=st.booleans())
    def take_alone(self, who: int, must: bool) -> None:  # drawn
        taker = FakeTurn(anybody(str(who)), "must" if must else "if it can")
        before = len(self.holders) + len(self.further)
        grant = self.turns.take_alone(taker, must=must)
        if before == 0:
            assert grant is not None
            assert grant.alone
        self._asked(taker, grant)

    @rule(data=st.data())
    def take_a_further_one(self, data: st.DataObject) -> None:
        """For a call that has one, or has none at the moment."""
        taker = data.draw(st.sampled_from([*self.holders, FakeTurn()]))
        has = len(self.holders) + len(self.further)
        grant = self.turns.take_spare(taker)
        if grant is not None:
            self.further.append((taker, grant))
        assert has < self.count if grant is not None else (self.waiting or self._is_taken(has))

    @precondition(lambda self: self.further)
    @rule(data=st.data())
    def give_a_further_one_back(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.further))
        self.further.remove(each)
        self.turns.give_back(each[1])
        self._look()

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), seconds=st.floats(0.0, 5.0))
    def give_back(self, data: st.DataObject, seconds: float) -> None:
        taker = data.draw(st.sampled_from(self.holders))
        self.clock.advance(seconds)
        self._give_further_ones_back(taker)
        self.holders.remove(taker)
        self.turns.give_back(taker.granted)
        self._look()

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def pass_on(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.holders))
        held, taker.granted = taker.granted, None
        taker.granted = self.turns.pass_on(held)
        if held.alone:
            assert taker.granted is held
        if taker.granted is None:
            taker.wants_alone = taker.must_be_alone = False
            self.holders.remove(taker)
            self.waiting.append(taker)
        self._look()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(taker)
        self.turns.give_up(taker)
        assert taker.granted is None
        self._look()

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def give_up_just_when_the_turn_came(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.holders))
        self._give_further_ones_back(taker)
        self.holders.remove(taker)
        self.turns.give_up(taker)
        self._look()

    @invariant()
    def who_is_alone_is_alone(self) -> None:
        alone = [taker for taker in self.holders if taker.granted.alone]
        if alone:
            assert self.holders == alone
            assert len(alone) == 1
            assert all(taker is alone[0] for taker, _ in self.further)
        assert all(t.granted.alone for t in self.holders if t.must_be_alone)

    @invariant()
    def no_turn_is_made(self) -> None:
        assert len(self.holders) + len(self.further) <= self.count
        assert self.turns.waiting == len(self.waiting)

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """Whoever waits has somebody to wait for; turns are kept for one that must be alone."""
        if self.waiting:
            has = len(self.holders) + len(self.further)
            assert has
            if not any(t.must_be_alone for t in self.waiting) and not self._somebody_is_alone():
                assert has == self.count

    def teardown(self) -> None:
        """When all have given back what they have, everybody has had a turn."""
        if not hasattr(self, "holders"):
            return
        for _, grant in self.further:
            self.turns.give_back(grant)
        self._look()  # who passed its first turn on may have had further ones
        while self.holders:
            self.turns.give_back(self.holders.pop().granted)
            self._look()
        assert not self.waiting
        assert self.turns.running == 0

    def _somebody_is_alone(self) -> bool:
        return any(taker.granted.alone for taker in self.holders)

    def _asked(self, taker: FakeTurn, grant: object) -> None:
        taker.granted = grant
        (self.waiting if grant is None else self.holders).append(taker)
        self._look()

    def _is_taken(self, has: int) -> bool:
        return has == self.count or self._somebody_is_alone()

    def _give_further_ones_back(self, taker: FakeTurn) -> None:
        for each in [each for each in self.further if each[0] is taker]:
            self.further.remove(each)
            self.turns.give_back(each[1])

    def _look(self) -> None:
        came = [taker for taker in self.waiting if taker.granted is not None]
        for place, taker in enumerate(self.waiting):
            before = [one for one in self.waiting[:place] if one.identity == taker.identity]
            assert taker.granted is None or all(one.granted is not None for one in before)
        self.holders += came
        self.waiting = [taker for taker in self.waiting if taker.granted is None]


@pytest.mark.parametrize("examples", [40, pytest.param(600, marks=pytest.mark.more)])
def test_no_turn_is_lost_and_who_has_all_of_the_device_has_it(examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        TurnsMachine, settings=settings(max_examples=examples, deadline=None)
    )


def taken(turns: Any, taker: FakeTurn) -> FakeTurn:
    if taker.wants_alone:
        taker.granted = turns.take_alone(taker, must=taker.must_be_alone)
    else:
        taker.granted = turns.take(taker)
    return taker


def test_one_alone_waits_for_all_turns_and_has_them_for_its_own_helpers() -> None:
    turns = turns_of(2)
    first, alone = taken(turns, FakeTurn()), taken(turns, FakeTurn(alone="must"))
    later = taken(turns, FakeTurn())
    assert (alone.granted, later.granted) == (None, None)
    turns.give_back(first.granted)
    assert alone.granted.alone
    assert later.granted is None
    assert turns.take_spare(FakeTurn()) is None
    spare = turns.take_spare(alone)
    assert turns.take_spare(alone) is None
    for grant in spare, alone.granted:
        assert later.granted is None
        turns.give_back(grant)
    assert later.granted is not None


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_who_asks_to_be_alone_each_time_gets_no_more_of_the_device_than_others(lanes: int) -> None:
    """Two callers with as long calls, all of them waiting: the one alone has its lanes' share."""
    clock = FakeClock()
    turns = turns_of(lanes, clock=clock.monotonic)
    greedy, plain = anybody("greedy"), anybody("plain")
    had = {greedy: 0.0, plain: 0.0}
    active = [taken(turns, FakeTurn(greedy, "must")) for _ in range(200)]
    active += [taken(turns, FakeTurn(plain)) for _ in range(200 * lanes)]
    for _ in range(100):
        running = [taker for taker in active if taker.granted is not None]
        clock.advance(1.0)
        for taker in running:
            had[taker.identity] += lanes if taker.granted.alone else 1
            active.remove(taker)
            turns.give_back(taker.granted)
    assert had[plain] >= had[greedy] - 2 * lanes


def test_who_gives_up_while_turns_are_kept_for_it_pays_for_them() -> None:
    """Else somebody with short deadlines keeps the device idle for nothing."""
    clock = FakeClock()
    turns = turns_of(2, clock=clock.monotonic)
    greedy, plain = anybody("greedy"), anybody("plain")
    running = taken(turns, FakeTurn(anybody("long")))
    wish = taken(turns, FakeTurn(greedy, "must"))
    others = [taken(turns, FakeTurn(greedy)), taken(turns, FakeTurn(plain))]
    clock.advance(10.0)
    turns.give_up(wish)
    assert [each.granted is not None for each in others] == [False, True]
    turns.give_back(running.granted)
    assert others[0].granted is not None


def test_who_passes_a_turn_on_is_told_what_it_cost() -> None:
    clock, told = FakeClock(), list[tuple[Any, int]]()
    turns = turns_of(1, spent=lambda *what: told.append(what), clock=clock.monotonic)
    first, waiter = taken(turns, FakeTurn(anybody("first"))), taken(turns, FakeTurn())
    clock.advance(10.0)
    assert turns.pass_on(first.granted) is None
    assert waiter.granted is not None
    assert told == [(first.identity, 10_000_000_000)]


def test_who_waits_to_be_alone_hears_that_the_device_is_lost() -> None:
    turns = turns_of(2)
    taken(turns, FakeTurn())
    alone = taken(turns, FakeTurn(alone="must"))
    turns.refuse(lambda: DrainingError("lost"))
    assert alone.woken == 1

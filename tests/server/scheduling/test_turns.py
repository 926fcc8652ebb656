"""``Schedule`` against models: whatever is taken, given back and given up, in any order."""

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
from tests.more import only
from tests.server.fakes import FakeClock, FakeTurn

from npucall_server.access.identity import anybody
from npucall_server.scheduling.schedule import Schedule


def turns_of(count: int, **more: Any) -> Any:
    """That take all that they ask of a turn."""
    return Schedule(count, **more)


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

    @rule(data=st.data())
    def take_a_further_one(self, data: st.DataObject) -> None:
        """For a call that has one, or has none at the moment."""
        taker = data.draw(st.sampled_from([*self.holders, FakeTurn()]))
        has = len(self.holders) + len(self.further)
        grant = self.turns.take_spare(taker)
        if grant is not None:
            self.further.append((taker, grant))
        assert (grant is not None) == (has < self.count)

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
        if taker.granted is None:
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
    def no_turn_is_made(self) -> None:
        assert len(self.holders) + len(self.further) <= self.count
        assert self.turns.waiting == len(self.waiting)

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        if self.waiting:
            assert len(self.holders) + len(self.further) == self.count

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

    def _asked(self, taker: FakeTurn, grant: object) -> None:
        taker.granted = grant
        (self.waiting if grant is None else self.holders).append(taker)
        self._look()

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


@pytest.mark.parametrize("examples", only(40, 300, 6000))
def test_no_turn_is_lost_and_nobody_waits_in_vain(examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        TurnsMachine, settings=settings(max_examples=examples, deadline=None)
    )


def taken(turns: Any, taker: FakeTurn) -> FakeTurn:
    taker.granted = turns.take(taker)
    return taker


def test_who_passes_a_turn_on_is_told_what_it_cost() -> None:
    clock, told = FakeClock(), list[tuple[Any, int]]()
    turns = turns_of(1, spent=lambda *what: told.append(what), clock=clock.monotonic)
    first, waiter = taken(turns, FakeTurn(anybody("first"))), taken(turns, FakeTurn())
    clock.advance(10.0)
    assert turns.pass_on(first.granted) is None
    assert waiter.granted is not None
    assert told == [(first.identity, 10_000_000_000)]

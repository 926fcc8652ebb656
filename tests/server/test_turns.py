"""``Turns`` against a model: whatever is taken, given back and given up, in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from npucall_server.turns import Turns

from .scripted import Taker


class TurnsMachine(RuleBasedStateMachine):
    """Every taker of one caller is a holder, waits (in order), or has one that it has not seen."""

    @initialize(count=st.integers(1, 4))
    def start(self, count: int) -> None:
        self.count = count
        self.turns = Turns(count)
        self.holders: list[Taker] = []
        self.queue: list[Taker] = []

    @rule()
    def take(self) -> None:
        taker = Taker()
        free = len(self.holders) < self.count
        taker.granted = self.turns.take(taker)  # type: ignore[arg-type]
        assert (taker.granted is not None) is free
        (self.holders if free else self.queue).append(taker)

    @rule()
    def take_a_spare_one(self) -> None:
        taker = Taker()
        free = len(self.holders) < self.count
        taker.granted = self.turns.take_spare(taker)  # type: ignore[arg-type]
        assert (taker.granted is not None) is free
        if free:
            self.holders.append(taker)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.holders))
        self.holders.remove(taker)
        self.turns.give_back(taker.granted)
        self._expect_grant()

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def pass_on(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.holders))
        self.holders.remove(taker)
        held, taker.granted = taker.granted, None
        taker.granted = self.turns.pass_on(held)
        self.queue.append(taker)
        if taker.granted is None:
            self._expect_grant()
        else:
            assert self.queue == [taker]
            self.holders.append(self.queue.pop())

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def give_up_while_waiting(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.queue))
        self.queue.remove(taker)
        self.turns.give_up(taker)
        assert taker.granted is None

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def give_up_just_when_the_turn_came(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.holders))
        self.holders.remove(taker)
        self.turns.give_up(taker)
        self._expect_grant()

    @invariant()
    def no_turn_is_lost_or_made(self) -> None:
        assert self.turns.running == len(self.holders)
        assert self.turns.waiting == len(self.queue)

    @invariant()
    def nobody_waits_while_a_turn_is_free(self) -> None:
        assert not (self.turns.running < self.count and self.queue)

    def _expect_grant(self) -> None:
        """Who came first has it, once; nobody else has."""
        if self.queue:
            first = self.queue.pop(0)
            assert first.granted is not None
            self.holders.append(first)
        assert all(taker.granted is None for taker in self.queue)


TestTurns = TurnsMachine.TestCase

"""``Turns`` against a model: whatever is taken, given back and given up, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from npucall_server.turns import Turns

if TYPE_CHECKING:
    from npucall_server.turns import Turn


class Taker:
    """Stands for the turn of a call: knows whether it was granted."""

    def __init__(self) -> None:
        self.granted = 0

    def grant(self) -> None:
        self.granted += 1


class TurnsMachine(RuleBasedStateMachine):
    """Every taker is a holder, waits (in order), or was granted a turn that it has not seen."""

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
        assert self.turns.take(as_turn(taker)) is free
        (self.holders if free else self.queue).append(taker)

    @rule()
    def take_a_spare_one(self) -> None:
        free = len(self.holders) < self.count
        assert self.turns.take_spare() is free
        if free:
            self.holders.append(Taker())

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.holders.remove(data.draw(st.sampled_from(self.holders)))
        self.turns.give_back()
        self._expect_grant()

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def give_up_while_waiting(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.queue))
        self.queue.remove(taker)
        self.turns.give_up(as_turn(taker))
        assert taker.granted == 0

    @precondition(lambda self: any(taker.granted for taker in self.holders))
    @rule(data=st.data())
    def give_up_just_when_the_turn_came(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from([t for t in self.holders if t.granted]))
        self.holders.remove(taker)
        self.turns.give_up(as_turn(taker))
        self._expect_grant()

    @invariant()
    def no_turn_is_lost_or_made(self) -> None:
        assert self.turns._free == self.count - len(self.holders)
        assert len(self.turns._waiting) == len(self.queue)

    @invariant()
    def nobody_waits_while_a_turn_is_free(self) -> None:
        assert not (self.turns._free and self.queue)

    def _expect_grant(self) -> None:
        """Who came first has it, once; nobody else has."""
        if self.queue:
            first = self.queue.pop(0)
            assert first.granted == 1
            self.holders.append(first)
        assert not any(taker.granted for taker in self.queue)


def as_turn(taker: Taker) -> Turn:
    turn: Turn = taker  # type: ignore[assignment]  # all that Turns asks of one is grant()
    return turn


TestTurns = TurnsMachine.TestCase

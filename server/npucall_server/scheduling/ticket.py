"""What one call holds, and its two ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.programs import Program
    from npucall_server.accounts.ledger import Entry
    from npucall_server.scheduling.call_turn import CallTurn
    from npucall_server.scheduling.executor import Executor
    from npucall_server.scheduling.gate import Permit


class _Part(Protocol):
    """Something that was taken for a call."""

    def give_back(self) -> None:
        """A second time does nothing."""


class Ticket:
    """All that one call holds, from the places that it opens to the last byte of its answer.

    What it uses goes back once it ``ran``: its open places, its permit, its place. The rest goes
    back once its answer is ``read``, or never will be: its memory, its tenant's quotas.
    """

    places: _Part | None = None
    """Its open places, if its bytes are not in its message."""
    permit: Permit | None = None
    at_once = False
    """Whether the call would run at this moment in this thread, if a turn is free."""
    turn: CallTurn | None = None
    """Its first one, if it had that when it was admitted; then it needs no place."""
    place: Entry | None = None
    memory: Entry | None = None
    quotas: Sequence[_Part] = ()
    executor: Executor | None = None
    """Where it counts as a call in flight, once it is admitted."""
    asked: Prepared | Program
    """What was admitted."""
    runs = False
    """Whether a thread runs the call: until it ends, what it uses stays."""
    has_run = False
    """Whether it has given back what it used."""

    def may_end_by(self, end: Callable[[], object]) -> None:
        """``end`` ends the call if others ask for its place or its memory."""
        place, memory = self.place, self.memory
        if place is not None:
            place.may_end_by(end)
        if memory is not None:
            memory.may_end_by(end)

    @property
    def is_refused(self) -> bool:
        """Whether somebody has reserved the device since the call was let in."""
        return self.permit is not None and self.permit.refusal is not None

    def must_go_on(self) -> None:
        """From now on the call is not ended for others."""
        for entry in (self.place, self.memory):
            if entry is not None:
                entry.must_stay()

    def end(self) -> None:
        """Ends the call, if it can be ended now."""
        place = self.place
        if place is not None and (end := place.yields) is not None:
            end()

    def ran(self) -> None:
        """The call no longer uses the device, nor its inputs. A second time does nothing."""
        if self.runs or self.has_run:
            return
        self.has_run = True
        turn, self.turn = self.turn, None
        if turn is not None and turn.held is not None:
            turn.leave()
        place, self.place = self.place, None
        if place is not None:
            place.give_back()
        if self.places is not None:
            self.places.give_back()
        if self.permit is not None:
            self.permit.give_back()

    def read(self) -> None:
        """Nobody waits for the call or its answer any longer. A second time does nothing."""
        if not self.has_run:
            self.ran()
        memory, self.memory = self.memory, None
        if memory is not None:
            memory.give_back()
        for quota in self.quotas:
            quota.give_back()
        executor, self.executor = self.executor, None
        if executor is not None:
            executor.give_back(self)

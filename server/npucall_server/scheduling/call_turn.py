"""The turns of one call, one after the other, with deadline and cancel."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from typing import Self

from npucall.errors import DeadlineError, QueueFullError
from npucall.texts import retry_in
from npucall_server import retries
from npucall_server.access.callers import Caller, went_away
from npucall_server.accounts.waiting import about_to_wait
from npucall_server.devices.base import Pieces
from npucall_server.scheduling.schedule import Grant, Schedule
from npucall_server.scheduling.shares import Share
from npucall_server.scheduling.ticket import Ticket

_SECONDS_BETWEEN_PAUSES = 0.01
"""How long a call keeps its turn between pauses. Others may wait so long for each such call."""


class CallTurn:
    """The turns of one call, one after the other: ``with turn(): ...``.

    ``call_timeout`` limits its time on the server, without the time that it waited for ``pieces``.
    While it waits for the first one, what its ``ticket`` holds may end it.
    """

    share: Share[CallTurn] | None = None
    """Where it waits; set by ``Schedule``."""
    granted: Grant | None = None
    """The grant that it was given and has not taken yet."""
    waited_ns = 0
    held_ns = 0
    """How long it has held turns."""
    told_ns = 0
    """The part of ``held_ns`` that the account has been told."""
    held: Grant | None = None
    """The turn that it has; of a call that got it when it was admitted, from the beginning."""
    _wake: threading.Event | None = None  # made when it has to wait: most never do
    _gives_way = _begun = False
    _pauses_at = 0.0

    def __init__(
        self,
        turns: Schedule,
        caller: Caller,
        call_timeout: float,
        pieces: Pieces | None = None,
        ticket: Ticket | None = None,
    ) -> None:
        self._since = time.monotonic()
        self._turns, self._caller = turns, caller
        self._call_timeout, self._pieces = call_timeout, pieces
        self._ticket = ticket
        self._remaining = remaining = caller.time_remaining()
        self._least = call_timeout if remaining is None else min(call_timeout, remaining)
        """Seconds that it has in any case."""
        self.identity = caller.identity

    @property
    def owner(self) -> str:
        """Who the call is for."""
        return self.identity.person

    def __call__(self) -> Self:
        return self

    def __enter__(self) -> None:
        self.check()
        if self.held is None:
            self.held = self._turns.take(self) or self._wait()
        self._begun = True

    def leave(self, *_: object) -> None:
        """Gives its turn back, if it has one: a pause may have ended the call without one."""
        if self.held is not None:
            held, self.held = self.held, None
            self._turns.give_back(held)

    __exit__ = leave

    def pause(self) -> None:
        """Within a turn: checks, and every few ms lets waiting calls have the turn for a while.

        Raises DeadlineError, CancelledError, and what calls raise since the device is lost.
        """
        now = time.monotonic()
        if now < self._pauses_at:
            return
        self.check()
        self._turns.moves()
        if self._turns.waiting and self.held is not None:
            held, self.held = self.held, None
            self.held = self._turns.pass_on(held) or self._wait()
        self._pauses_at = time.monotonic() + _SECONDS_BETWEEN_PAUSES

    def spare(self) -> AbstractContextManager[object] | None:
        """One more turn at the same time for the same call, if one is free and nobody waits."""
        return self._turns.take_spare(self)

    def grant(self, grant: Grant) -> None:
        """Called by ``Schedule`` when the turn has come."""
        self.granted = grant
        self.wake()

    def give_way(self) -> None:
        """Ends the call for others who ask for its place, unless its first turn has come."""
        self._gives_way = True
        self.wake()

    def wake(self) -> None:
        """Looks again whether it is still worth waiting."""
        if self._wake is not None:
            self._wake.set()

    def _wait(self) -> Grant:
        """Waits for the grant, which may have come already: who gives it looks for ``_wake``."""
        about_to_wait()
        start = time.perf_counter_ns()
        ticket = None if self._begun else self._ticket
        if ticket is not None:
            ticket.may_end_by(self.give_way)
            if ticket.is_refused:  # a reservation came a moment ago
                self._gives_way = True
        woken = self._wake
        if woken is None:
            self._wake = woken = threading.Event()
            self._caller.add_callback(self.wake)
        try:
            while self.granted is None:
                self.check()
                woken.wait(self._seconds - (time.monotonic() - self._since))
                woken.clear()
            self.check()  # what ends it may have come before its turn
        except BaseException:  # however the wait ends, a turn that nobody takes is lost
            self._turns.give_up(self)
            raise
        finally:
            self.waited_ns += time.perf_counter_ns() - start
        if ticket is not None:
            ticket.must_go_on()
        grant, self.granted = self.granted, None
        return grant

    def check(self) -> None:
        """Raises DeadlineError or CancelledError if the caller no longer waits.

        And what calls raise since the device is lost.
        """
        if self._turns.refusal is not None:
            raise self._turns.refusal()
        spent = time.monotonic() - self._since
        if spent >= self._least and spent >= self._seconds:
            raise self._late()
        if not self._caller.is_active():
            raise went_away()
        if self._gives_way and not self._begun:
            raise gave_way()

    @property
    def _seconds(self) -> float:
        """Seconds until the call ends."""
        own = self._call_timeout
        if self._pieces is not None:
            own += self._pieces.waited_ns / 1e9
        return own if self._remaining is None else min(own, self._remaining)

    def _late(self) -> DeadlineError:
        remaining = self._remaining
        if remaining is None or remaining > self._seconds:
            limit = f"{self._call_timeout:g}"
            return DeadlineError(
                f"the call took longer than the server allows (call_timeout = {limit} s); send "
                "smaller calls, or raise the setting",
                limit=limit,
                setting="call_timeout",
            )
        return DeadlineError(
            f"the deadline of the call ended after {remaining:.3g} s on the server; give it a "
            "longer timeout"
        )


def gave_way() -> QueueFullError:
    """The error of a call that was ended for others."""
    return QueueFullError(
        "the server ended the call, because others need memory and this caller holds more than "
        f"half of it; {retry_in(retries.GAVE_WAY)}",
        retry_after=retries.GAVE_WAY,
    )

"""The gate in front of the device. While a caller has reserved it, calls of others do not pass."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from npucall.errors import CancelledError, NpucallError, UnauthenticatedError
from npucall.wire.status import RESERVATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.access.callers import Caller
    from npucall_server.access.identity import Identity
    from npucall_server.scheduling.reservations import (
        CurrentReservation,
        Granted,
        Reservations,
        Wish,
    )

RUNNING_SECONDS = 5.0
"""Calls of others get this long to end, even if the one who reserves would wait for less."""
_LONGEST_WAIT = 3600.0
"""The longest time between two looks, since a lock cannot wait without end."""


class Passage:
    """A call that has passed the gate and may still use the device."""

    __slots__ = ("_gate", "end", "key", "refusal")

    def __init__(self, gate: Gate, key: str) -> None:
        self._gate, self.key = gate, key
        self.end: Callable[[], object] | None = None
        self.refusal: NpucallError | None = None
        """Why the gate ended the call; None if it did not."""

    def may_end_by(self, end: Callable[[], object]) -> None:
        """``end`` ends the call for a reservation before it runs.

        Raises if one has already come.
        """
        self.end = end
        if self.refusal is not None:
            raise self.refusal

    def is_answered(self) -> None:
        """The call has an answer, so the gate no longer ends it, though it may still run."""
        self.end = None
        if self.refusal is not None:
            self._gate.wait_for_ends()

    def leave(self) -> None:
        """The call no longer uses the device. A second time does nothing."""
        self._gate.leave(self)


class Gate:
    """Lets calls pass. When somebody reserves the device, it waits until other calls have left.

    ``check`` raises UnauthenticatedError for a holder whose credential is no longer good.
    """

    def __init__(
        self, reservations: Reservations, check: Callable[[Identity], object] = bool
    ) -> None:
        self._reservations, self._is_known = reservations, check
        # A call that is ended may leave the gate in the same thread, which has the lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[Passage, None] = {}
        self._waiting = 0
        self._closed: Callable[[], NpucallError] | None = None

    # --- Calls ------------------------------------------------------------------------------------

    def enter(self, caller: Caller) -> Passage:
        """Lets a call pass. Raises ReservedError.

        If nobody has reserved the device, this takes no lock. The call is put inside first and
        looks for a reservation then. A reservation is granted first and looks inside then. So at
        least one of the two sees the other.
        """
        key = caller.metadata.get(RESERVATION, "")
        passage = Passage(self, str(key))
        self._inside[passage] = None
        if key or not self._reservations.is_free:
            try:
                self._check_key(passage, caller.identity)
            except BaseException:
                self.leave(passage)
                raise
        return passage

    def _check_key(self, passage: Passage, caller: Identity) -> None:
        with self._lock:
            before = self._reservations.key
            self._reservations.check(passage.key, caller)
            if before != self._reservations.key:
                self._end_others()

    def wait_for_ends(self) -> None:
        """A passage calls this. It waits until a thread that is ending calls has done so."""
        with self._lock:
            pass

    def leave(self, passage: Passage) -> None:
        """A passage calls this. It takes no lock while nobody waits to reserve the device."""
        if self._inside.pop(passage, passage) is None and self._waiting:
            self._wake()

    # --- Reservations -----------------------------------------------------------------------------

    def reserve(self, caller: Caller, seconds: float, wait: float) -> Granted:
        """Reserves the device once nobody else has it and no call of others runs.

        Raises ReservedError if that takes longer than ``wait`` seconds, though running calls get
        a few seconds in any case. Raises MessageError, CancelledError, and the error of ``close``.
        """
        ends = time.monotonic() + wait
        with self._changed:
            self._check(caller)
            wish = self._reservations.ask(caller.identity, seconds)
            self._waiting += 1
            try:
                caller.add_callback(self._wake)
                self._wait_for_grant(wish, caller, ends)
                self._wait_for_quiet(wish, caller, max(ends, time.monotonic() + RUNNING_SECONDS))
                self._check(caller)
                return self._reservations.begin(wish)
            except BaseException:
                self._reservations.withdraw(wish)
                raise
            finally:
                self._waiting -= 1
                self._changed.notify_all()

    def renew(self, key: str, holder: Identity) -> Granted:
        """Moves the end of the lease. Raises ReservedError."""
        with self._changed:
            before = self._reservations.key
            granted = self._reservations.renew(key, holder)
            if before != granted.key:
                self._end_others()
            return granted

    def release(self, key: str, holder: Identity) -> None:
        """Ends the reservation of a key."""
        with self._changed:
            self._reservations.release(key, holder)
            self._changed.notify_all()

    def release_any(self) -> None:
        """Ends the current reservation, whoever holds it."""
        with self._changed:
            self._reservations.release_any()
            self._changed.notify_all()

    def shown(self) -> CurrentReservation | None:
        """The current reservation."""
        with self._changed:
            return self._reservations.shown()

    def look(self) -> None:
        """Ends reservations that are over, or whose holder's credential is no longer good.

        To be called every second.
        """
        with self._changed:
            shown = None if self._reservations.is_free else self._reservations.shown()
            if shown is None:
                return
            try:
                self._is_known(shown.holder)
            except UnauthenticatedError:
                self._reservations.release_any("reservation of an unknown caller ended")
                self._changed.notify_all()

    def close(self, refusal: Callable[[], NpucallError]) -> None:
        """Callers that wait for a reservation, or ask for one from now on, get this error."""
        with self._changed:
            self._closed = refusal
            self._changed.notify_all()

    # --- Waiting, with the lock -------------------------------------------------------------------

    def _wait_for_grant(self, wish: Wish, caller: Caller, ends: float) -> None:
        reservations = self._reservations
        while not reservations.is_granted(wish):
            self._wait(caller, min(ends, time.monotonic() + reservations.seconds_to_change()))
            reservations.settle()
            if time.monotonic() >= ends and not reservations.is_granted(wish):
                raise reservations.refusal(wish)

    def _wait_for_quiet(self, wish: Wish, caller: Caller, ends: float) -> None:
        self._end_others()
        while self._inside:
            if not self._reservations.is_granted(wish):
                raise self._reservations.lost()
            if time.monotonic() >= ends:
                raise self._reservations.refusal(wish)
            self._wait(caller, ends)

    def _check(self, caller: Caller) -> None:
        if self._closed is not None:
            raise self._closed()
        if not caller.is_active():
            raise CancelledError("the caller stopped waiting for the reservation")

    def _wait(self, caller: Caller, until: float) -> None:
        self._check(caller)
        self._changed.wait(min(_LONGEST_WAIT, max(0.0, until - time.monotonic())))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _end_others(self) -> None:
        """Ends the calls of others that have not begun to run."""
        key = self._reservations.key
        for passage in tuple(self._inside):
            if passage.refusal is None and (not key or passage.key != key):
                passage.refusal = self._reservations.refusal()
                if passage.end is not None:
                    passage.end()

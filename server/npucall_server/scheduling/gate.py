"""The gate in front of the device. While a caller has reserved it, calls of others do not pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from npucall.errors import CancelledError, NpucallError, UnauthenticatedError
from npucall.wire.status import RESERVATION
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


class Permit:
    """That a call may use the device. It holds until the call gives it back."""

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

    def give_back(self) -> None:
        """The call no longer uses the device. A second time does nothing.

        It takes no lock while nobody waits to reserve the device.
        """
        self.end = None  # a call that is over is not kept alive
        gate = self._gate
        if gate.inside.pop(self, self) is None and gate.waiting:
            gate.wake()


class Gate:
    """Gives calls permits.

    When somebody reserves the device, it waits until other calls have given theirs back.
    ``check`` raises UnauthenticatedError for a holder whose credential is no longer good.
    """

    def __init__(
        self, reservations: Reservations, check: Callable[[Identity], object] = bool
    ) -> None:
        self._reservations, self._is_known = reservations, check
        # A call that is ended may give its permit back in the same thread, which has the lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.inside: dict[Permit, None] = {}
        """Permits that calls have."""
        self.waiting = 0
        """How many wait to reserve the device."""
        self._closed: Callable[[], NpucallError] | None = None

    # --- Calls ------------------------------------------------------------------------------------

    def enter(self, caller: Caller) -> Permit:
        """Lets a call pass. Raises ReservedError.

        If nobody has reserved the device, this takes no lock. The call is put inside first and
        looks for a reservation then. A reservation is granted first and looks inside then. So at
        least one of the two sees the other.
        """
        key = caller.metadata.get(RESERVATION, "")
        permit = Permit(self, str(key))
        self.inside[permit] = None
        if key or not self._reservations.is_free:
            try:
                self._check_key(permit, caller.identity)
            except BaseException:
                permit.give_back()
                raise
        return permit

    def _check_key(self, permit: Permit, caller: Identity) -> None:
        with self._lock:
            before = self._reservations.key
            self._reservations.check(permit.key, caller)
            if before != self._reservations.key:
                self._end_others()

    def wait_for_ends(self) -> None:
        """A permit calls this. It waits until a thread that is ending calls has done so."""
        with self._lock:
            pass

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
            self.waiting += 1
            try:
                caller.add_callback(self.wake)
                self._wait_for_grant(wish, caller, ends)
                self._wait_for_quiet(wish, caller, max(ends, time.monotonic() + RUNNING_SECONDS))
                self._check(caller)
                return self._reservations.begin(wish)
            except BaseException:
                self._reservations.withdraw(wish)
                raise
            finally:
                self.waiting -= 1
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
        while self.inside:
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

    def wake(self) -> None:
        """Those who wait look again whether the device is free."""
        with self._changed:
            self._changed.notify_all()

    def _end_others(self) -> None:
        """Ends the calls of others that have not begun to run."""
        key = self._reservations.key
        for permit in tuple(self.inside):
            if permit.refusal is None and (not key or permit.key != key):
                permit.refusal = self._reservations.refusal()
                if (end := permit.end) is not None:
                    end()

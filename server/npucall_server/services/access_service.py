"""``npucall.v1.AccessService``: reservations of the device; ``account`` has its other methods."""

from __future__ import annotations

from npucall.errors import MessageError, QueueFullError
from npucall.v1 import access_service_pb2 as pb
from npucall_server import retries
from npucall_server.access.callers import Caller
from npucall_server.access.guard import require
from npucall_server.accounts.ledger import Ledger
from npucall_server.retries import refusal
from npucall_server.scheduling.gate import Gate
from npucall_server.services.parsing import parse
from npucall_server.settings.tenants import Role
from npucall_server.telemetry.log import Record

NAME: str = pb.DESCRIPTOR.services_by_name["AccessService"].full_name
MOST_WAITING = 16
"""The most callers that wait for a reservation at a time."""
_LONGEST_WAIT = 7 * 24 * 3600.0


class AccessService:
    """The methods, from bytes to bytes."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.waiting = Ledger(MOST_WAITING, _too_many_wait)
        """Callers who wait."""

    def reserve(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Reserves the device."""
        require(caller.identity, Role.BENCH, "reserve")
        wanted = parse(pb.ReserveRequest, request)
        wait = wanted.wait_seconds
        if not 0 <= wait <= _LONGEST_WAIT:
            raise MessageError(
                f"wait_seconds: expected 0 to {_LONGEST_WAIT:g}, found {wait:g}",
                limit=f"{_LONGEST_WAIT:g}",
            )
        place = self.waiting.take(caller, 1, caller.cancel)
        try:
            granted = self._gate.reserve(caller, wanted.seconds, wait)
        finally:
            place.give_back()
        return pb.ReserveResponse(
            key=granted.key,
            ends_seconds=granted.ends_seconds,
            renew_within_seconds=granted.renew_within_seconds,
        ).SerializeToString()

    def renew_reservation(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Renews a reservation."""
        key = parse(pb.RenewReservationRequest, request).key
        granted = self._gate.renew(key, caller.identity)
        return pb.RenewReservationResponse(
            ends_seconds=granted.ends_seconds, renew_within_seconds=granted.renew_within_seconds
        ).SerializeToString()

    def release_reservation(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """Ends a reservation."""
        key = parse(pb.ReleaseReservationRequest, request).key
        if key:
            self._gate.release(key, caller.identity)
        else:
            require(caller.identity, Role.ADMIN, "release another's reservation")
            self._gate.release_any()
        return pb.ReleaseReservationResponse().SerializeToString()


def _too_many_wait(*_: object) -> QueueFullError:
    sentence = f"{MOST_WAITING} callers wait for a reservation, as many as may"
    return refusal(QueueFullError, sentence, retries.RESERVATION, limit=MOST_WAITING)

"""What callers may see of each other, as messages of the contract."""

from __future__ import annotations

import math
import time

from npucall.v1 import operator_service_pb2 as pb
from npucall_server.access.identity import Identity, KnownBy
from npucall_server.scheduling.reservations import CurrentReservation
from npucall_server.settings.tenants import Role

_ROLES = {each: pb.CallerRole.Value(f"CALLER_ROLE_{each.name}") for each in Role}
_KNOWN_BY = {each: pb.KnownBy.Value(f"KNOWN_BY_{each.name}") for each in KnownBy}


def caller_info(who: Identity, told: Identity) -> pb.CallerInfo:
    """A caller as another caller sees it. Callers of other tenants see no name."""
    sees = told.tenant == who.tenant or told.role >= Role.ADMIN
    ends = 0.0 if who.expires == math.inf else max(0.0, who.expires - time.time())
    return pb.CallerInfo(
        tenant=who.tenant,
        name=who.name if sees else "",
        role=_ROLES[who.role],
        known_by=_KNOWN_BY[who.known_by],
        expires_seconds=ends if told.person == who.person else 0.0,
    )


def reservation(shown: CurrentReservation | None, told: Identity) -> pb.Reservation | None:
    """The current reservation as a caller sees it."""
    if shown is None:
        return None
    return pb.Reservation(
        holder=caller_info(shown.holder, told),
        ends_seconds=shown.ends_seconds,
        waiting=shown.waiting,
    )

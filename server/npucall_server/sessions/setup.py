"""The sessions of a server, from its settings."""

from __future__ import annotations

import time
from collections.abc import Callable

from npucall_server.access.identity import Identity
from npucall_server.accounts.ledger import Ledger
from npucall_server.accounts.quotas import quota_of
from npucall_server.devices.base import Device
from npucall_server.sessions.handle_room import HandleRoom
from npucall_server.sessions.ids import SessionIds, place_of
from npucall_server.sessions.open_sessions import SessionLimits, Sessions
from npucall_server.settings.keeping import kept_server_id
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.tenants import Tenants


def sessions_of(  # noqa: PLR0913  # all that sessions depend on
    settings: ServerSettings,
    device: Device,
    instance: str,
    host: Ledger,
    tenants: Tenants,
    make_room: Callable[[int], object] = bool,
    check: Callable[[Identity], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Sessions:
    """Of a process that is called ``instance``; see ``HandleRoom`` and ``Sessions``."""
    rules = SessionLimits.of(settings, device)
    quota = quota_of(tenants, "handle_memory")
    memory = HandleRoom(device, rules.handle_memory, host, quota, make_room)
    where = settings.listens[0].where
    name = settings.server_id or kept_server_id(settings.state_folder)
    ids = SessionIds(place_of(device.name, where, name), instance, settings.advertise or where)
    places = quota_of(tenants, "sessions")
    return Sessions(memory, rules, ids, settings.call_timeout, places, check, clock)

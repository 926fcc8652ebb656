"""What runs the calls of a server: everything but the network."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from npucall.wire.replies import ServerIdentity
from npucall_server.access.guard import Guard
from npucall_server.access.identity import Identity
from npucall_server.access.setup import Access
from npucall_server.accounts.endings import Endings
from npucall_server.accounts.quotas import quota_of
from npucall_server.accounts.usage import Usage
from npucall_server.calls.beginning import Executions
from npucall_server.calls.open_places import Places
from npucall_server.calls.requests import PROGRAM
from npucall_server.carriers.peers import Peers
from npucall_server.devices.base import Device
from npucall_server.scheduling.executor import Executor, Limits
from npucall_server.scheduling.gate import Gate
from npucall_server.scheduling.kept_memory import KeptMemory, StrayMemory
from npucall_server.scheduling.reservation_keys import ReservationKeys
from npucall_server.scheduling.reservations import GAP_SECONDS, ReservationRules, Reservations
from npucall_server.serving.binding import SettingsError
from npucall_server.serving.listener import access_of
from npucall_server.sessions.digests import Digests
from npucall_server.sessions.open_sessions import Sessions
from npucall_server.sessions.setup import sessions_of
from npucall_server.settings.server import ServerSettings
from npucall_server.shared.regions import Regions
from npucall_server.telemetry.log import Log


class Clock(NamedTuple):
    """Where a server reads the time, in seconds: of a clock that never goes back, and since 1970.

    Whatever looks now and then whether a time is over asks it. Threads that wait do not.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


SYSTEM = Clock()


@dataclass(frozen=True)
class Core:
    """The parts of a server that need no address."""

    settings: ServerSettings
    device: Device
    log: Log
    identity: ServerIdentity
    access: Access
    guard: Guard
    usage: Usage
    endings: Endings | None
    executor: Executor
    peers: Peers
    gate: Gate
    regions: Regions
    sessions: Sessions
    digests: Digests
    executions: Executions
    stray: StrayMemory

    def is_well(self) -> bool:
        """Whether the device still makes progress: turns that are taken also end."""
        return not self.executor.is_stuck(self.settings.device_timeout)


def core_of(
    settings: ServerSettings,
    device: Device,
    log: Log,
    clock: Clock = SYSTEM,
    guard: Guard | None = None,
) -> Core:
    """Puts it together. ``guard``: who callers are; None: as the settings say.

    Raises SettingsError.
    """
    access = access_of(settings, log, settings.shared_memory)
    guard = guard or access.guard
    usage = Usage(operators_of(device), clock.wall)
    endings = _endings_of(settings, device, log, clock)
    executor = Executor(device, _limits(settings), access.tenants, usage, clock.monotonic, endings)
    identity = ServerIdentity(secrets.token_hex(6), device.name, device.soc)
    memory, tenants = executor.memory, access.tenants
    kept = KeptMemory(settings.memory_limit)
    shared = quota_of(tenants, "shared_memory")
    regions = Regions(settings.shared_memory_limit, memory, shared)
    sessions = sessions_of(
        settings, device, identity.instance, memory, tenants, kept.make_room, guard.check,
        clock.monotonic,
    )  # fmt: skip
    digests = Digests(settings.digest_cache_bytes, memory)
    gate = _gate_of(settings, device, log, clock, guard)
    executions = Executions(executor, identity, Places(regions, sessions, digests), kept, gate)
    peers = Peers(log, settings.peer_timeout, clock=clock.monotonic)
    return Core(
        settings, device, log, identity, access, guard, usage, endings, executor, peers, gate,
        regions, sessions, digests, executions, StrayMemory(memory),
    )  # fmt: skip


def _endings_of(settings: ServerSettings, device: Device, log: Log, clock: Clock) -> Endings | None:
    folder = settings.state_folder
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        return Endings(folder, device.name, log, clock.wall, clock.monotonic)
    except OSError as error:
        raise SettingsError(
            f"state_folder: expected a folder that the server can write, found {folder}: {error}"
        ) from error


def operators_of(device: Device) -> list[str]:
    """The names that are counted for a device."""
    return [*(operator.name for operator in device.catalogue), PROGRAM]


def _limits(settings: ServerSettings) -> Limits:
    return Limits(
        settings.queue_length, settings.memory_limit, settings.call_timeout,
        settings.computation_limit,
    )  # fmt: skip


def _gate_of(
    settings: ServerSettings, device: Device, log: Log, clock: Clock, guard: Guard
) -> Gate:
    """The gate in front of the device, with the reservations that it obeys."""

    def tell(event: str, holder: Identity, seconds: float) -> None:
        log.event(event, tenant=holder.tenant, caller=holder.name, seconds=seconds)

    secret = settings.reservation_key
    keys = ReservationKeys(secret.get_secret_value() if secret else None, device.name)
    rules = ReservationRules(settings.max_reservation, GAP_SECONDS)
    return Gate(Reservations(rules, keys, clock.monotonic, clock.wall, tell), guard.check)

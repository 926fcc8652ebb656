"""Connects device, executor and services, binds the addresses, and drains."""

from __future__ import annotations

import os
import secrets
import threading
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from npucall.limits import MAX_REGIONS
from npucall.wire.replies import ServerIdentity
from npucall_server import binding, grpc_server
from npucall_server.announcing.announcer import Announcer
from npucall_server.announcing.member import Beats, Parts
from npucall_server.budget import Budget
from npucall_server.devices.base import device_lost
from npucall_server.execution.executions import Executions
from npucall_server.execution.placed import Places
from npucall_server.execution.program import PROGRAM
from npucall_server.executor import Executor, Limits, going_down
from npucall_server.exits import ExitCode
from npucall_server.front import Front, access_of, connections_possible, metrics_of
from npucall_server.gate import Gate
from npucall_server.handling import Handling
from npucall_server.kept_memory import IdleMemory, KeptMemory
from npucall_server.metrics.gauges import Gauges
from npucall_server.peers import Peers
from npucall_server.reservation_keys import Keys
from npucall_server.reservations import Reservations, Rules
from npucall_server.services import operators as operators_service
from npucall_server.services.access import AccessService
from npucall_server.services.account import AccountService
from npucall_server.services.operators import OperatorService
from npucall_server.services.sessions.kept import Kept
from npucall_server.services.sessions.service import SessionService
from npucall_server.services.streams.service import StreamService
from npucall_server.sessions.digests import Digests
from npucall_server.sessions.setup import sessions_of
from npucall_server.shared.regions import Regions
from npucall_server.shared.side_socket import SideSocket
from npucall_server.traces import traces
from npucall_server.usage import Usage
from npucall_server.usage_file import UsageFile
from npucall_server.watch import Watch

if TYPE_CHECKING:
    from npucall.errors import NpucallError
    from npucall_server.access.identity import Identity
    from npucall_server.devices.base import Device
    from npucall_server.log import Log
    from npucall_server.settings import ServerSettings

_OTHER_DESCRIPTORS = 64 + 4 * MAX_REGIONS
_LOOK_SECONDS = 1.0
_IDLE_SECONDS = 5.0
"""Kept memory is given back when this time has passed twice without a call."""
_LAST_ANSWERS_SECONDS = 2.0
_RESTART_SECONDS = 5.0
"""How long a server that is started again usually takes until it answers."""


class Server:
    """A server on one device, from binding to draining."""

    def __init__(self, settings: ServerSettings, device: Device, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._access = access_of(settings, log, settings.shared_memory)
        limits = Limits(
            settings.queue_length, settings.memory_limit, settings.call_timeout,
            settings.computation_limit,
        )  # fmt: skip
        operators = [*(operator.name for operator in device.catalogue), PROGRAM]
        self.usage = Usage(operators)
        self._executor = Executor(device, limits, self._access.tenants, self.usage)
        self._gate = self._open_gate()
        connections = connections_possible(_OTHER_DESCRIPTORS) // len(settings.listens)
        self._budget = Budget.of(settings, connections)
        self._peers = Peers(log, settings.peer_timeout)
        self._metrics = metrics_of(settings, operators)
        regions = Regions(
            settings.shared_memory_limit, self._executor.memory, self._executor.quotas
        )
        self._grpc = grpc_server.server(settings, self._budget, device.lanes)
        self._services = self._serve_with(regions)
        self._losing = threading.Lock()
        self._idle = IdleMemory(self._executor, _IDLE_SECONDS) if settings.keep_memory else None
        self._front = Front(
            self._grpc, settings, self._services.health, [operators_service.NAME], self._is_well,
            self._peers, log,
        )  # fmt: skip
        self._side = self._open_side(regions)
        self._usage_file = self._open_usage_file()
        self._front.show_metrics(self._metrics, self._gauges(regions).samples)
        self._announcer = self._make_announcer()
        self._watch = self._look_after_peers()
        device.watch(self._lose)

    def start(self) -> None:
        """Starts to serve, then writes the ready file."""
        device, settings = self._executor.device, self._settings
        self._front.start(
            settings.advertise,
            device=device.name,
            soc=device.soc,
            memory_limit=settings.memory_limit,
            **asdict(self._budget),
        )
        if self._announcer is not None:
            self._announcer.start()

    def reload(self) -> None:
        """Reads the files that say who may call again, at once."""
        self._access.look()

    def drain(self) -> bool:
        """Reports NOT_SERVING, refuses new calls, finishes those admitted.

        Answers whether all finished within ``drain_timeout``. The others are cut.
        """
        self._log.event("draining", calls=self._executor.calls_in_flight)
        self._report_not_serving()
        self._executor.drain()
        self._gate.close(going_down)
        self._streams.drain()
        finished = self._executor.wait_idle(self._settings.drain_timeout)
        self._front.stop(_LAST_ANSWERS_SECONDS if finished else 0)
        if self._announcer is not None:
            self._announcer.stop()
        if self._side is not None:
            self._side.close()
        if self._idle is not None:
            self._idle.stop()
        self._watch.stop()
        self._sessions.end_all()
        self._access.close()
        self._metrics.close()
        if self._usage_file is not None:
            self._usage_file.stop()
        self._log.event("stopped", finished=finished)
        return finished

    @property
    def address(self) -> str:
        """The first of the addresses, as callers write it."""
        return self._front.addresses[0]

    def _report_not_serving(self) -> None:
        self._front.report_not_serving()
        if self._announcer is not None:
            self._announcer.tell()

    def _lose(self, error: NpucallError) -> None:
        """The device is lost: reports NOT_SERVING, answers all waiting callers, ends the process.

        The thread that found out calls this, and it never returns. CANN is not finalised, since
        that may hang too. The supervisor of the process starts it again.
        """
        if not self._losing.acquire(blocking=False):
            return  # the process ends already
        refusal = partial(device_lost, _RESTART_SECONDS)
        self._executor.lose(refusal)  # first, so that no other call gets a turn
        self._gate.close(refusal)
        threading.Thread(target=self._end, args=(error,), name="npucall-lost", daemon=True).start()

    def _end(self, error: NpucallError) -> None:
        self._log.event("device lost", message=str(error), **error.details)
        self._report_not_serving()
        # Hanging calls are cut too: not every call has a thread that could still answer.
        self._grpc.stop(_LAST_ANSWERS_SECONDS).wait(_LAST_ANSWERS_SECONDS + 1.0)
        if self._announcer is not None:
            self._announcer.stop()
        self._log.event("exit", code=ExitCode.DEVICE_LOST)
        if self._side is not None:
            self._side.remove()
        if self._usage_file is not None:
            self._usage_file.stop()
        self._front.remove_ready_file()
        self._log.flush()
        os._exit(ExitCode.DEVICE_LOST)

    def _serve_with(self, regions: Regions) -> grpc_server.Services:
        """Gives the gRPC server its services."""
        settings, executor, budget = self._settings, self._executor, self._budget
        device = executor.device
        self._identity = identity = ServerIdentity(secrets.token_hex(6), device.name, device.soc)
        kept = KeptMemory(settings.memory_limit)
        self._sessions = sessions_of(
            settings, device, identity.instance, executor.memory, executor.quotas, kept.make_room,
            self._access.guard.check,
        )  # fmt: skip
        self._digests = Digests(settings.digest_cache_bytes, executor.memory)
        places = Places(regions, self._sessions, self._digests)
        executions = Executions(executor, identity, places, kept, self._gate)
        self._streams = StreamService(executions, settings, budget)
        spans = traces(device.name)
        counts = self.usage.called, self._metrics.called, *([spans.called] if spans else [])
        handling = Handling(identity, self._log, self._peers, self._access.guard, counts)
        services = grpc_server.Services(handling, budget, self._is_well)
        account = AccountService(self.usage, executor, self._streams.places, self._gate)
        self._operators = calls = OperatorService(executions, settings, budget, identity)
        kept_bytes = Kept(
            self._sessions, self._digests, executor, self._gate, self._streams.places,
            budget.chunk_bytes,
        )  # fmt: skip
        handlers = services.handlers(
            calls,
            self._streams,
            AccessService(self._gate, account),
            SessionService(kept_bytes, identity),
        )
        self._grpc.add_generic_rpc_handlers(handlers)
        if settings.has_reflection:
            services.add_reflection(self._grpc)
        return services

    def _open_gate(self) -> Gate:
        """Makes the gate in front of the device, with the reservations that it obeys."""
        settings, secret = self._settings, self._settings.reservation_key
        keys = Keys(secret.get_secret_value() if secret else None, self._executor.device.name)
        rules = Rules(settings.max_reservation, settings.reservation_gap)
        reservations = Reservations(rules, keys, tell=self._tell_of_reservation)
        return Gate(reservations, self._access.guard.check)

    def _tell_of_reservation(self, event: str, holder: Identity, seconds: float) -> None:
        self._log.event(event, tenant=holder.tenant, caller=holder.name, seconds=seconds)

    def _make_announcer(self) -> Announcer | None:
        """What announces this server to directories, if the settings name some."""
        settings, health, service = self._settings, self._services.health, self._operators
        if not settings.announce:
            return None
        parts = Parts(
            settings, self._identity, self._executor, self._gate, lambda: service.catalogue,
            lambda: health.is_serving,
        )  # fmt: skip
        address = settings.advertised(self._front.addresses)
        return Announcer(settings, Beats(address, parts), self._log)

    def _look_after_peers(self) -> Watch:
        most = self._budget.max_connections  # on each address, since gRPC counts so
        idle = self._front.looks(most, self._busy_peers)
        looks = [self._peers.look, self._gate.look, *idle]
        looks += [self._access.look, self._streams.look, self._sessions.look]
        if self._side is not None:
            looks.append(self._side.look)
        return Watch(_LOOK_SECONDS, self._log, *looks)

    def _busy_peers(self) -> set[str]:
        """The peers that have a call, in whatever state."""
        waiting, streams = self._services.busy_peers(), self._streams.places.peers
        return self._executor.peers() | streams | waiting

    def _is_well(self) -> bool:
        """Whether the device still makes progress: turns that are taken also end."""
        return not self._executor.is_stuck(self._settings.device_timeout)

    def _gauges(self, regions: Regions) -> Gauges:
        streams, health = self._streams.places, self._services.health
        return Gauges(
            self._executor, streams, regions, self._sessions, self._digests, self._gate,
            lambda: health.is_serving,
        )  # fmt: skip

    def _open_usage_file(self) -> UsageFile | None:
        path = self._settings.usage_file
        if path is None:
            return None
        try:
            return UsageFile(path.absolute(), self.usage, self._log)
        except OSError as error:
            raise binding.SettingsError(
                f"usage_file: expected a file that the server can read and write, found {path}: "
                f"{error}"
            ) from error

    def _open_side(self, regions: Regions) -> SideSocket | None:
        path = self._settings.shared_memory
        if path is None:
            return None
        binding.check_path("shared_memory", path.absolute())
        try:
            users = self._settings.shared_memory_users
            guard = self._access.tenants_guard
            return SideSocket(path.absolute(), users, regions, self._log, guard)
        except OSError as error:
            raise binding.BindError(
                f"shared_memory: expected a path where the server can make a socket, found {path}: "
                f"{error}"
            ) from error

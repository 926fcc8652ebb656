"""Puts a server together from settings and a device, binds the addresses, serves, and drains."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, dataclass
from functools import partial

import grpc

from npucall.errors import NpucallError
from npucall.limits import MAX_REGIONS
from npucall_server.access.guard import Guard
from npucall_server.accounts.budget import LEAST_CONNECTIONS, Budget
from npucall_server.accounts.usage_file import UsageFile
from npucall_server.announcing import member
from npucall_server.announcing.announcer import Announcer
from npucall_server.carriers.door import Door
from npucall_server.carriers.frames.frame_service import FrameService
from npucall_server.carriers.multiplex.stream_service import StreamService
from npucall_server.devices.base import Device, device_lost
from npucall_server.exits import ExitCode
from npucall_server.metrics.gauges import Gauges
from npucall_server.metrics.shown import Metrics
from npucall_server.scheduling.executor import going_down
from npucall_server.scheduling.kept_memory import IdleMemory
from npucall_server.services import operators as operators_service
from npucall_server.services.access_service import AccessService
from npucall_server.services.account import AccountService
from npucall_server.services.operators import OperatorService
from npucall_server.services.sessions.kept import Kept
from npucall_server.services.sessions.service import SessionService
from npucall_server.serving import binding, grpc_server, process_limits
from npucall_server.serving.core import SYSTEM, Clock, Core, core_of, operators_of
from npucall_server.serving.frames_listeners import FramesListener, frames_listeners_of
from npucall_server.serving.listener import Listener, metrics_of
from npucall_server.serving.watch import Watch
from npucall_server.settings.server import ServerSettings
from npucall_server.shared.side_socket import SideSocket
from npucall_server.telemetry.log import Log
from npucall_server.telemetry.traces import traces

_OTHER_DESCRIPTORS = 64 + 4 * MAX_REGIONS
_LOOK_SECONDS = 1.0
_IDLE_SECONDS = 5.0
"""Kept memory is given back when this time has passed twice without a call."""
_LAST_ANSWERS_SECONDS = 2.0
_RESTART_SECONDS = 5.0
"""How long a server that is started again usually takes until it answers."""


@dataclass(frozen=True)
class Methods:
    """The gRPC server with its services."""

    grpc: grpc.Server
    budget: Budget
    metrics: Metrics
    services: grpc_server.Services
    operators: OperatorService
    streams: StreamService
    frames: FrameService


@dataclass(frozen=True)
class Parts:
    """A server that is put together. It has its addresses, and does not answer yet."""

    core: Core
    methods: Methods
    listener: Listener
    side: SideSocket | None
    frames: list[FramesListener]
    usage_file: UsageFile | None
    announcer: Announcer | None
    idle: Watch | None
    watch: Watch


def build(
    settings: ServerSettings,
    device: Device,
    log: Log,
    clock: Clock = SYSTEM,
    guard: Guard | None = None,
) -> Parts:
    """Puts a server together. ``guard``: who callers are; None: as the settings say.

    Raises SettingsError and BindError.
    """
    core = core_of(settings, device, log, clock, guard)
    methods = _methods_of(core)
    listener = Listener(
        methods.grpc, settings, methods.services.health, [operators_service.NAME], core.is_well,
        core.peers, log,
    )  # fmt: skip
    side = _side_of(core)
    usage_file = _usage_file_of(core)
    listener.show_metrics(methods.metrics, _gauges_of(core, methods).samples)
    announcer = _announcer_of(core, methods, listener)
    frames = frames_listeners_of(
        settings, log, methods.frames, methods.operators, core.access.tenants_guard
    )
    give_back = IdleMemory(core.executor).look
    idle = Watch(_IDLE_SECONDS, log, give_back) if settings.keep_memory else None
    watch = _watch_of(core, methods, listener, side)
    return Parts(core, methods, listener, side, frames, usage_file, announcer, idle, watch)


class Server:
    """Serves with the parts of a server, from the start to draining."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._losing = threading.Lock()
        parts.core.device.watch(self._lose)

    def start(self) -> None:
        """Starts to serve, then writes the ready file."""
        parts, settings = self.parts, self.parts.core.settings
        if parts.core.endings is not None:
            parts.core.endings.start()
        for part in (parts.watch, parts.idle):
            if part is not None:
                part.start()
        for each in parts.frames:
            each.start()
        parts.listener.start(
            settings.advertise,
            device=parts.core.device.name,
            soc=parts.core.device.soc,
            memory_limit=settings.memory_limit,
            frames=", ".join(each.where for each in parts.frames),
            **asdict(parts.methods.budget),
        )
        if parts.announcer is not None:
            parts.announcer.start()

    def reload(self) -> None:
        """Reads the files that say who may call again, at once."""
        self.parts.core.access.look()

    def drain(self) -> bool:
        """Reports NOT_SERVING, refuses new calls, finishes those admitted.

        Answers whether all finished within ``drain_timeout``. The others are cut.
        """
        core, log = self.parts.core, self.parts.core.log
        log.event("draining", calls=core.executor.calls_in_flight)
        self._report_not_serving()
        core.executor.drain()
        core.gate.close(going_down)
        self.parts.methods.streams.drain()
        finished = core.executor.wait_idle(core.settings.drain_timeout)
        self.parts.listener.stop(_LAST_ANSWERS_SECONDS if finished else 0)
        self._stop()
        log.event("stopped", finished=finished)
        return finished

    @property
    def address(self) -> str:
        """The first of the addresses, as callers write it."""
        return self.parts.listener.addresses[0]

    def _stop(self) -> None:
        """Ends what is left once no call is."""
        parts, core = self.parts, self.parts.core
        if parts.side is not None:
            parts.side.close()
        for each in parts.frames:
            each.close()
        parts.methods.frames.close()
        for part in (parts.announcer, parts.idle, parts.watch):
            if part is not None:
                part.stop()
        core.sessions.end_all()
        core.access.close()
        parts.methods.metrics.close()
        if parts.usage_file is not None:
            parts.usage_file.stop()
        if core.endings is not None:
            core.endings.drained()

    def _report_not_serving(self) -> None:
        self.parts.listener.report_not_serving()
        if self.parts.announcer is not None:
            self.parts.announcer.tell()

    def _lose(self, error: NpucallError) -> None:
        """The device is lost: reports NOT_SERVING, answers all waiting callers, ends the process.

        The thread that found out calls this, and it never returns. CANN is not finalised, since
        that may hang too. The supervisor of the process starts it again.
        """
        if not self._losing.acquire(blocking=False):
            return  # the process ends already
        refusal = partial(device_lost, _RESTART_SECONDS)
        self.parts.core.executor.lose(refusal)  # first, so that no other call gets a turn
        self.parts.core.gate.close(refusal)
        threading.Thread(target=self._end, args=(error,), name="npucall-lost", daemon=True).start()

    def _end(self, error: NpucallError) -> None:
        parts, log = self.parts, self.parts.core.log
        log.event("device lost", message=str(error), **error.details)
        self._report_not_serving()
        # Hanging calls are cut too: not every call has a thread that could still answer.
        stopped = parts.methods.grpc.stop(_LAST_ANSWERS_SECONDS)
        parts.core.executor.wait_idle(_LAST_ANSWERS_SECONDS)  # calls in frames, too
        stopped.wait(_LAST_ANSWERS_SECONDS + 1.0)
        if parts.announcer is not None:
            parts.announcer.stop()
        log.event("exit", code=ExitCode.DEVICE_LOST)
        if parts.side is not None:
            parts.side.remove()
        for each in parts.frames:
            each.close()
        if parts.usage_file is not None:
            parts.usage_file.stop()
        parts.listener.remove_ready_file()
        log.flush()
        os._exit(ExitCode.DEVICE_LOST)


def _methods_of(core: Core) -> Methods:
    """Gives a gRPC server its services."""
    settings, executions = core.settings, core.executions
    has_frames = settings.has_frames_socket or bool(settings.frames_listen)
    doors = len(settings.listens) + has_frames  # each has as many as may be
    wanted = settings.max_connections or LEAST_CONNECTIONS
    connections = process_limits.connections(wanted, doors, _OTHER_DESCRIPTORS, core.log)
    budget = Budget.of(settings, connections)
    metrics = metrics_of(settings, operators_of(core.device))
    server = grpc_server.server(settings, budget, core.device.lanes)
    door = _door_of(core, metrics)
    services = grpc_server.Services(door, core.peers, budget, core.is_well)
    operators = OperatorService(executions, settings, budget, core.identity)
    streams = StreamService(executions, settings, budget, door, core.peers)
    account = AccountService(core.usage, core.executor, streams.places, core.gate, core.endings)
    kept = Kept(
        core.sessions, core.digests, core.executor, core.gate, streams.places, budget.chunk_bytes,
        core.guard, core.peers,
    )  # fmt: skip
    handlers = services.handlers(
        operators, streams, AccessService(core.gate), account, SessionService(kept, core.identity)
    )
    server.add_generic_rpc_handlers(handlers)
    if settings.has_reflection:
        services.add_reflection(server)
    frames = FrameService(
        executions, budget, door, core.peers, streams.threads, services.call_room,
        streams.execute_stream, core.regions,
    )  # fmt: skip
    return Methods(server, budget, metrics, services, operators, streams, frames)


def _door_of(core: Core, metrics: Metrics) -> Door:
    spans = traces(core.device.name)
    watchers = core.usage.called, *metrics.watchers, *([spans.called] if spans else [])
    return Door(core.identity, core.log, core.guard, watchers)


def _announcer_of(core: Core, methods: Methods, listener: Listener) -> Announcer | None:
    """What announces this server to directories, if the settings name some."""
    settings, health, service = core.settings, methods.services.health, methods.operators
    if not settings.announce:
        return None
    parts = member.MemberParts(
        settings, core.identity, core.executor, core.gate, lambda: service.catalogue,
        lambda: health.is_serving, core.endings,
    )  # fmt: skip
    address = settings.advertised(listener.addresses)
    return Announcer(settings, member.Beats(address, parts), core.log)


def _watch_of(core: Core, methods: Methods, listener: Listener, side: SideSocket | None) -> Watch:
    """What looks after peers, and after all that ends by itself."""

    def busy_peers() -> set[str]:
        """The peers that have a call, in whatever state."""
        waiting, streams = methods.services.busy_peers(), methods.streams.places.peers
        return core.executor.peers() | streams | waiting

    most = methods.budget.max_connections  # on each address, since gRPC counts so
    connections = listener.connections(most, busy_peers, core.peers)
    looks = [core.peers.look, core.gate.look, connections.look, core.stray.look]
    looks += [core.access.look, methods.streams.look, methods.frames.look, core.sessions.look]
    if side is not None:
        looks.append(side.look)
    if core.endings is not None:
        looks.append(core.endings.look)
    return Watch(_LOOK_SECONDS, core.log, *looks)


def _gauges_of(core: Core, methods: Methods) -> Gauges:
    streams, health = methods.streams.places, methods.services.health
    return Gauges(
        core.executor, streams, core.regions, core.sessions, core.digests, core.gate,
        lambda: health.is_serving, core.endings,
    )  # fmt: skip


def _usage_file_of(core: Core) -> UsageFile | None:
    path = core.settings.usage_file
    if path is None:
        return None
    try:
        return UsageFile(path.absolute(), core.usage, core.log)
    except OSError as error:
        raise binding.SettingsError(
            f"usage_file: expected a file that the server can read and write, found {path}: {error}"
        ) from error


def _side_of(core: Core) -> SideSocket | None:
    path = core.settings.shared_memory
    if path is None:
        return None
    binding.check_path("shared_memory", path.absolute())
    try:
        users, guard = core.settings.shared_memory_users, core.access.tenants_guard
        return SideSocket(path.absolute(), users, core.regions, core.log, guard)
    except OSError as error:
        raise binding.BindError(
            f"shared_memory: expected a path where the server can make a socket, found {path}: "
            f"{error}"
        ) from error

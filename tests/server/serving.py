"""A server in this process, put together by the product, on a fake device and a fake clock."""

import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from npucall.places import HandlePart, OutputPlace, Place
from npucall.wire.messages import Response, join_request, split_response
from npucall.wire.program_messages import StepRequest, join_program, split_program_response
from npucall_server.access.guard import Guard
from npucall_server.serving.app import Server, build
from npucall_server.serving.core import Clock, Core, core_of
from npucall_server.sessions.session import OpenSession
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.tenants import Tenant
from npucall_server.telemetry.log import Log, Record

from .fakes import FakeCaller, FakeClock, FakeDevice, is_at_rest, until

_READERS = ("npucall-stream", "npucall-upload")


class Offline:
    """What runs calls, without the network. Time passes when the test says so.

    ``tenants``: their limits, though nobody proves to be of one.
    """

    def __init__(
        self,
        device: Any = None,
        guard: Guard | None = None,
        tenants: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
        **settings: Any,
    ) -> None:
        self.clock, self.log = FakeClock(), io.StringIO()
        self.settings = ServerSettings(**{"listen": "127.0.0.1:0", **settings})
        self.device = device or FakeDevice()
        self.core = core = self._core(guard)
        if tenants:
            tables = {name: Tenant.model_validate(table) for name, table in tenants.items()}
            core.access.tenants.replace(tables)
        self.executor, self.executions, self.gate = core.executor, core.executions, core.gate
        self.sessions, self.digests, self.regions = core.sessions, core.digests, core.regions

    def _core(self, guard: Guard | None) -> Core:
        return core_of(*self._given, guard)

    @property
    def _given(self) -> tuple[ServerSettings, Any, Log, Clock]:
        clock = Clock(self.clock.monotonic, self.clock.wall)
        return self.settings, self.device, Log(stream=self.log), clock

    # --- Calls --------------------------------------------------------------------------------

    def run(
        self,
        call: bytes,
        storage: Sequence[Place],
        places: Mapping[str, OutputPlace] | None = None,
        caller: FakeCaller | None = None,
    ) -> Response:
        """One call in one message."""
        with self.executions.begin(caller or FakeCaller(), record()) as execution:
            execution.prepare(join_request(call, storage, places or {}))
            execution.admit()
            execution.run()
            return split_response(execution.reply_message())

    def run_program(self, steps: Sequence[StepRequest], caller: FakeCaller) -> list[Response]:
        with self.executions.begin(caller, record(), program=True) as execution:
            execution.prepare(join_program(steps))
            execution.admit()
            execution.run()
            return split_program_response(execution.reply_message()).steps

    # --- Sessions -----------------------------------------------------------------------------

    def open(self, who: str = "", **wanted: Any) -> OpenSession:
        return self.sessions.open(FakeCaller(who=who), **wanted)

    @property
    def handle_bytes(self) -> int:
        """That all sessions hold."""
        return self.sessions.memory.ledger.used

    @property
    def is_empty(self) -> bool:
        """No session is open, no byte is held, and none is counted."""
        counts = self.device.allocated, self.handle_bytes, self.executor.memory.used
        return not len(self.sessions) and counts == (0, 0, 0)


class Served(Offline):
    """And with an address at which it answers."""

    def _core(self, guard: Guard | None) -> Core:
        self.server = Server(build(*self._given, guard))
        self.parts = self.server.parts
        self.streams, self.target = self.parts.methods.streams, self.server.address
        self.server.start()
        return self.parts.core

    def look(self) -> None:
        """What the server does every second."""
        self.parts.watch.look()

    def drain(self) -> None:
        """Begins to: what is there is finished."""
        self.executor.drain()
        self.streams.drain()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of the log of one event."""
        lines = map(json.loads, self.log.getvalue().splitlines())
        return [line for line in lines if line["event"] == name]

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the log behind the one of the start."""
        return [json.loads(line) for line in self.log.getvalue().splitlines()[1:]]

    def reasons(self) -> list[str]:
        """Of calls; gRPC may tell the end of a connection as the end of its frames."""
        return [line["reason"] for line in self.lines() if line.get("operator")]

    def is_idle(self) -> bool:
        """No call is left and no byte is counted, but for those kept by digests."""
        return is_at_rest(self.executor, self.digests.used)

    def is_at_rest(self) -> bool:
        """And no stream is open, no thread reads one."""
        reads = any(map(self._reads, threading.enumerate()))
        return self.is_idle() and not reads and not self.streams._streams

    def _reads(self, thread: threading.Thread) -> bool:
        """Whether a thread reads a stream or an upload of this server, not of another one."""
        stream = getattr(getattr(thread, "_target", None), "__self__", None)
        is_reader = thread.name in _READERS and bool(stream)
        return is_reader and _peers_of(stream) is self.core.peers


def _peers_of(reading: Any) -> object:
    """Those of a stream, or of an upload."""
    return (reading._common if hasattr(reading, "_common") else reading._kept).peers


@contextmanager
def serving(device: Any = None, guard: Guard | None = None, **settings: Any) -> Iterator[Served]:
    """A server that must be at rest when it ends, whatever its streams did."""
    served = Served(device, guard, **settings)
    try:
        yield served
        until(served.is_at_rest, "the server is at rest")
    finally:
        served.server.drain()
        served.streams.threads.shutdown()
    assert not len(served.sessions)


def record() -> Record:
    return Record("Execute", "test", "test")


def part(handle: bytes, offset: int = 0, length: int = 4) -> HandlePart:
    return HandlePart(handle, offset, length)


def filled(
    session: OpenSession, handle: bytes, data: bytes = b"data", identity: bytes = b""
) -> None:
    """Fills a handle."""
    filling = session.fill(handle, len(data), identity or sha256(data).digest())
    assert filling.is_new
    filling.memory.write(0, data)
    filling.succeed()


def read(session: OpenSession, handle: bytes, length: int = 4, offset: int = 0) -> bytes:
    """Bytes of a handle that is filled."""
    reading = session.read(part(handle, offset, length), "x")
    try:
        found = reading.wait(FakeCaller())
        return bytes(found.memory.read(found.offset, found.length))
    finally:
        reading.give_back()

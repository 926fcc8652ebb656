"""A fake device, caller, clock and turn, which do what a test tells them, and calls for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.client.pool.heard import until

from npucall.declare.prepare import Prepared
from npucall.dtypes import FLOAT, DType
from npucall.errors import NpucallError, OutOfMemoryError, QueueFullError
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.places import OutputPlace, Place
from npucall.products import DEFAULT_SOC, product_of
from npucall.programs import Program, ProgramStep, check_output_places, sizes
from npucall.tensors import Buffer, TensorSpec
from npucall.wire.calls import PreparedCalls, encode
from npucall.wire.status import SESSION
from npucall_server.access.identity import Identity, KnownBy, anybody
from npucall_server.accounts.ledger import Ledger
from npucall_server.calls.open_places import OpenPlaces, Places
from npucall_server.devices.base import DeviceTurn, Outputs, Phases, Ran, Step
from npucall_server.devices.host_memory import HostResident
from npucall_server.scheduling.executor import Executor, Limits
from npucall_server.scheduling.ticket import Ticket
from npucall_server.settings.tenants import Role
from npucall_server.shared.regions import Regions
from npucall_server.telemetry.log import Record

PATIENCE = 20.0
"""Seconds after which a test gives up; none takes so long unless something is broken."""
INPUTS = ("grad_output", "self", "target")
__all__ = ["until"]  # beside what is defined here


# --- A device -------------------------------------------------------------------------------------


class FakeMemory(HostResident):
    """Memory that its device counts until it is freed, which may be once."""

    _freed = False

    def __init__(self, device: FakeDevice, nbytes: int) -> None:
        super().__init__(nbytes)
        self._device = device
        device.count(nbytes)

    def free(self) -> None:
        assert not self._freed, "freed twice"
        self._freed = True
        self._device.count(-self.nbytes)
        super().free()


class FakeDevice:
    """Runs a function of the test as every call; ``lose`` is what a device that breaks calls.

    ``own_memory``: what it suggests for handles. ``has``: how many bytes it has in all.
    """

    name = "fake"
    soc = DEFAULT_SOC
    product = product_of(DEFAULT_SOC)
    catalogue = CATALOGUE
    default_variant = DEFAULT_VARIANT
    result: Buffer = b"result"
    working = 0
    runs_in_calling_thread = False
    has = 1 << 40

    def __init__(
        self,
        run: Callable[[DeviceTurn], None] = lambda _: None,
        lanes: int = 1,
        phases: Phases | None = None,
        own_memory: int = 0,
    ) -> None:
        self._run, self._phases, self.lanes = run, phases, lanes
        self.memory_for_handles = own_memory
        self.allocated = 0
        """Bytes that are not freed."""
        self._lock = threading.Lock()

    def plan(self, call: Prepared, turn: DeviceTurn) -> int:
        self._run(turn)
        return 512

    def run(self, steps: Sequence[Step], turn: DeviceTurn, pieces: Any = None) -> Ran:
        self._run(turn)
        return Ran([[self.result] for _ in steps], self._phases)

    def takes_pieces(self, call: Prepared) -> bool:
        return False

    def allocate(self, nbytes: int, dtype: DType | None = None) -> FakeMemory:
        if self.allocated + nbytes > self.has:
            raise OutOfMemoryError("device: out of memory")
        return FakeMemory(self, nbytes)

    def count(self, nbytes: int) -> None:
        with self._lock:
            self.allocated += nbytes

    def working_bytes(self, call: Prepared) -> int:
        return self.working

    def unavailable_because(self, operator: object) -> str:
        return ""

    def facts(self) -> None:
        return None

    def watch(self, lost: Callable[[NpucallError], None]) -> None:
        self.lose = lost

    def close(self) -> None:
        pass


class BlockingDevice(FakeDevice):
    """Each call holds a turn until the test lets it go.

    ``checks``: meanwhile it asks whether the call should go on.
    """

    def __init__(self, lanes: int = 1, *, checks: bool = False) -> None:
        super().__init__(self._hold, lanes)
        self.entered: list[str] = []
        """The threads that got a turn."""
        self.running = 0
        self._checks, self._tickets, self._holds = checks, threading.Semaphore(0), True
        self._patience = 0.005 if checks else PATIENCE

    def let_go(self, calls: int = 1) -> None:
        self._tickets.release(calls)

    def let_all_go(self) -> None:
        self._holds = False
        self.let_go(100)  # those that wait

    def _hold(self, turn: DeviceTurn) -> None:
        with turn():
            self.entered.append(threading.current_thread().name)
            self.running += 1
            try:
                while self._holds and not self._tickets.acquire(timeout=self._patience):
                    assert self._checks, "nobody let it go"
                    turn.check()
            finally:
                self.running -= 1


def device_that_answers(size: int) -> FakeDevice:
    device = FakeDevice()
    device.result = bytes(range(256)) * (size // 256)
    return device


# --- A clock, callers and turns -------------------------------------------------------------------


class FakeClock:
    """Both clocks of a machine. Its time passes when the test says so; the wall clock may jump."""

    def __init__(self) -> None:
        self._now, self._offset = 100.0, 1.7e9

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._offset

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._offset += seconds


def person(who: str) -> Identity:
    """Of ``tenant/name``."""
    tenant, _, name = who.partition("/")
    return Identity(tenant, name, Role.USER, KnownBy.TOKEN)


class FakeCaller:
    """Waits ``remaining`` seconds for its call, or until the test cancels it.

    ``who``: ``tenant/name``; else nobody knows. ``session``: that of its metadata.
    """

    request_id, carrier = "", "grpc"
    metadata: Mapping[str, str] = {}  # nobody writes into it

    def __init__(
        self, remaining: float | None = None, peer: str = "fake", who: str = "", session: Any = None
    ) -> None:
        self.peer = peer
        self.known = person(who) if who else None
        if session is not None:
            self.metadata = {SESSION: session if isinstance(session, str) else session.id}
        self._remaining = remaining
        self._active = True
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def identity(self) -> Identity:
        return self.known or anybody(self.peer)

    @property
    def owner(self) -> str:
        return self.identity.owner

    def time_remaining(self) -> float | None:
        return self._remaining

    def is_active(self) -> bool:
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        with self._lock:
            if self._active:
                self._callbacks.append(callback)
            return self._active

    def cancel(self) -> None:
        with self._lock:
            self._active = False
        for callback in self._callbacks:
            callback()


class FakeTurn:
    """The turn of a call, as ``Schedule`` sees it."""

    granted: Any = None
    share: Any = None
    held_ns = told_ns = 0

    def __init__(self, identity: Identity | None = None) -> None:
        self.identity = identity or anybody("fake")
        self.woken = 0

    def grant(self, grant: Any) -> None:
        assert self.granted is None
        self.granted = grant

    def wake(self) -> None:
        self.woken += 1


# --- Calls ----------------------------------------------------------------------------------------


def prepared(elements: int = 2, operator: str = "aclnnL1LossBackward", **specs: Any) -> Prepared:
    """A call with three inputs and an output, so of 16 bytes an element."""
    given = {**dict.fromkeys(INPUTS, TensorSpec(FLOAT, (elements,))), **specs}
    calls = PreparedCalls(CATALOGUE, FakeDevice.product, DEFAULT_VARIANT)
    return calls.of(encode(operator, "", given, INPUTS))


def executor(
    device: Any,
    queue_length: int = 8,
    memory_limit: int = 1 << 30,
    call_timeout: float = PATIENCE,
    **more: Any,
) -> Executor:
    return Executor(device, Limits(queue_length, memory_limit, call_timeout), **more)


class Executed(NamedTuple):
    """What a call gave, and what its record says."""

    outputs: Outputs
    record: Record


def admitted(
    subject: Executor, call: Prepared, caller: FakeCaller, *, at_once: bool = False
) -> Ticket:
    ticket = Ticket()
    ticket.at_once = at_once
    subject.admit(ticket, call, caller, subject.room_of(call))
    return ticket


def execute(
    subject: Executor,
    call: Prepared,
    storages: Mapping[str, Buffer] | None = None,
    caller: FakeCaller | None = None,
) -> Executed:
    """A call from its admission to its end."""
    caller = caller or FakeCaller()
    ticket = admitted(subject, call, caller)
    try:
        record = Record("Execute", "1", caller.peer)
        outputs = subject.run([Step(call, storages or {})], caller, ticket, record)
        return Executed(outputs, record)
    finally:
        ticket.read()


def ledger(limit: int = 1 << 40) -> Ledger:
    """Of bytes, for who needs one."""
    return Ledger(limit, lambda *_: QueueFullError("full"))


def waiting(subject: Executor) -> int:
    """How many calls wait for a turn."""
    return subject.turns.waiting


def is_at_rest(subject: Executor, kept: int = 0) -> bool:
    """Whether no call is left, every byte is counted back and every turn is free.

    ``kept``: bytes that are kept for callers.
    """
    turns = subject.turns
    free = not turns.running and not turns.waiting
    return free and (subject.calls_in_flight, subject.bytes_in_flight) == (0, kept)


def opened(
    call: Prepared,
    regions: Regions,
    storage: Sequence[Place],
    places: Mapping[str, OutputPlace],
) -> OpenPlaces:
    """A call with places in regions, and without a session."""
    call.check_sizes(sizes(call, storage))
    check_output_places(call, places)
    nowhere: Any = None
    program = Program([ProgramStep(call, storage, places)])
    return OpenPlaces(Places(regions, nowhere, nowhere), FakeCaller(), program, b"")

"""A device and a caller that do what a test tells them, and calls to hand to them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from npucall.compute.evaluate import NO_TARGETS
from npucall.dtypes import FLOAT
from npucall.errors import QueueFullError
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC, product_of
from npucall.programs import Program, ProgramStep, check_output_places, sizes
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode
from npucall_server.access.identity import Identity, anybody
from npucall_server.devices.base import Ran
from npucall_server.devices.host_memory import HostResident
from npucall_server.execution.placed import Placed, Places
from npucall_server.executor import Executor, Limits
from npucall_server.gate import Gate
from npucall_server.ledger import Ledger
from npucall_server.reservation_keys import Keys
from npucall_server.reservations import Reservations, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import DType
    from npucall.errors import NpucallError
    from npucall.places import OutputPlace, Place
    from npucall.tensors import Buffer
    from npucall_server.devices.base import Phases, RunPieces, Turn
    from npucall_server.executor import Completed
    from npucall_server.shared.regions import Regions

PATIENCE = 20.0
"""Seconds after which a test gives up; none takes so long unless something is broken."""

_POLL_SECONDS = 0.002


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that another thread or process does."""
    never = threading.Event()
    for _ in range(int(PATIENCE / _POLL_SECONDS)):
        if condition():
            return
        never.wait(_POLL_SECONDS)
    raise AssertionError(f"did not happen: {what}")


class ScriptedDevice:
    """Runs a function of the test as every call; ``lose`` is what a device that breaks calls."""

    name = "scripted"
    soc = DEFAULT_SOC
    product = product_of(DEFAULT_SOC)
    catalogue = CATALOGUE
    default_variant = DEFAULT_VARIANT
    result = b"result"
    working = 0

    def __init__(
        self,
        run: Callable[[Turn], None] = lambda _: None,
        lanes: int = 1,
        phases: Phases | None = None,
    ) -> None:
        self._run = run
        self._phases = phases
        self.lanes = lanes

    def plan(self, call: Prepared, turn: Turn) -> int:
        self._run(turn)
        return 512

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Buffer],
        turn: Turn,
        targets: Mapping[str, Buffer] = NO_TARGETS,
    ) -> Ran:
        self._run(turn)
        return Ran([self.result], self._phases)

    @property
    def memory_for_handles(self) -> int:
        return 0

    def allocate(self, nbytes: int, dtype: DType | None = None) -> HostResident:
        return HostResident(nbytes)

    def working_bytes(self, call: Prepared) -> int:
        return self.working

    def piecewise(self, call: Prepared) -> RunPieces | None:
        return None

    def unavailable_because(self, operator: object) -> str:
        return ""

    def facts(self) -> None:
        return None

    def watch(self, lost: Callable[[NpucallError], None]) -> None:
        self.lose = lost

    def close(self) -> None:
        pass


class VirtualClock:
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


class ScriptedCaller:
    """Waits ``remaining`` seconds for its call, or until the test cancels it."""

    request_id = ""
    metadata: ClassVar[Mapping[str, str]] = {}

    def __init__(self, remaining: float | None = None, peer: str = "scripted") -> None:
        self.peer = peer
        self.known: Identity | None = None
        """Who it is; None: nobody knows."""
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


def open_gate(rules: Rules = Rules(longest=3600.0, gap=0.0)) -> Gate:  # noqa: B008  # a tuple
    return Gate(Reservations(rules, Keys(None, ScriptedDevice.name)))


def executor(
    device: ScriptedDevice,
    queue_length: int = 8,
    memory_limit: int = 1 << 30,
    call_timeout: float = PATIENCE,
) -> Executor:
    return Executor(device, Limits(queue_length, memory_limit, call_timeout))


class Taker:
    """Stands for the turn of a call: all that ``Turns`` asks of one."""

    def __init__(self, identity: Identity | None = None) -> None:
        self.identity = identity or anybody("taker")
        self.share: Any = None
        self.granted: Any = None
        self.held_ns = self.told_ns = 0
        self.wants_alone = self.must_be_alone = False
        self.woken = 0

    def grant(self, grant: Any) -> None:
        assert self.granted is None
        self.granted = grant

    def wake(self) -> None:
        self.woken += 1


def prepared(elements: int = 2) -> Prepared:
    """A call with three inputs and an output, so of 16 bytes an element."""
    spec = TensorSpec(FLOAT, (elements,))
    inputs = ("grad_output", "self", "target")
    data = encode("aclnnL1LossBackward", "", dict.fromkeys(inputs, spec), inputs)
    return PreparedCalls(CATALOGUE, ScriptedDevice.product, "documented").of(data)


def waiting(subject: Executor) -> int:
    """How many calls wait for a turn."""
    return subject.turns.waiting


def ledger(limit: int = 1 << 40) -> Ledger:
    """Of bytes, for who needs one."""
    return Ledger(limit, lambda: QueueFullError("full"))


def is_at_rest(subject: Executor, kept: int = 0) -> bool:
    """Whether no call is left, every byte is counted back and every turn is free.

    ``kept``: bytes that are kept for callers.
    """
    turns = subject.turns
    free = not turns.running and not turns.waiting
    return free and (subject.calls_in_flight, subject.bytes_in_flight) == (0, kept)


def execute(
    subject: Executor, call: Prepared, storages: Mapping[str, Buffer], caller: ScriptedCaller
) -> Completed:
    """A call from its admission to its end."""
    admission = subject.admit(call, caller)
    try:
        return subject.run(call, storages, caller, admission)
    finally:
        admission.dismiss()


def opened(
    call: Prepared,
    regions: Regions,
    storage: Sequence[Place],
    places: Mapping[str, OutputPlace],
) -> Placed:
    """A call with places in regions, and without a session."""
    call.check_sizes(sizes(call, storage))
    check_output_places(call, places)
    nowhere: Any = None
    program = Program([ProgramStep(call, storage, places)])
    return Placed(Places(regions, nowhere, nowhere), ScriptedCaller(), program, b"")

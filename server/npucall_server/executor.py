"""Admission and turns in front of a device: bounded, first come first served."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from npucall.compute.evaluate import NO_TARGETS
from npucall.errors import (
    CancelledError,
    DeadlineError,
    DrainingError,
    NpucallError,
    QueueFullError,
    TooLargeError,
)
from npucall_server.devices.base import Phases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_server.devices.base import Device, Pieces, Ran

_DRAIN_RETRY_SECONDS = 1.0
_RETRY_BOUNDS = (0.05, 5.0)


class Caller(Protocol):
    """Who waits for a call; ``grpc.ServicerContext`` is one."""

    def time_remaining(self) -> float | None:
        """Seconds to the caller's deadline; None or infinity without one."""

    def is_active(self) -> bool:
        """Whether the caller still waits."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when the caller no longer waits; False if that is already so."""


class Limits(NamedTuple):
    """What an executor allows; each is a setting of the server."""

    queue_length: int
    memory_limit: int
    call_timeout: float


class Result(NamedTuple):
    """What a call gave: a storage for each output, and where its time went."""

    outputs: list[Buffer]
    queue_ns: int
    phases: Phases


class Executor:
    """Runs calls on a device, within limits."""

    def __init__(self, device: Device, limits: Limits) -> None:
        self.device = device
        self.limits = limits
        self.calls_in_flight = 0
        self.bytes_in_flight = 0
        self.calls_admitted = 0
        self._turns = Turns(device.lanes)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._refusal: Callable[[], NpucallError] | None = None
        self._usual_seconds = 0.0

    def run(
        self,
        call: Prepared,
        storages: Mapping[str, Buffer],
        caller: Caller,
        targets: Mapping[str, Buffer] = NO_TARGETS,
    ) -> Result:
        """Runs a call in the calling thread, once the device has a turn for it.

        ``targets`` are memory for outputs, by name.

        Raises TooLargeError, QueueFullError, DrainingError, DeadlineError, CancelledError, and what
        the device raises.
        """
        self.admit(call)
        try:
            return self.run_admitted(call, storages, caller, targets)
        finally:
            self.dismiss(call)

    def admit(self, call: Prepared) -> None:
        """Makes room for a call, before its bytes come; ``dismiss`` gives the room back.

        Raises TooLargeError, QueueFullError, DrainingError.
        """
        self._check_size(call)
        size = call.bytes_in_flight
        with self._lock:
            self._check_room(size)
            self.calls_in_flight += 1
            self.calls_admitted += 1
            self.bytes_in_flight += size

    def dismiss(self, call: Prepared) -> None:
        """Gives the room of an admitted call back."""
        with self._lock:
            self.calls_in_flight -= 1
            self.bytes_in_flight -= call.bytes_in_flight
            if not self.calls_in_flight:
                self._idle.notify_all()

    def run_admitted(
        self,
        call: Prepared,
        storages: Mapping[str, Buffer],
        caller: Caller,
        targets: Mapping[str, Buffer] = NO_TARGETS,
    ) -> Result:
        """``run`` for a call that has been admitted."""
        turn = _Turn(self._turns, caller, self.limits.call_timeout)
        start = time.perf_counter_ns()
        ran = self.device.run(call, storages, turn, targets)
        spent = time.perf_counter_ns() - start
        return self._result(ran, spent - turn.waited_ns, turn.waited_ns)

    def run_pieces(self, call: Prepared, pieces: Pieces, caller: Caller) -> Result:
        """``run_admitted`` for a call that the device computes piecewise, as its bytes come."""
        run = self.device.piecewise(call)
        assert run is not None  # noqa: S101  # whoever has pieces has asked
        turn = _Turn(self._turns, caller, self.limits.call_timeout)
        start = time.perf_counter_ns()
        ran = run(pieces, turn)
        spent = time.perf_counter_ns() - start
        return self._result(ran, spent - turn.waited_ns - pieces.waited_ns, turn.waited_ns)

    def plan(self, call: Prepared, caller: Caller) -> int:
        """Bytes of workspace that a call needs; takes no place from calls that run.

        Raises TooLargeError where ``run`` would, and what the device raises.
        """
        self._check_size(call)
        return self.device.plan(call, _Turn(self._turns, caller, self.limits.call_timeout))

    def drain(self) -> None:
        """From now on new calls raise DrainingError; those admitted go on."""
        self._refusal = going_down

    def lose(self, refusal: Callable[[], NpucallError]) -> None:
        """The device is lost: from now on calls that come or wait raise this."""
        self._refusal = refusal
        self._turns.refuse(refusal)

    def wait_idle(self, seconds: float) -> bool:
        """Waits until no call is left; False if that took too long."""
        with self._idle:
            return self._idle.wait_for(lambda: not self.calls_in_flight, seconds)

    def _result(self, ran: Ran, ran_ns: int, queue_ns: int) -> Result:
        self._usual_seconds += (ran_ns / 1e9 - self._usual_seconds) / 16
        return Result(ran.outputs, queue_ns, ran.phases or Phases(0, 0, ran_ns, 0))

    def _check_size(self, call: Prepared) -> None:
        limit = self.limits.memory_limit
        name, size = call.largest
        if size > limit:
            raise TooLargeError(
                f"{name}: expected at most {limit} bytes (setting memory_limit), found {size}",
                limit=str(limit),
                setting="memory_limit",
            )

    def _check_room(self, size: int) -> None:
        if self._refusal is not None:
            raise self._refusal()
        if self.calls_in_flight >= self.limits.queue_length + self.device.lanes:
            raise self._full("queue_length", self.limits.queue_length, "calls wait")
        if self.bytes_in_flight + size > self.limits.memory_limit:
            raise self._full("memory_limit", self.limits.memory_limit, "bytes are in flight")

    def _full(self, setting: str, limit: int, what: str) -> QueueFullError:
        """The refusal; its delay is what the calls now here usually take."""
        shortest, longest = _RETRY_BOUNDS
        delay = self._usual_seconds * self.calls_in_flight / self.device.lanes
        return QueueFullError(
            f"server: expected a free place, found that as many {what} as {setting} = {limit} "
            "allows; repeat the call later",
            retry_after=min(max(delay, shortest), longest),
            limit=str(limit),
            setting=setting,
        )


def going_down() -> NpucallError:
    """What calls that come while the server drains raise."""
    return DrainingError(
        "server: it is going down and takes no new calls", retry_after=_DRAIN_RETRY_SECONDS
    )


class Turns:
    """A fixed number of turns, given to those who wait in the order in which they came."""

    def __init__(self, count: int) -> None:
        self.refusal: Callable[[], NpucallError] | None = None
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[_Turn] = deque()

    def take(self, turn: _Turn) -> bool:
        """Gives a turn now, or puts the taker at the end of the queue and answers False."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal()
            if self._free:
                self._free -= 1
                return True
            self._waiting.append(turn)
            return False

    def take_spare(self) -> bool:
        """Gives a turn if one is free, which it is only while nobody waits for it."""
        with self._lock:
            if self.refusal is not None or not self._free:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        """Hands the turn to the next one who waits."""
        with self._lock:
            if self._waiting and self.refusal is None:
                self._waiting.popleft().grant()
            else:
                self._free += 1

    def refuse(self, refusal: Callable[[], NpucallError]) -> None:
        """From now on nobody gets a turn: those who wait, or ask, raise this."""
        with self._lock:
            self.refusal = refusal
            for turn in self._waiting:
                turn.wake()

    def give_up(self, turn: _Turn) -> None:
        """Takes one who waits out of the queue; a turn that came meanwhile goes to the next."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self.give_back()


class _Turn:
    """The turns of one call, one after the other: ``with turn(): ...``."""

    def __init__(self, turns: Turns, caller: Caller, call_timeout: float) -> None:
        remaining = caller.time_remaining()
        self._own_limit = remaining is None or call_timeout < remaining
        self._seconds = call_timeout if self._own_limit or remaining is None else remaining
        self._end = time.monotonic() + self._seconds
        self._turns = turns
        self._caller = caller
        self._wake: threading.Event  # set once it has to wait: most calls never do
        self._granted = False
        self._told = False
        self.waited_ns = 0

    def __call__(self) -> Self:
        return self

    def __enter__(self) -> None:
        self.check()
        if self._turns.take_spare():
            return
        self._wake = threading.Event()
        if not self._turns.take(self):
            self._wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._turns.give_back()

    def spare(self) -> AbstractContextManager[object] | None:
        """One more turn at the same time for the same call, if one is free and nobody waits."""
        return _Spare(self._turns) if self._turns.take_spare() else None

    def grant(self) -> None:
        """Called by ``Turns`` when the turn has come."""
        self._granted = True
        self._wake.set()

    def wake(self) -> None:
        """Looks again whether it is still worth waiting."""
        self._wake.set()

    def _wait(self) -> None:
        start = time.perf_counter_ns()
        if not self._told:
            self._told = True
            self._caller.add_callback(self.wake)
        try:
            while not self._granted:
                self.check()
                self._wake.wait(self._end - time.monotonic())
                self._wake.clear()
        except BaseException:  # whatever ends the wait, a turn that nobody takes is lost
            self._turns.give_up(self)
            raise
        finally:
            self.waited_ns += time.perf_counter_ns() - start
        self._granted = False

    def check(self) -> None:
        """Raises DeadlineError or CancelledError if nobody waits for the call any more.

        And what calls raise since the device is lost.
        """
        if self._turns.refusal is not None:
            raise self._turns.refusal()
        if time.monotonic() >= self._end:
            raise self._late()
        if not self._caller.is_active():
            raise CancelledError("call: cancelled by the caller, or the caller went away")

    def _late(self) -> DeadlineError:
        if self._own_limit:
            return DeadlineError(
                f"call: expected less than {self._seconds:g} s, the server's call_timeout",
                limit=f"{self._seconds:g}",
                setting="call_timeout",
            )
        return DeadlineError(f"call: its deadline ended after {self._seconds:.3g} s on the server")


class _Spare:
    """A further turn of a call, taken already."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self._turns.give_back()

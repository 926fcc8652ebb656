"""Admits calls to a device, within limits. An admitted call then gets its turns."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from npucall.declare.prepare import Prepared
from npucall.errors import DrainingError, NpucallError, QueueFullError, TooLargeError
from npucall.programs import Program
from npucall.texts import retry_in
from npucall_server import retries
from npucall_server.access.callers import Caller
from npucall_server.accounts.endings import Endings
from npucall_server.accounts.ledger import Ledger
from npucall_server.accounts.quotas import CallQuotas
from npucall_server.accounts.usage import Usage
from npucall_server.devices.base import Device, Outputs, Pieces, Step
from npucall_server.scheduling.call_turn import CallTurn
from npucall_server.scheduling.schedule import Schedule
from npucall_server.scheduling.ticket import Ticket
from npucall_server.settings.tenants import Tenants
from npucall_server.telemetry.log import Record

MAX_COMPUTATION = 2**63 - 1


class Limits(NamedTuple):
    """The limits of an executor. Each is a setting of the server."""

    queue_length: int
    memory_limit: int
    call_timeout: float
    computation_limit: int = MAX_COMPUTATION


class Executor:
    """Admits calls and runs them on a device, within limits."""

    def __init__(  # noqa: PLR0913  # all that bounds calls, and what is told of them
        self,
        device: Device,
        limits: Limits,
        tenants: Tenants | None = None,
        usage: Usage | None = None,
        clock: Callable[[], float] = time.monotonic,
        endings: Endings | None = None,
    ) -> None:
        """``clock`` counts seconds: whether turns end is judged by it."""
        self.device = device
        self.tenants = tenants = tenants or Tenants({})
        usage = usage or Usage()
        self._quotas = CallQuotas(tenants, usage)
        self.limits = limits
        self.memory = Ledger(limits.memory_limit, self._memory_full)
        """Bytes of calls until they are over, and of all else that is kept for callers."""
        self.calls_admitted = 0
        self._places = Ledger(limits.queue_length + device.lanes, self._queue_full)
        self._admitted: dict[Ticket, str] = {}
        """Calls in flight, and their owners. A step on it is one step for all threads."""
        self._endings = endings
        self.turns = Schedule(device.lanes, tenants, usage.spent, clock, endings)
        self._idle = threading.Condition()
        self._is_awaited = False
        """Whether somebody waits until no call is in flight."""
        self._refusal: Callable[[], NpucallError] | None = None
        self._usual_seconds = 0.0

    def room_of(self, asked: Prepared | Program) -> int:
        """Bytes that a call takes from its admission to its end.

        Raises TooLargeError for a call that can never be admitted.
        """
        limits, everything = self.limits, "request, response and working memory"
        name, size = asked.largest
        _check(name, size, limits.memory_limit, "bytes", "memory_limit")
        room = asked.bytes_in_flight + self.device.working_bytes(asked)
        _check(everything, room, limits.memory_limit, "bytes", "memory_limit")
        size = asked.computation
        _check("computation", size, limits.computation_limit, "elements", "computation_limit")
        return room

    def calls_by_owner(self) -> dict[str, int]:
        """How many calls each owner has in flight."""
        return Counter(self._admitted.copy().values())

    @property
    def calls_in_flight(self) -> int:
        """How many calls are admitted, with those whose answers are not read."""
        return len(self._admitted)

    @property
    def bytes_in_flight(self) -> int:
        """How many bytes of the memory callers hold."""
        return self.memory.used

    @property
    def working_bytes(self) -> int:
        """How many of these bytes computing takes in addition to inputs and outputs."""
        return sum(self.device.working_bytes(each.asked) for each in self._admitted.copy())

    def admit(
        self,
        ticket: Ticket,
        asked: Prepared | Program,
        caller: Caller,
        size: int,
        end: Callable[[], object] | None = None,
    ) -> None:
        """Makes room for a call that holds ``size`` bytes, before its bytes come.

        ``end``: see ``Ticket.may_end_by``. Raises QuotaError, QueueFullError, DrainingError,
        DeviceLostError. Then the ticket holds nothing.
        """
        if self._refusal is not None:
            raise self._refusal()
        try:
            if caller.identity.tenant:
                ticket.quotas = self._quotas.take(caller, size)
                if self._endings and (turnstile := self._endings.enter(caller.identity)):
                    ticket.quotas = [*ticket.quotas, turnstile]
            if not (ticket.at_once and self.turns.free):
                ticket.place = self._places.take(caller, 1, end)
            ticket.memory = self.memory.take(caller, size, end)
            if ticket.place is None:  # last, since there may have been a wait for memory
                turn = CallTurn(self.turns, caller, self.limits.call_timeout)
                if (grant := self.turns.take_spare(turn)) is not None:
                    turn.held, ticket.turn = grant, turn
                else:
                    ticket.place = self._places.take(caller, 1, end)
            ticket.executor, ticket.asked = self, asked
            self._admitted[ticket] = caller.identity.owner
            self.calls_admitted += 1
            if self._refusal is not None:  # whoever drains either sees this call, or is seen here
                self.check_open()
        except BaseException:
            ticket.read()
            raise

    def give_back(self, ticket: Ticket) -> None:
        """A ticket calls this when its call is no longer in flight."""
        self._admitted.pop(ticket, None)
        if self._is_awaited and not self._admitted:
            with self._idle:
                self._idle.notify_all()

    def run(
        self,
        steps: Sequence[Step],
        caller: Caller,
        ticket: Ticket,
        record: Record,
        pieces: Pieces | None = None,
    ) -> Outputs:
        """Runs an admitted call in the calling thread, once the device has a turn for it.

        While it waits for that the call may be ended for others; while its ``pieces`` come, whoever
        receives them ends it. The record gets the times. Raises DeadlineError, CancelledError, and
        the errors of the device.
        """
        turn, waits = ticket.turn, ticket if pieces is None else None
        if turn is None:
            turn = CallTurn(self.turns, caller, self.limits.call_timeout, pieces, waits)
        start = time.perf_counter_ns()
        try:
            outputs, phases = self.device.run(steps, turn, pieces)
        finally:
            record.device_ns, record.told_ns = turn.held_ns, turn.told_ns
        record.queue_ns = waited_ns = turn.waited_ns
        ran_ns = time.perf_counter_ns() - start - waited_ns
        if pieces is not None:
            ran_ns -= pieces.waited_ns
        self._usual_seconds += (ran_ns / 1e9 - self._usual_seconds) / 16
        if phases is None:
            record.run_ns = ran_ns
        else:
            record.copy_in_ns, record.plan_ns, record.run_ns, record.copy_out_ns = phases
        return outputs

    def turn(self, caller: Caller) -> CallTurn:
        """The turns for a call that is only planned."""
        return CallTurn(self.turns, caller, self.limits.call_timeout)

    def plan(self, call: Prepared, turn: CallTurn) -> int:
        """Bytes of workspace that a call needs. Planning takes no place from calls that run.

        Raises TooLargeError if ``run`` would, and the errors of the device.
        """
        self.room_of(call)
        return self.device.plan(call, turn)

    def check_open(self) -> None:
        """Raises DrainingError or DeviceLostError if new calls are refused."""
        if self._refusal is not None:
            raise self._refusal()

    @property
    def has_spare_turn(self) -> bool:
        """Whether a call that comes now would get the device without waiting, in its thread."""
        return self.device.runs_in_calling_thread and self.turns.free > 0

    def peers(self) -> set[str]:
        """The peers that have a call, or an answer that they have not read."""
        return self._places.peers | self.memory.peers

    def is_stuck(self, seconds: float) -> bool:
        """Whether turns on the device are taken and none has ended for so many seconds."""
        return self.turns.is_stuck(seconds)

    def drain(self) -> None:
        """From now on new calls raise DrainingError. Admitted calls go on."""
        self._refusal = going_down

    def lose(self, refusal: Callable[[], NpucallError]) -> None:
        """The device is lost: calls that wait, or come from now on, raise this error."""
        self._refusal = refusal
        self.turns.refuse(refusal)

    def wait_idle(self, seconds: float) -> bool:
        """Waits until no call is left; False if that takes too long."""
        with self._idle:
            self._is_awaited = True
            return self._idle.wait_for(lambda: not self._admitted, seconds)

    def _queue_full(self, *_: object) -> QueueFullError:
        return self._full("queue_length", self.limits.queue_length, "the queue is full")

    def _memory_full(self, *_: object) -> QueueFullError:
        return self._full("memory_limit", self.limits.memory_limit, "other calls hold the memory")

    def _full(self, setting: str, limit: int, what: str) -> QueueFullError:
        """The refusal. It suggests a delay: the time that the calls now here usually take."""
        shortest, longest = retries.QUEUE_BOUNDS
        usual = self._usual_seconds * self.calls_in_flight / self.device.lanes
        delay = min(max(usual, shortest), longest)
        return QueueFullError(
            f"{what} ({setting} = {limit}); {retry_in(delay)}",
            retry_after=delay,
            limit=str(limit),
            setting=setting,
        )


def _check(what: str, size: int, limit: int, unit: str, setting: str) -> None:
    if size > limit:
        raise TooLargeError(
            f"{what}: expected at most {limit} {unit} (setting {setting}), found {size}",
            limit=str(limit),
            setting=setting,
        )


def going_down() -> NpucallError:
    """The error for calls that come while the server drains."""
    return DrainingError(
        f"the server is shutting down and takes no new calls; {retry_in(retries.DRAINING)}",
        retry_after=retries.DRAINING,
    )

"""Begins executions on one device, and holds what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from npucall.declare.prepare import once_a_call
from npucall.limits import MIB
from npucall.programs import Program
from npucall.wire.caches import BoundedCache
from npucall.wire.calls import PreparedCalls
from npucall.wire.replies import ServerIdentity, encode_timings
from npucall_server.access.callers import Caller
from npucall_server.calls.answers import PlanAnswer, most_in_one, too_long
from npucall_server.calls.execution import Execution
from npucall_server.calls.known_call import KnownCall
from npucall_server.calls.open_places import Places
from npucall_server.calls.requests import read_call, read_program
from npucall_server.devices.base import Step
from npucall_server.scheduling.executor import Executor
from npucall_server.scheduling.gate import Gate
from npucall_server.scheduling.kept_memory import KeptMemory
from npucall_server.telemetry.log import Record

_PLACED_CALLS_BYTES = MIB


class Executions:
    """Of one device."""

    def __init__(
        self,
        executor: Executor,
        identity: ServerIdentity,
        places: Places,
        kept: KeptMemory,
        gate: Gate,
    ) -> None:
        device = executor.device
        self.executor, self.places, self.kept, self.gate = executor, places, kept, gate
        self.calls = PreparedCalls(device.catalogue, device.product, device.default_variant)
        self.known = once_a_call(lambda call: KnownCall(call, identity))
        self.placed: BoundedCache[bytes, Program] = BoundedCache(_PLACED_CALLS_BYTES)
        """Calls by their messages, which name regions alone: all of that is checked."""
        self.most_in_one = most_in_one(executor)
        self.too_long = partial(too_long, executor)
        self.begin = partial(Execution, self)
        """The execution of a call or a program that has come."""

    def plan(
        self, message: bytes, caller: Caller, record: Record, *, program: bool = False
    ) -> PlanAnswer:
        """Checks a call or a program without its data."""
        executor = self.executor
        steps: Sequence[Step] = ()
        prepared = partial(self.calls.of, owner=caller.identity.person)
        if program:
            found, steps = read_program(message, record, prepared, planned=True)
            calls = [step.call for step in found.steps]
        else:
            asked, _ = read_call(message, record, prepared, planned=True)
            calls = [asked]  # type: ignore[list-item]  # without places
        permit, turn = self.gate.enter(caller), executor.turn(caller)
        try:
            workspaces = [executor.plan(call, turn) for call in calls]
        finally:
            record.device_ns, record.told_ns = turn.held_ns, turn.told_ns
            permit.give_back()
        replies = [self.known(call).reply for call in calls]
        peak = executor.device.program_bytes(steps) if steps else 0
        return PlanAnswer(list(zip(replies, workspaces, strict=True)), encode_timings(record), peak)

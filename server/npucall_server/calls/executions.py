"""Begins executions, and holds what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.prepare import once_a_call
from npucall.wire.calls import PreparedCalls
from npucall.wire.replies import encode_reply
from npucall_server.calls.call import CallExecution
from npucall_server.calls.life import Common
from npucall_server.calls.program import ProgramExecution

if TYPE_CHECKING:
    from npucall.wire.replies import ServerIdentity
    from npucall_server.access.callers import Caller
    from npucall_server.calls.placed import Places
    from npucall_server.scheduling.executor import Executor
    from npucall_server.scheduling.gate import Gate
    from npucall_server.scheduling.kept_memory import KeptMemory
    from npucall_server.telemetry.log import Record


class Executions:
    """Begins executions on one device."""

    def __init__(
        self,
        executor: Executor,
        identity: ServerIdentity,
        places: Places,
        kept: KeptMemory,
        gate: Gate,
    ) -> None:
        device = executor.device
        calls = PreparedCalls(device.catalogue, device.product, device.default_variant)
        encoded_reply = once_a_call(lambda call: encode_reply(call, identity))
        self.executor, self.gate = executor, gate
        self._common = Common(executor, places, kept, gate, calls.of, calls.received, encoded_reply)

    def begin(self, caller: Caller, record: Record) -> CallExecution:
        """The execution of a call that has come."""
        return CallExecution(self._common, caller, record)

    def begin_program(self, caller: Caller, record: Record) -> ProgramExecution:
        """The execution of a program that has come."""
        return ProgramExecution(self._common, caller, record)

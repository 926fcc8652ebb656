"""The life of one program."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from npucall.compute.evaluate import NO_TARGETS
from npucall.errors import TooLargeError
from npucall.limits import MAX_ANSWER_BYTES
from npucall.programs import prepare_program
from npucall.wire.program_messages import join_program_response, split_program
from npucall_server.calls.life import Execution
from npucall_server.calls.placed import Placed
from npucall_server.devices.base import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.places import Place
    from npucall.programs import Program, ProgramStep
    from npucall_server.scheduling.executor import Admission, Completed

_NOTHING: frozenset[str] = frozenset()
PROGRAM = "program"
"""The log and the account have this in place of the operator."""


class ProgramExecution(Execution):
    """One program: ``prepare``, ``admit``, ``run``, ``reply_message``, in this order."""

    asked: Program

    def prepare(self, message: bytes, *, chunked: bool = False) -> None:
        """Reads an ``ExecuteProgramRequest``, and checks all of its steps."""
        del chunked  # the frame of a program has no such field
        decoded = self._decode(message, planned=False)
        if not self.asked.stays_in_program:
            self._placed = Placed(self._common.places, self.caller, self.asked, message)
        self.record.check_ns += perf_counter_ns() - decoded
        self._check_answer()

    def plan(self, message: bytes) -> tuple[list[tuple[bytes, int]], bytes, int]:
        """Checks a ``PlanProgramRequest``.

        Answers the reply and the bytes of workspace of each step, then the timings, then the most
        bytes of device memory that are needed at a time.
        """
        self._decode(message, planned=True)
        self._passage = self._common.gate.enter(self.caller)
        executor, record = self._common.executor, self.record
        turn = executor.turn(self.caller)
        try:
            workspaces = [executor.plan(step.call, turn) for step in self.asked.steps]
        finally:
            record.device_ns, record.told_ns = turn.held_ns, turn.told_ns
        replies = [self._common.encoded_reply(step.call) for step in self.asked.steps]
        peak = executor.device.program_bytes(_own_steps(self.asked))
        return list(zip(replies, workspaces, strict=True)), self._take_timings(), peak

    def reply_message(self) -> bytes:
        """The answer as one ``ExecuteProgramResponse``. To be called once."""
        start = perf_counter_ns()
        steps = [
            (self._common.encoded_reply(step.call), self._replied(number, step))
            for number, step in enumerate(self.asked.steps)
        ]
        self.record.encode_ns = perf_counter_ns() - start
        timings = self._take_timings()
        self.forget_storages()
        return join_program_response(steps, timings)

    def _replied(self, number: int, step: ProgramStep) -> Sequence[Place]:
        outputs: Any = self._outputs_of(number, step.call)  # resident outputs have a place
        return outputs if self._placed is None else self._placed.replied(number, outputs)

    def _compute(self, admission: Admission) -> Completed:
        placed = self._placed
        steps = placed.steps({}) if placed is not None else _own_steps(self.asked)
        return self._common.executor.run_program(steps, self.caller, admission)

    @property
    def _room(self) -> int:
        size = self._common.executor.admitted_bytes(self.asked)
        size += self._placed.copied_bytes if self._placed is not None else 0
        return max(size, 2 * self.asked.replied_bytes)

    def _decode(self, message: bytes, *, planned: bool) -> int:
        """When all steps had been checked. From then on the record names them."""
        record, start = self.record, perf_counter_ns()
        record.operator = PROGRAM
        requests = split_program(message)
        decoded = perf_counter_ns()
        record.decode_ns = decoded - start
        self.asked = prepare_program(requests, self._common.prepared, planned=planned)
        checked = perf_counter_ns()
        record.check_ns = checked - decoded
        return checked

    def _check_answer(self) -> None:
        limit = min(MAX_ANSWER_BYTES, self._common.executor.limits.memory_limit // 2)
        if (size := self.asked.replied_bytes) > limit:
            raise TooLargeError(
                f"response: expected at most {limit} bytes of outputs in one message, found "
                f"{size}; keep outputs in handles and download them",
                limit=str(limit),
            )


def _own_steps(program: Program) -> list[Step]:
    """The steps of a program with all bytes in its message; for a plan, without the bytes."""
    return [
        Step(
            step.call,
            dict(zip(step.call.stored, step.storage, strict=True)),  # type: ignore[arg-type]
            NO_TARGETS,
            step.discarded if step.output_places else _NOTHING,
        )
        for step in program.steps
    ]

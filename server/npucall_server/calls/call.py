"""The life of one call."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from npucall.errors import MessageError, TooLargeError
from npucall.exchange import Receiving, into
from npucall.limits import INLINE_BYTES, KIB, MAX_ANSWER_BYTES
from npucall.memory import fresh
from npucall.places import StepOutput
from npucall.programs import Program, ProgramStep, check_output_places, sizes
from npucall.wire.messages import join_response, split_request
from npucall_server.calls.arrivals import Arrivals
from npucall_server.calls.life import Execution
from npucall_server.calls.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.places import Place
    from npucall.tensors import Buffer
    from npucall.wire.messages import Request
    from npucall_server.access.callers import Caller
    from npucall_server.calls.arrivals import Computed
    from npucall_server.calls.life import Common
    from npucall_server.scheduling.executor import Admission, Completed
    from npucall_server.telemetry.log import Record


class Answer(NamedTuple):
    """The answer to a call: the parts of an ``ExecuteResponse``."""

    reply: bytes
    timings: bytes
    storage: Sequence[Place]


QUICK_ELEMENTS = 16 * KIB
"""A call of so many elements takes far less than a millisecond, whatever its operator."""


class CallExecution(Execution):
    """One call: ``prepare``, ``admit``, ``run``, ``reply``, in this order.

    If storages follow in chunks, ``expect`` comes after ``admit``.
    """

    asked: Prepared

    def __init__(self, common: Common, caller: Caller, record: Record) -> None:
        super().__init__(common, caller, record)
        self._storages: Mapping[str, Buffer] = {}
        self._arrivals: Arrivals | None = None
        self._answer_in_one = False

    def prepare(self, message: bytes, *, chunked: bool = False) -> None:
        """Reads an ``ExecuteRequest``, checks its call, and finds its storages.

        ``chunked``: the storages follow, except those that have a place. Raises an error if the
        call is wrong.
        """
        if not chunked and self._takes_known(message):
            return
        request, decoded = self._decode(message)
        call, storage = self.asked, request.storage
        if chunked and not storage:
            storage = [None] * len(call.stored)
        if chunked:
            _check_no_data(storage)
        elif None in storage:
            raise MessageError("storage: expected a place for its bytes, found none")
        if request.is_placed:
            self._place(request, storage, message)
        elif not chunked:
            self._storages = call.storages(storage)  # type: ignore[arg-type]  # no places
        self.record.check_ns = perf_counter_ns() - decoded

    def plan(self, message: bytes) -> tuple[bytes, bytes, int]:
        """Checks the call of a ``PlanRequest``.

        Answers its reply, timings, and bytes of workspace.
        """
        request, decoded = self._decode(message)
        if request.is_placed:
            raise MessageError("plan: expected a call without bytes, found places for them")
        record = self.record
        record.check_ns = perf_counter_ns() - decoded
        self._passage = self._common.gate.enter(self.caller)
        executor = self._common.executor
        turn = executor.turn(self.caller)
        try:
            workspace_bytes = executor.plan(self.asked, turn)
        finally:
            record.device_ns, record.told_ns = turn.held_ns, turn.told_ns
        return self._common.encoded_reply(self.asked), self._take_timings(), workspace_bytes

    def answer_in_one(self, *, streams: bool) -> None:
        """The answer will be one message, which takes memory in addition to the outputs.

        Raises TooLargeError if the outputs do not fit in a message. ``streams``: the error then
        points to ExecuteStream, which sends them in chunks.
        """
        self._answer_in_one = True
        executor, size = self._common.executor, self._replied_bytes
        limit = min(MAX_ANSWER_BYTES, executor.limits.memory_limit // 2)
        if size <= limit:
            return
        executor.check_size(self.asked)  # a stream would refuse this too
        found = f"expected at most {limit} bytes of outputs in one message, found {size}"
        if not streams:
            raise TooLargeError(f"response: {found}", limit=str(limit))
        raise TooLargeError(
            f"response: {found}; ExecuteStream sends them in chunks",
            limit=str(limit),
            method="ExecuteStream",
        )

    def expect(self, name: str) -> Receiving:
        """Takes the storages in chunks: to compute them as they come, or into memory made for them.

        ``name``: the call's name in errors.
        """
        call, placed = self.asked, self._placed
        if placed is None and self._common.executor.device.piecewise(call) is not None:
            self._arrivals = arrivals = Arrivals(call)
            return Receiving(
                name, call.stored_bytes, lambda chunk: arrivals.put(chunk.storage, chunk.data)
            )
        places = placed.program.steps[0].storage if placed is not None else None
        expected = [
            size if places is None or places[index] is None else 0
            for index, size in enumerate(call.stored_bytes)
        ]
        memories = [fresh(size) for size in expected]
        self._storages = dict(zip(call.stored, memories, strict=True))
        return Receiving(name, expected, into(memories))

    @property
    def runs_as_bytes_come(self) -> bool:
        """Whether ``run`` begins before the storages have come; it waits for ``end_of_bytes``."""
        return self._arrivals is not None

    @property
    def is_quick(self) -> bool:
        """As for all executions. A call that waits for handles or for chunks is not quick."""
        waits = self._placed is not None or self._arrivals is not None
        little = self.asked.computation <= QUICK_ELEMENTS
        return little and not waits and self._common.executor.has_spare_turn

    def answer_early(self, tell: Callable[[Computed], object]) -> bytes | None:
        """Only for a call that runs before its storages have come, and whose outputs are long."""
        if self._arrivals is None or self.asked.replied_bytes <= INLINE_BYTES:
            return None
        self._arrivals.tell = tell
        return self._common.encoded_reply(self.asked)

    def end_of_bytes(self) -> None:
        """All storages have come."""
        super().end_of_bytes()
        if self._arrivals is not None:
            self._arrivals.end()

    def reply(self) -> Answer:
        """The answer to a call that ran. To be called once, since the answer takes the outputs."""
        start = perf_counter_ns()
        places: Any = self._outputs_of(0, self.asked)
        if self._placed is not None:
            places = self._placed.replied(0, places)
        reply = self._common.encoded_reply(self.asked)
        self.record.encode_ns = perf_counter_ns() - start
        return Answer(reply, self._take_timings(), places)

    def reply_message(self) -> bytes:
        """The answer as one ``ExecuteResponse``."""
        answer = self.reply()
        self.forget_storages()
        return join_response(*answer)

    def forget_storages(self) -> None:
        """The call is answered, so its inputs are no longer read."""
        self._storages = {}
        super().forget_storages()
        if self._arrivals is not None:
            self._arrivals.stop()

    def _place(self, request: Request, storage: Sequence[Place], message: bytes) -> None:
        """Finds the bytes that the places name."""
        call = self.asked
        if any(isinstance(place, StepOutput) for place in storage):
            raise MessageError(
                "result: expected it only in a step of a program, found it in a call"
            )
        call.check_sizes(sizes(call, storage))
        check_output_places(call, request.output_places)
        program = Program([ProgramStep(call, storage, request.output_places)])
        self._placed = Placed(self._common.places, self.caller, program, message)

    def _compute(self, admission: Admission) -> Completed:
        executor, call, caller = self._common.executor, self.asked, self.caller
        if self._arrivals is not None:
            return executor.run_pieces(call, self._arrivals, caller, admission)
        if self._placed is None:
            return executor.run(call, self._storages, caller, admission)
        (step,) = self._placed.steps(self._storages)
        return executor.run(call, step.storages, caller, admission, step.targets)  # type: ignore[arg-type]  # no results of other steps

    @property
    def _replied_bytes(self) -> int:
        """Bytes of the outputs that go with the reply."""
        return self._placed.program.replied_bytes if self._placed else self.asked.replied_bytes

    @property
    def _room(self) -> int:
        """If the answer is one message, it takes memory in addition to the outputs."""
        executor, placed = self._common.executor, self._placed
        if placed is None:
            size = executor.admitted_bytes(self.asked)
        else:
            size = executor.admitted_bytes(placed.program) + placed.copied_bytes
        return max(size, 2 * self._replied_bytes) if self._answer_in_one else size

    def _takes_known(self, message: bytes) -> bool:
        """Takes a message that needs no parsing and no checks; False for any other one."""
        record, start = self.record, perf_counter_ns()
        received = self._common.received(message)
        if received is None:
            return False
        self.asked, self._storages = received
        operator = received.call.operator
        record.operator, record.variant = operator.name, operator.variant
        record.decode_ns = perf_counter_ns() - start
        return True

    def _decode(self, message: bytes) -> tuple[Request, int]:
        """The request, and when it had been read. From then on the record names its call."""
        record, start = self.record, perf_counter_ns()
        request = split_request(message)
        decoded = perf_counter_ns()
        record.decode_ns = decoded - start
        self.asked = call = self._common.prepared(request.call)
        record.operator, record.variant = call.operator.name, call.operator.variant
        return request, decoded


def _check_no_data(storage: Sequence[Place]) -> None:
    if found := sum(isinstance(place, memoryview) for place in storage):
        raise MessageError(
            "begin: expected storages without data, since `chunked` is set, found "
            f"{found} with data"
        )

"""The life of one call on this server, whatever way it came.

Who wants to limit or trace calls does it here: every call passes every step once. How a call ended
is known behind it, to ``handling``, which writes its record: who wants to count does it there.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, Self

from npucall.buffers import fresh
from npucall.declare.prepare import once_a_call
from npucall.errors import MessageError, NpucallError, QueueFullError, TooLargeError
from npucall.exchange import Receiving, into
from npucall.limits import MAX_ANSWER_BYTES
from npucall.wire.calls import PreparedCalls
from npucall.wire.messages import split_request
from npucall.wire.replies import Timings, encode_reply, encode_timings
from npucall_server.arrivals import Arrivals
from npucall_server.shared.places import PlacedCall
from npucall_server.turn import gave_way

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.places import Place
    from npucall.tensors import Buffer
    from npucall.wire.messages import Request
    from npucall.wire.replies import ServerIdentity
    from npucall_server.callers import Caller
    from npucall_server.executor import Admission, Completed, Executor
    from npucall_server.gate import Gate, Passage
    from npucall_server.kept_memory import KeptMemory
    from npucall_server.log import Record
    from npucall_server.shared.regions import Regions


class Answer(NamedTuple):
    """What a call is answered with: the parts of an ``ExecuteResponse``."""

    reply: bytes
    timings: bytes
    storage: Sequence[Place]


class Executions:
    """Begins executions, and has what they have in common."""

    def __init__(
        self,
        executor: Executor,
        identity: ServerIdentity,
        regions: Regions,
        kept: KeptMemory,
        gate: Gate,
    ) -> None:
        device = executor.device
        calls = PreparedCalls(device.catalogue, device.product, device.default_variant)
        self.executor = executor
        self.regions = regions
        self.kept = kept
        self.gate = gate
        self.prepared = calls.of
        self.encoded_reply = once_a_call(lambda call: encode_reply(call, identity))

    def begin(self, caller: Caller, record: Record) -> Execution:
        """The execution of a call that has come."""
        return Execution(self, caller, record)


class Execution:
    """One call: ``prepare``, ``admit``, ``run``, ``reply``, in this order.

    A context manager: leaving it dismisses the call, so that its room is given back. Where the
    storages follow in chunks, ``expect`` stands behind ``admit``.
    """

    call: Prepared
    """What is asked; once it is prepared."""

    def __init__(self, common: Executions, caller: Caller, record: Record) -> None:
        self.caller = caller
        self.record = record
        self._common = common
        self._storages: Mapping[str, Buffer] = {}
        self._placed: PlacedCall | None = None
        self._arrivals: Arrivals | None = None
        self._completed: Completed | None = None
        self._admission: Admission | None = None
        self._passage: Passage | None = None
        self._runs = False
        self._answer_in_one = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.dismiss()

    def prepare(self, message: bytes, *, chunked: bool = False) -> None:
        """Reads an ``ExecuteRequest``, checks its call, and finds its storages.

        ``chunked``: they follow. Raises what is wrong with the call.
        """
        request, decoded = self._decode(message)
        if chunked:
            _check_nothing_but_the_call(request)
        elif request.is_placed:
            person = self.caller.identity.person
            self._placed = PlacedCall(self.call, request, self._common.regions, person)
        else:
            self._storages = self.call.storages(request.storage)  # type: ignore[arg-type]  # no regions
        self.record.check_ns = perf_counter_ns() - decoded

    def plan(self, message: bytes) -> tuple[bytes, bytes, int]:
        """Checks the call of a ``PlanRequest``: its reply, timings, and bytes of workspace."""
        request, decoded = self._decode(message)
        if request.is_placed:
            raise MessageError("plan: expected a call alone, found places in shared memory")
        record = self.record
        record.check_ns = perf_counter_ns() - decoded
        self._passage = self._common.gate.enter(self.caller)
        executor = self._common.executor
        turn = executor.turn(self.caller)
        try:
            workspace_bytes = executor.plan(self.call, turn)
        finally:
            record.device_ns, record.told_ns = turn.held_ns, turn.told_ns
        return self._common.encoded_reply(self.call), self._timings(), workspace_bytes

    def answer_in_one(self, *, streams: bool) -> None:
        """The answer is to be one message, which is made beside the outputs.

        Raises TooLargeError for outputs that no message holds; ``streams`` then send them.
        """
        self._answer_in_one = True
        executor, size = self._common.executor, self._replied_bytes
        limit = min(MAX_ANSWER_BYTES, executor.limits.memory_limit // 2)
        if size <= limit:
            return
        executor.check_size(self.call)  # what a stream would refuse too
        found = f"expected at most {limit} bytes of outputs in one message, found {size}"
        if not streams:
            raise TooLargeError(f"response: {found}", limit=str(limit))
        raise TooLargeError(
            f"response: {found}; ExecuteStream sends them in chunks",
            limit=str(limit),
            method="ExecuteStream",
        )

    def admit(self, end: Callable[[], object] | None = None) -> None:
        """Makes room for the call.

        Raises ReservedError, TooLargeError, QueueFullError, DrainingError.

        ``end``: what ends it, until it runs, where others ask for the room.
        """
        room = self._room
        self._passage = passage = self._common.gate.enter(self.caller)
        self._admission = admission = self._common.executor.admit(self.call, self.caller, room, end)
        passage.may_end_by(admission.end)
        self._common.kept.make_room(room)

    def expect(self, name: str) -> Receiving:
        """Takes the storages in chunks: as they are computed, or into memory made for them.

        ``name`` is the call's, for errors.
        """
        call = self.call
        if self._common.executor.device.piecewise(call) is not None:
            self._arrivals = arrivals = Arrivals(call)
            return Receiving(
                name, call.stored_bytes, lambda chunk: arrivals.put(chunk.storage, chunk.data)
            )
        memories = [fresh(size) for size in call.stored_bytes]
        self._storages = call.storages(memories)
        return Receiving(name, call.stored_bytes, into(memories))

    @property
    def runs_as_bytes_come(self) -> bool:
        """Whether ``run`` begins before the storages have come; it waits for ``end_of_bytes``."""
        return self._arrivals is not None

    def end_of_bytes(self) -> None:
        """All storages have come."""
        if self._admission is not None:
            self._admission.must_go_on()
        if self._arrivals is not None:
            self._arrivals.end()

    def run(self) -> None:
        """Runs the call in this thread, once the device has a turn. Raises what ends it."""
        self._runs = True
        try:
            self._run()
        except QueueFullError as error:
            if self._passage is None or self._passage.refusal is None:
                raise
            raise self._passage.refusal from error
        finally:
            self._runs = False
            self._leave()

    def _run(self) -> None:
        executor, admission = self._common.executor, self._admission
        assert admission is not None  # noqa: S101  # it has been admitted
        call, caller = self.call, self.caller
        try:
            if self._arrivals is not None:
                completed = executor.run_pieces(call, self._arrivals, caller, admission)
            elif self._placed is not None:
                storages, targets = self._placed.storages(), self._placed.targets
                completed = executor.run(call, storages, caller, admission, targets)
            else:
                completed = executor.run(call, self._storages, caller, admission)
        finally:
            if (turn := admission.turn) is not None:
                self.record.device_ns, self.record.told_ns = turn.held_ns, turn.told_ns
        self._completed = completed
        admission.has_run()

    def reply(self) -> Answer:
        """The answer to a call that ran; asked once, since it takes the outputs along."""
        start, record = perf_counter_ns(), self.record
        completed, self._completed = self._completed, None
        assert completed is not None  # noqa: S101  # it ran
        record.queue_ns = completed.queue_ns
        record.copy_in_ns, record.plan_ns, record.run_ns, record.copy_out_ns = completed.phases
        outputs = completed.outputs
        places = self._placed.replied(outputs) if self._placed is not None else outputs
        reply = self._common.encoded_reply(self.call)
        record.encode_ns = perf_counter_ns() - start
        return Answer(reply, self._timings(), places)

    def forget_storages(self) -> None:
        """The inputs are not read any more: it is answered."""
        self._storages, self._placed = {}, None
        if self._passage is not None:
            self._passage.is_answered()
        if not self._runs:
            self._leave()
        if self._arrivals is not None:
            self._arrivals.stop()

    def may_end_by(self, end: Callable[[], object]) -> None:
        """What ends it from now on where others ask for its room."""
        if self._admission is not None:
            self._admission.may_end_by(end)

    def dismiss(self) -> None:
        """Gives the room of the call back; a second time does nothing."""
        if self._admission is not None:
            self._admission.dismiss()
        if not self._runs:
            self._leave()

    def gave_way(self) -> NpucallError:
        """What it raises that others have ended: for its room, or for a reservation."""
        refusal = self._passage.refusal if self._passage is not None else None
        return refusal or gave_way()

    def dismiss_once_read(self) -> None:
        """Gives the room back when the caller has read the answer, or has gone."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.may_end_by(self.caller.cancel)
            if not self.caller.add_callback(admission.dismiss):
                admission.dismiss()

    def _leave(self) -> None:
        """It does not use the device any more."""
        if self._passage is not None:
            self._passage.leave()

    @property
    def _replied_bytes(self) -> int:
        """Of the outputs that go with the reply."""
        placed = self._placed.target_bytes if self._placed is not None else 0
        return self.call.replied_bytes - placed

    @property
    def _room(self) -> int:
        """Bytes that the call takes, at first for inputs and outputs, then for the answer.

        One that goes in one message is made beside the outputs. What lies in regions counts there.
        """
        placed = self._placed.region_bytes if self._placed is not None else 0
        size = self._common.executor.admitted_bytes(self.call) - placed
        return max(size, 2 * self._replied_bytes) if self._answer_in_one else size

    def _decode(self, message: bytes) -> tuple[Request, int]:
        """The request, and when it was read; from then on its call is known."""
        record, start = self.record, perf_counter_ns()
        request = split_request(message)
        decoded = perf_counter_ns()
        record.decode_ns = decoded - start
        self.call = call = self._common.prepared(request.call)
        record.operator, record.variant = call.operator.name, call.operator.variant
        return request, decoded

    def _timings(self) -> bytes:
        record = self.record
        return encode_timings(
            Timings(
                record.decode_ns, record.check_ns, record.queue_ns, record.run_ns,
                record.encode_ns, record.copy_in_ns, record.plan_ns, record.copy_out_ns,
            )
        )  # fmt: skip


def _check_nothing_but_the_call(request: Request) -> None:
    found = len(request.storage) + len(request.output_places)
    if found:
        raise MessageError(
            f"begin: expected no storage and no place for an output where chunks follow, "
            f"found {found}"
        )

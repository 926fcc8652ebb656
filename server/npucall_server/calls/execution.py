"""The life of one call or program on this server. A call is a program of one step.

This is the place to limit or trace calls: every call passes every step once. Only the door,
which writes the record of a call, knows how it ended. That is the place to count calls.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from npucall.declare.prepare import once_a_call
from npucall.errors import CancelledError, NpucallError, QueueFullError
from npucall.exchange import Receiving, into
from npucall.limits import INLINE_BYTES, KIB
from npucall.memory import fresh
from npucall.programs import Program
from npucall.wire.calls import PreparedCalls
from npucall.wire.messages import join_response
from npucall.wire.program_messages import join_program_response
from npucall.wire.replies import encode_reply
from npucall_server.access.callers import YieldingCaller
from npucall_server.calls.answers import (
    Answer,
    Plan,
    check_call_answer,
    check_program_answer,
    timings_of,
)
from npucall_server.calls.arrivals import Arrivals
from npucall_server.calls.open_places import OpenPlaces
from npucall_server.calls.requests import own_steps, read_call, read_program
from npucall_server.devices.base import Step
from npucall_server.scheduling.call_turn import gave_way

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.places import Place
    from npucall.tensors import Buffer
    from npucall.wire.replies import ServerIdentity
    from npucall_server.access.callers import Caller
    from npucall_server.calls.arrivals import Computed
    from npucall_server.calls.open_places import Places
    from npucall_server.scheduling.executor import Admission, Completed, Executor
    from npucall_server.scheduling.gate import Gate, Passage
    from npucall_server.scheduling.kept_memory import KeptMemory
    from npucall_server.telemetry.log import Record

QUICK_ELEMENTS = 16 * KIB
"""A call of so many elements takes far less than a millisecond, whatever its operator."""


class Executions:
    """Begins executions on one device, and holds what they have in common."""

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
        self.encoded_reply = once_a_call(lambda call: encode_reply(call, identity))

    def begin(self, caller: Caller, record: Record, *, program: bool = False) -> Execution:
        """The execution of a call or a program that has come."""
        return Execution(self, caller, record, is_program=program)


class Execution:
    """A call or a program: ``prepare``, ``admit``, ``run``, and its reply, in this order.

    If storages follow in chunks, ``expect`` comes after ``admit``. A context manager: leaving it
    dismisses the call and gives its room back.
    """

    asked: Prepared | Program
    """Once it is prepared: the call, or the program. A call with places is a program too."""
    _steps: Sequence[Step] = ()
    """What runs, if all of it is in the message, or comes in chunks."""
    _places: OpenPlaces | None = None
    """Where the rest is."""
    _storages: Mapping[str, Buffer] = {}
    """What came in chunks beside places."""
    _arrivals: Arrivals | None = None
    _passage: Passage | None = None
    _admission: Admission | None = None
    _completed: Completed | None = None
    _in_one = False
    """Whether the answer is one message."""
    _runs = False

    def __init__(
        self, common: Executions, caller: Caller, record: Record, *, is_program: bool
    ) -> None:
        self.caller, self.record, self.is_program = caller, record, is_program
        self._common = common

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.dismiss()

    # --- What is asked ----------------------------------------------------------------------------

    def prepare(self, message: bytes, *, chunked: bool = False) -> None:
        """Reads a request, checks what it asks, and finds its storages.

        ``chunked``: the storages of a call follow, except those that have a place. Raises an error
        if the call is wrong.
        """
        program = self._read(message, chunked=chunked)
        if program is not None:
            start = perf_counter_ns()
            self._places = OpenPlaces(self._common.places, self.caller, program, message)
            self.record.check_ns += perf_counter_ns() - start
        if self.is_program:
            self.answer_in_one()

    def plan(self, message: bytes) -> Plan:
        """Checks a request without its data."""
        common, record, executor = self._common, self.record, self._common.executor
        steps: list[Step] = []
        if self.is_program:
            program = read_program(message, record, common.calls, planned=True)
            calls, steps = [step.call for step in program.steps], own_steps(program)
        else:
            asked, _ = read_call(message, record, common.calls, planned=True)
            calls = [asked]  # type: ignore[list-item]  # without places
        self._passage = common.gate.enter(self.caller)
        turn = executor.turn(self.caller)
        try:
            workspaces = [executor.plan(call, turn) for call in calls]
        finally:
            record.device_ns, record.told_ns = turn.held_ns, turn.told_ns
        replies = map(common.encoded_reply, calls)
        peak = executor.device.program_bytes(steps) if steps else 0
        return Plan(list(zip(replies, workspaces, strict=True)), timings_of(record), peak)

    def answer_in_one(self, *, streams: bool = False) -> None:
        """The answer will be one message, which takes memory beside the outputs.

        Raises TooLargeError if the outputs do not fit in a message. ``streams``: see
        ``check_call_answer``.
        """
        self._in_one = True
        if self.is_program:
            check_program_answer(self._common.executor, self.asked)  # type: ignore[arg-type]
        else:
            check_call_answer(self._common.executor, self.asked, streams=streams)

    def expect(self, name: str) -> Receiving:
        """Takes the storages in chunks: to compute them as they come, or into memory made for them.

        ``name``: the call's name in errors.
        """
        asked = self.asked
        if isinstance(asked, Program):  # of one step, with places
            call, places = asked.steps[0].call, asked.steps[0].storage
        else:
            call, places = asked, [None] * len(asked.stored)
            if self._common.executor.device.takes_pieces(call):
                self._arrivals = arrivals = Arrivals(call)
                self._steps = [Step(call, {})]
                return Receiving(
                    name, call.stored_bytes, lambda chunk: arrivals.put(chunk.storage, chunk.data)
                )
        expected = [
            size if place is None else 0
            for size, place in zip(call.stored_bytes, places, strict=True)
        ]
        memories = [fresh(size) for size in expected]
        self._storages = dict(zip(call.stored, memories, strict=True))
        if self._places is None:
            self._steps = [Step(call, self._storages)]
        return Receiving(name, expected, into(memories))

    @property
    def runs_as_bytes_come(self) -> bool:
        """Whether ``run`` begins before the storages have come; it waits for ``end_of_bytes``."""
        return self._arrivals is not None

    @property
    def is_quick(self) -> bool:
        """Whether it is best run at this moment in this thread, since that takes so little.

        It could run at once, waits for no bytes, and nobody waits for a turn.
        """
        if self.is_program or self._places is not None or self._arrivals is not None:
            return False
        executor = self._common.executor
        little = self.asked.computation <= QUICK_ELEMENTS
        return little and executor.device.runs_in_calling_thread and executor.has_spare_turn

    def answer_early(self, tell: Callable[[Computed], object]) -> bytes | None:
        """Has ``tell`` called while it runs, with how much of its outputs is computed.

        Answers the reply, which may be sent before them; None for a call that runs in one go, or
        whose outputs are short.
        """
        asked = self.asked
        if self._arrivals is None or isinstance(asked, Program):
            return None
        if asked.replied_bytes <= INLINE_BYTES:
            return None
        self._arrivals.tell = tell
        return self._common.encoded_reply(asked)

    def end_of_bytes(self) -> None:
        """All storages have come."""
        if self._admission is not None:
            self._admission.must_go_on()
        if self._arrivals is not None:
            self._arrivals.end()

    # --- Its life ---------------------------------------------------------------------------------

    def admit(self, end: Callable[[], object] | None = None) -> None:
        """Makes room for the call.

        Raises ReservedError, TooLargeError, QuotaError, QueueFullError, DrainingError.

        ``end``: ends the call if others ask for its room before it runs.
        """
        common, asked = self._common, self.asked
        self._passage = passage = common.gate.enter(self.caller)
        room = common.executor.room_of(asked)
        if self._places is not None:
            room += self._places.copied_bytes
        if self._in_one:  # the message takes memory beside the outputs
            room = max(room, 2 * asked.replied_bytes)
        self._admission = admission = common.executor.admit(asked, self.caller, room, end)
        passage.may_end_by(admission.end)
        common.kept.make_room(room)

    def answer_once_read(self) -> bytes:
        """Admits and runs the call, and gives its room back once its answer has been read.

        Answers one message.
        """
        self.admit()
        self.run()
        response = self.reply_message()
        admission, self._admission = self._admission, None
        assert admission is not None  # noqa: S101  # it was admitted
        admission.may_end_by(self.caller.cancel)
        if not self.caller.add_callback(admission.dismiss):  # the caller has gone
            admission.dismiss()
        return response

    def run(self) -> None:
        """Runs the call in this thread once the device has a turn.

        Raises the error that ends it.
        """
        admission = self._admission
        assert admission is not None  # noqa: S101  # it has been admitted
        self._runs = True
        try:
            if self._places is None:
                self._compute(self._steps, admission)
            else:
                self._compute_placed(self._places, admission)
            admission.has_run()
        except QueueFullError as error:
            if self._passage is None or self._passage.refusal is None:
                raise
            raise self._passage.refusal from error
        finally:
            self._runs = False
            self._leave()

    def reply(self) -> Answer:
        """The answer to a call that ran. To be called once, since the answer takes the outputs."""
        ((reply, places),) = self._replies()
        return Answer(reply, self._take_timings(), places)

    def reply_message(self) -> bytes:
        """The answer in one message. To be called once."""
        replies = self._replies()
        timings = self._take_timings()
        self.forget_storages()
        if self.is_program:
            return join_program_response(replies, timings)
        ((reply, places),) = replies
        return join_response(reply, timings, places)

    def forget_storages(self) -> None:
        """The call is answered, so its inputs are no longer read."""
        self._steps, self._storages = (), {}
        if self._arrivals is not None:
            self._arrivals.stop()
        if self._passage is not None:
            self._passage.is_answered()
        if not self._runs:
            self._leave()

    def may_end_by(self, end: Callable[[], object]) -> None:
        """``end`` ends the call from now on if others ask for its room."""
        if self._admission is not None:
            self._admission.may_end_by(end)

    def dismiss(self) -> None:
        """Gives the room of the call back; a second time does nothing."""
        if self._arrivals is not None:
            self._arrivals.stop()
        if self._admission is not None:
            self._admission.dismiss()
        if not self._runs:
            self._leave()

    def gave_way(self) -> NpucallError:
        """The error of a call that was ended for others: for its room, or for a reservation."""
        refusal = self._passage.refusal if self._passage is not None else None
        return refusal or gave_way()

    # --- Steps of these ---------------------------------------------------------------------------

    def _read(self, message: bytes, *, chunked: bool) -> Program | None:
        """Answers what has places to open, if something has."""
        record, calls = self.record, self._common.calls
        if not self.is_program:
            self.asked, self._steps = asked, _ = read_call(message, record, calls, chunked=chunked)
            return asked if isinstance(asked, Program) else None
        self.asked = program = read_program(message, record, calls)
        if not program.stays_in_program:
            return program
        self._steps = own_steps(program)
        return None

    def _compute(self, steps: Sequence[Step], admission: Admission) -> None:
        executor, record = self._common.executor, self.record
        turn = executor.turn(self.caller, admission, self._arrivals)
        try:
            self._completed = executor.run(steps, turn)
        except NpucallError as error:
            if self.is_program and len(steps) == 1:  # a device does not know that this is no call
                error.details.setdefault("step", "0")
            raise
        finally:
            record.device_ns, record.told_ns = turn.held_ns, turn.told_ns

    def _compute_placed(self, places: OpenPlaces, admission: Admission) -> None:
        """Not if another call fills the same handles with the same bytes, or has filled them."""
        try:
            self._wait_for_handles(places, admission)
            if places.runs:
                self._compute(places.steps(self._storages), admission)
        except BaseException as error:
            places.fail(error)
            raise
        places.succeed()

    def _wait_for_handles(self, places: OpenPlaces, admission: Admission) -> None:
        """Waits for handles that other calls fill, until somebody asks for what this call holds."""
        waits = YieldingCaller(self.caller)
        admission.may_end_by(waits.give_way)
        try:
            places.wait(waits)
        except CancelledError:
            if waits.gave_way:
                raise gave_way() from None
            raise

    def _leave(self) -> None:
        """The call no longer uses the device, nor its inputs. A second time does nothing."""
        if self._places is not None:
            self._places.end()
        if self._passage is not None:
            self._passage.leave()

    def _replies(self) -> list[tuple[bytes, Sequence[Place]]]:
        """The reply of each step, and its outputs."""
        start = perf_counter_ns()
        asked, completed, places = self.asked, self._completed, self._places
        calls = [step.call for step in asked.steps] if isinstance(asked, Program) else [asked]
        replies = []
        for number, call in enumerate(calls):
            outputs: Any = completed.outputs[number] if completed else [None] * len(call.outputs)
            if places is not None:
                outputs = places.replied(number, outputs)
            replies.append((self._common.encoded_reply(call), outputs))
        self.record.encode_ns = perf_counter_ns() - start
        return replies

    def _take_timings(self) -> bytes:
        """The timings. The call lets go of what was computed."""
        completed, self._completed = self._completed, None
        return timings_of(self.record, completed)

"""The life of one call or program on this server. A call is a program of one step.

This is the place to limit or trace calls: every call passes every step once. Only the door,
which writes the record of a call, knows how it ended. That is the place to count calls.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from npucall.errors import CancelledError, NpucallError, QueueFullError
from npucall.limits import INLINE_BYTES, KIB, MIB
from npucall.programs import Program
from npucall.wire.messages import response_parts
from npucall.wire.program_messages import join_program_response
from npucall.wire.replies import encode_timings
from npucall_server.access.callers import Caller, YieldingCaller
from npucall_server.calls.answers import Answer, replies_of
from npucall_server.calls.arrivals import Arrivals, Computed, in_memory, in_pieces
from npucall_server.calls.open_places import OpenPlaces
from npucall_server.calls.region_checks import names_regions
from npucall_server.calls.requests import read_call, read_program
from npucall_server.devices.base import Outputs, Step
from npucall_server.scheduling.call_turn import gave_way
from npucall_server.scheduling.ticket import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.exchange import Receiving
    from npucall.places import Place
    from npucall.tensors import Buffer
    from npucall_server.calls.beginning import Executions
    from npucall_server.calls.known_call import KnownCall
    from npucall_server.telemetry.log import Record


PLACED_BYTES = 2 * KIB
"""Of a message whose checks may be kept, if all of its arrays are in regions; as much is charged
for what is kept, beside the message."""

SHORT_ELEMENTS = MIB
"""A call of so many takes some milliseconds."""


class Execution:
    """A call or a program: ``prepare``, ``admit``, ``run``, and its reply, in this order.

    If storages follow in chunks, ``expect`` comes after ``admit``. A context manager: leaving it
    gives back what the call holds.
    """

    asked: Prepared | Program
    """Once it is prepared: the call, or the program. A call with places is a program too."""
    is_quick = False
    """Whether it is to run in the thread that admitted it, at once: it has its turn already."""
    _known: KnownCall | None = None
    """Of a call without places, once it is admitted."""
    _steps: Sequence[Step] = ()
    """What runs, if all of it is in the message, or comes in chunks."""
    _places: OpenPlaces | None = None
    """Where the rest is."""
    _storages: Mapping[str, Buffer] = {}
    """What came in chunks beside places."""
    _arrivals: Arrivals | None = None
    _outputs: Outputs | None = None
    """Of a call that ran, until it is answered."""
    _is_joined = False
    """Whether the answer becomes one message in memory."""
    _is_kept = False
    """Whether the ticket stays until the answer has been read."""

    def __init__(
        self, common: Executions, caller: Caller, record: Record, *, program: bool = False
    ) -> None:
        self.caller, self.record, self.is_program = caller, record, program
        self._common = common
        self._ticket = Ticket()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._is_kept:
            self._ticket.read()

    # --- What is asked ----------------------------------------------------------------------------

    def prepare(self, message: bytes, *, chunked: bool = False) -> None:
        """Reads a request, checks what it asks, and finds its storages.

        ``chunked``: the storages of a call follow, except those that have a place. Raises an error
        if the call is wrong.
        """
        if not (chunked or self.is_program):
            start, record = perf_counter_ns(), self.record
            received = self._common.calls.received(message)
            if received is not None:
                call, storages = received
                self.asked = call
                self._steps = [Step(call, storages)]
                record.operator, record.variant = call.operator.name, call.operator.variant
                record.decode_ns = perf_counter_ns() - start
                return
            if len(message) <= PLACED_BYTES and self._prepared_before(message):
                record.check_ns = perf_counter_ns() - start
                return
        self._read(message, chunked=chunked)
        if self.is_program:
            self.answer_in_one()

    def answer_in_one(self, *, streams: bool = False, joined: bool = True) -> None:
        """The answer will be one message; ``joined``: which takes memory beside the outputs.

        Raises TooLargeError if the outputs do not fit in a message. ``streams``: whether the error
        may point to ExecuteStream.
        """
        self._is_joined = joined
        if self.asked.replied_bytes > self._common.most_in_one:
            raise self._common.too_long(self.asked, program=self.is_program, streams=streams)

    def expect(self, name: str) -> Receiving:
        """Takes the storages in chunks: to compute them as they come, or into memory made for them.

        ``name``: the call's name in errors.
        """
        asked = self.asked
        if isinstance(asked, Program):  # of one step, with places
            (step,) = asked.steps
            receiving, self._storages = in_memory(step.call, step.storage, name)
        elif self._common.executor.device.takes_pieces(asked):
            receiving, self._arrivals = in_pieces(asked, name)
            self._steps = [Step(asked, {})]
        else:
            receiving, storages = in_memory(asked, [None] * len(asked.stored), name)
            self._steps = [Step(asked, storages)]
        return receiving

    @property
    def runs_as_bytes_come(self) -> bool:
        """Whether ``run`` begins before the storages have come; it waits for ``end_of_bytes``."""
        return self._arrivals is not None

    @property
    def is_short(self) -> bool:
        """Whether a thread may run it that has nothing else to do for some milliseconds."""
        if self.is_program or self._arrivals is not None:
            return False
        if self._places is not None and self._places.may_wait:
            return False
        executor = self._common.executor
        return self.asked.computation <= SHORT_ELEMENTS and executor.has_spare_turn

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
        return self._common.known(asked).reply

    def end_of_bytes(self) -> None:
        """All storages have come."""
        self._ticket.must_go_on()
        if self._arrivals is not None:
            self._arrivals.end()

    # --- Its life ---------------------------------------------------------------------------------

    def admit(self, end: Callable[[], object] | None = None, *, at_once: bool = False) -> None:
        """Makes room for the call.

        Raises ReservedError, TooLargeError, QuotaError, QueueFullError, DrainingError.

        ``end``: ends the call if others ask for its room before it runs. ``at_once``: this thread
        has nothing else to do; the call gets its turn now if it is short and nobody waits for one.
        """
        common, asked, ticket = self._common, self.asked, self._ticket
        ticket.permit = permit = common.gate.enter(self.caller)
        if isinstance(asked, Program):
            room = self._room_of(asked)
        else:
            self._known = known = common.known(asked)
            room = known.room or known.find_room(common.executor)
            ticket.at_once = at_once and known.is_quick
        if self._is_joined and room < 2 * asked.replied_bytes:
            room = 2 * asked.replied_bytes  # the message takes memory beside the outputs
        common.executor.admit(ticket, asked, self.caller, room, end)
        if ticket.turn is not None:
            self.is_quick = True
        else:
            permit.may_end_by(ticket.end)
        if room >= common.kept.large:
            common.kept.make_room(room)

    def answer_once_read(self) -> bytes:
        """Admits and runs the call, and gives its room back once its answer has been read.

        Answers one message.
        """
        ticket, caller = self._ticket, self.caller
        self.admit(caller.cancel, at_once=True)
        if not self.is_quick:
            ticket.must_go_on()
        self.run()
        response = self.reply_message()
        if not self.is_quick:
            ticket.may_end_by(caller.cancel)
        self._is_kept = caller.add_callback(ticket.read)  # else the caller has gone
        return response

    def run(self) -> None:
        """Runs the call in this thread once the device has a turn.

        Raises the error that ends it.
        """
        ticket = self._ticket
        ticket.runs = True
        try:
            if self._known is not None:  # a call without places
                self._outputs = self._common.executor.run(
                    self._steps, self.caller, ticket, self.record, self._arrivals
                )
            elif self._places is None:
                self._compute(self._steps)
            else:
                self._compute_placed(self._places)
        except QueueFullError as error:
            refusal = ticket.permit.refusal if ticket.permit is not None else None
            if refusal is None:
                raise
            raise refusal from error
        finally:
            ticket.runs = False
            ticket.ran()

    def reply(self) -> Answer:
        """The answer to a call that ran. To be called once, since the answer takes the outputs."""
        ((reply, places),) = self._take_replies()
        return Answer(reply, encode_timings(self.record), places)

    def reply_message(self) -> bytes:
        """The answer in one message. To be called once."""
        return b"".join(self.reply_parts())

    def reply_parts(self) -> Sequence[Buffer]:
        """What the answer's message is made of, its outputs as they are. To be called once."""
        known, record = self._known, self.record
        if known is None:
            replies = self._take_replies()
            self.is_answered()
            if self.is_program:
                return [join_program_response(replies, encode_timings(record))]
            ((reply, places),) = replies
            return response_parts(reply, encode_timings(record), places)
        start, ran, self._outputs = perf_counter_ns(), self._outputs, None
        assert ran is not None  # noqa: S101  # it ran
        outputs: Any = ran[0]  # all are in the answer, since none has a place
        del ran
        record.encode_ns = perf_counter_ns() - start
        timings = encode_timings(record)
        self.is_answered()
        if known.answers.fits(parts := [timings, *outputs]):
            return known.answers.parts(parts)
        return response_parts(known.reply, timings, outputs)  # a device may be wrong

    def is_answered(self) -> None:
        """The call is answered, so its inputs are no longer read."""
        if self._arrivals is None:
            self._steps, self._storages = (), {}
        ticket, permit = self._ticket, self._ticket.permit
        if permit is not None and (permit.refusal is not None or not ticket.has_run):
            permit.is_answered()
        if not ticket.has_run:
            ticket.ran()
        if self._arrivals is not None:  # its thread may begin only now
            self._arrivals.stop()

    def may_end_by(self, end: Callable[[], object]) -> None:
        """``end`` ends the call from now on if others ask for its room."""
        self._ticket.may_end_by(end)

    def give_back(self) -> None:
        """Gives back all that the call holds; a second time does nothing."""
        self._ticket.read()

    def gave_way(self) -> NpucallError:
        """The error of a call that was ended for others: for its room, or for a reservation."""
        permit = self._ticket.permit
        return (permit.refusal if permit is not None else None) or gave_way()

    # --- Steps of these ---------------------------------------------------------------------------

    def _read(self, message: bytes, *, chunked: bool) -> None:
        record, common = self.record, self._common
        prepared = partial(common.calls.of, owner=self.caller.identity.person)
        if self.is_program:
            self.asked, self._steps = read_program(message, record, prepared)
        else:
            self.asked, self._steps = read_call(message, record, prepared, chunked=chunked)
        if isinstance(self.asked, Program) and not self._steps:
            start = perf_counter_ns()
            self._open_places(self.asked, message)
            record.check_ns += perf_counter_ns() - start
            if len(message) <= PLACED_BYTES and not self.is_program and names_regions(self.asked):
                owner, size = self.caller.identity.person, PLACED_BYTES + len(message)
                common.placed.keep(bytes(message), self.asked, size, owner)

    def _prepared_before(self, message: bytes) -> bool:
        """Prepares a call that came before, of which all is in regions; else answers False."""
        program = self._common.placed.get(bytes(message))  # of which a part may be a view
        if program is None:
            return False
        self.asked, operator = program, program.steps[0].call.operator
        self.record.operator, self.record.variant = operator.name, operator.variant
        self._open_places(program, message, is_known=True)
        return True

    def _open_places(self, program: Program, message: bytes, *, is_known: bool = False) -> None:
        places = OpenPlaces(self._common.places, self.caller, program, message, is_known=is_known)
        self._places = self._ticket.places = places

    def _room_of(self, program: Program) -> int:
        room = self._common.executor.room_of(program)
        return room if self._places is None else room + self._places.copied_bytes

    def _compute(self, steps: Sequence[Step]) -> None:
        executor, record = self._common.executor, self.record
        try:
            self._outputs = executor.run(steps, self.caller, self._ticket, record)
        except NpucallError as error:
            if self.is_program and len(steps) == 1:  # a device does not know that this is no call
                error.details.setdefault("step", "0")
            raise

    def _compute_placed(self, places: OpenPlaces) -> None:
        """Not if another call fills the same handles with the same bytes, or has filled them."""
        try:
            self._wait_for_handles(places)
            if places.runs:
                self._compute(places.steps(self._storages))
        except BaseException as error:
            places.fail(error)
            raise
        places.succeed()

    def _wait_for_handles(self, places: OpenPlaces) -> None:
        """Waits for handles that other calls fill, until somebody asks for what this call holds."""
        waits = YieldingCaller(self.caller)
        self._ticket.may_end_by(waits.give_way)
        try:
            places.wait(waits)
        except CancelledError:
            if waits.gave_way:
                raise gave_way() from None
            raise
        self._ticket.must_go_on()

    def _take_replies(self) -> list[tuple[bytes, Sequence[Place]]]:
        """The reply of each step, and its outputs. The call lets go of what was computed."""
        start, outputs, self._outputs = perf_counter_ns(), self._outputs, None
        replies = replies_of(self.asked, outputs, self._places, self._common.known)
        self.record.encode_ns = perf_counter_ns() - start
        return replies

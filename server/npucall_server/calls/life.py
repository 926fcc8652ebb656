"""What calls and programs have in common on their way through the server.

This is the place to limit or trace calls: every call passes every step once. Only ``handling``,
which writes the record of a call, knows how it ended. That is the place to count calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from npucall.errors import CancelledError, NpucallError, QueueFullError
from npucall.wire.replies import Timings, encode_timings
from npucall_server.access.callers import YieldingCaller
from npucall_server.scheduling.call_turn import gave_way

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.exchange import Receiving
    from npucall.programs import Program
    from npucall.tensors import Buffer
    from npucall.wire.calls import KnownCall
    from npucall_server.access.callers import Caller
    from npucall_server.calls.arrivals import Computed
    from npucall_server.calls.placed import Placed, Places
    from npucall_server.devices.base import Resident
    from npucall_server.scheduling.executor import Admission, Completed, Executor
    from npucall_server.scheduling.gate import Gate, Passage
    from npucall_server.scheduling.kept_memory import KeptMemory
    from npucall_server.telemetry.log import Record


class Common(NamedTuple):
    """What all executions use in common."""

    executor: Executor
    places: Places
    kept: KeptMemory
    gate: Gate
    prepared: Callable[[bytes], Prepared]
    """Checks a call by its bytes."""
    received: Callable[[bytes], KnownCall | None]
    """Finds call and storages in a message like one that came before."""
    encoded_reply: Callable[[Prepared], bytes]


class Execution:
    """A call or a program: ``prepare``, ``admit``, ``run``, and its reply, in this order.

    A context manager. Leaving it dismisses the call and gives its room back.
    """

    asked: Prepared | Program
    """The call or program, once it is prepared."""

    def __init__(self, common: Common, caller: Caller, record: Record) -> None:
        self.caller = caller
        self.record = record
        self._common = common
        self._placed: Placed | None = None
        self._completed: Completed | None = None
        self._admission: Admission | None = None
        self._passage: Passage | None = None
        self._runs = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.dismiss()

    def prepare(self, message: bytes, *, chunked: bool = False) -> None:
        """Reads a request and checks what it asks; ``chunked``: storages follow."""
        raise NotImplementedError

    def reply_message(self) -> bytes:
        """The answer in one message. To be called once, since the answer takes the outputs."""
        raise NotImplementedError

    def expect(self, name: str) -> Receiving:
        """Takes the storages that follow in chunks. ``name``: the call's name in errors."""
        raise NotImplementedError

    def answer_early(self, tell: Callable[[Computed], object]) -> bytes | None:
        """Has ``tell`` called while it runs, with how much of its outputs is computed.

        Answers the reply, which may be sent before them; None for a call that runs in one go.
        """
        del tell
        return None

    @property
    def runs_as_bytes_come(self) -> bool:
        """Whether ``run`` begins before the storages have come; it waits for ``end_of_bytes``."""
        return False

    @property
    def is_quick(self) -> bool:
        """Whether it computes little, waits for no bytes, and could run at this moment."""
        return False

    def end_of_bytes(self) -> None:
        """All storages have come."""
        if self._admission is not None:
            self._admission.must_go_on()

    def admit(self, end: Callable[[], object] | None = None) -> None:
        """Makes room for the call.

        Raises ReservedError, TooLargeError, QueueFullError, DrainingError.

        ``end``: ends the call if others ask for its room before it runs.
        """
        room = self._room
        self._passage = passage = self._common.gate.enter(self.caller)
        self._admission = admission = self._common.executor.admit(
            self.asked, self.caller, room, end
        )
        passage.may_end_by(admission.end)
        self._common.kept.make_room(room)

    def run(self) -> None:
        """Runs the call in this thread once the device has a turn.

        Raises the error that ends it.
        """
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
        admission = self._admission
        assert admission is not None  # noqa: S101  # it has been admitted
        try:
            if self._placed is None:
                self._completed = self._compute(admission)
            else:
                self._completed = self._compute_placed(self._placed, admission)
        finally:
            if (turn := admission.turn) is not None:
                self.record.device_ns, self.record.told_ns = turn.held_ns, turn.told_ns
        admission.has_run()

    def _compute_placed(self, placed: Placed, admission: Admission) -> Completed | None:
        """None if another call fills the same handles with the same bytes, or has filled them."""
        try:
            self._wait_for_handles(placed, admission)
            completed = self._compute(admission) if placed.runs else None
        except BaseException as error:
            placed.fail(error)
            raise
        placed.succeed()
        return completed

    def _wait_for_handles(self, placed: Placed, admission: Admission) -> None:
        """Waits for handles that other calls fill, until somebody asks for what this call holds."""
        waits = YieldingCaller(self.caller)
        admission.may_end_by(waits.give_way)
        try:
            placed.wait(waits)
        except CancelledError:
            if waits.gave_way:
                raise gave_way() from None
            raise

    def _compute(self, admission: Admission) -> Completed:
        raise NotImplementedError

    @property
    def _room(self) -> int:
        """Bytes that the call takes: first for inputs and outputs, then for the answer."""
        raise NotImplementedError

    def forget_storages(self) -> None:
        """The call is answered, so its inputs are no longer read."""
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
        if self._admission is not None:
            self._admission.dismiss()
        if not self._runs:
            self._leave()

    def gave_way(self) -> NpucallError:
        """The error of a call that was ended for others: for its room, or for a reservation."""
        refusal = self._passage.refusal if self._passage is not None else None
        return refusal or gave_way()

    def dismiss_once_read(self) -> None:
        """Gives the room back once the caller has read the answer or has gone."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.may_end_by(self.caller.cancel)
            if not self.caller.add_callback(admission.dismiss):
                admission.dismiss()

    def _leave(self) -> None:
        """The call no longer uses the device, nor its inputs. A second time does nothing."""
        if self._placed is not None:
            self._placed.end()
        if self._passage is not None:
            self._passage.leave()

    def _outputs_of(self, number: int, call: Prepared) -> Sequence[Buffer | Resident | None]:
        """The outputs of a step; none if it did not run."""
        if self._completed is None:
            return [None] * len(call.outputs)
        return self._completed.outputs[number]

    def _take_timings(self) -> bytes:
        """The timings. The call lets go of what was computed."""
        record, completed = self.record, self._completed
        self._completed = None
        if completed is not None:
            record.queue_ns = completed.queue_ns
            phases = completed.phases
            record.copy_in_ns, record.plan_ns, record.run_ns, record.copy_out_ns = phases
        return encode_timings(
            Timings(
                record.decode_ns, record.check_ns, record.queue_ns, record.run_ns,
                record.encode_ns, record.copy_in_ns, record.plan_ns, record.copy_out_ns,
            )
        )  # fmt: skip

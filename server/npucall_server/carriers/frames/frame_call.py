"""One call of a connection of frames, from its frame to its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.wire.headers import ERROR, PROGRAM, RESPONSE, Header, pack
from npucall.wire.rpcs import EXECUTE, EXECUTE_PROGRAM
from npucall.wire.status import REQUEST_ID
from npucall_server.carriers.door import Outcome
from npucall_server.carriers.multiplex.call import StreamCaller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npucall.tensors import Buffer
    from npucall_server.calls.beginning import Executions
    from npucall_server.carriers.door import Door
    from npucall_server.carriers.peers import Visitor

_SMALL_BYTES = 16 * 2**10
"""To copy so many costs less than to tell the kernel of each part."""


class FrameCall:
    """Who waits for it, its execution, its record, and its answer once there is one."""

    def __init__(
        self,
        header: Header,
        metadata: dict[str, str],
        peer: Visitor,
        door: Door,
        executions: Executions,
    ) -> None:
        self.id = header.call_id
        self.caller = caller = StreamCaller(peer, "", header.timeout_ms / 1e3 or None)
        if metadata:
            caller.metadata, caller.request_id = metadata, metadata.get(REQUEST_ID, "")
        is_program = header.kind == PROGRAM
        method = EXECUTE_PROGRAM if is_program else EXECUTE
        self.outcome = Outcome(door, method.name, caller)
        self.execution = executions.begin(caller, self.outcome.record, program=is_program)
        self.answer: Sequence[Buffer] = ()
        """The parts of its frame."""

    def admit(self, message: bytes, cut: Callable[[], object], *, streams: bool) -> None:
        """Checks what is asked, and makes room for it.

        ``cut`` ends the connection, from now on if the call is quick. ``streams``: those of gRPC
        may be named.
        """
        self.outcome.record.request_bytes = len(message)
        self.execution.prepare(message)
        self.execution.answer_in_one(streams=streams, joined=self.execution.is_program)
        self.execution.admit(cut, at_once=True)
        if not self.execution.is_quick:
            self.execution.may_end_by(self.caller.cancel)

    def run(self) -> None:
        """Runs it once the device has a turn; then there is an answer."""
        try:
            self.execution.run()
            parts = self.execution.reply_parts()
        except Exception as error:  # noqa: BLE001  # `Outcome` tells bugs from errors
            self.refuse(error)
            return
        self.outcome.record.response_bytes = size = sum(map(len, parts))
        header = pack(RESPONSE, size, self.id)
        self.answer = [b"".join((header, *parts))] if size < _SMALL_BYTES else [header, *parts]

    def refuse(self, error: Exception) -> None:
        """Its answer is an error."""
        status = self.outcome.status(error)
        self.answer = pack(ERROR, len(status), self.id), status

    def may_end_by(self, end: Callable[[], object]) -> None:
        """``end`` ends it from now on if others ask for its room: it has its answer."""
        self.execution.may_end_by(end)

    def settle(self) -> None:
        """The answer has been taken, or the connection has ended: gives everything back."""
        self.answer = ()
        self.caller.callbacks = None
        self.outcome.end()  # whoever waits for the last call wants its line and its account
        self.execution.give_back()

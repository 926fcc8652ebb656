"""What a server knows of a call once it came: the next call like it needs no more."""

from __future__ import annotations

from npucall.declare.prepare import Prepared
from npucall.limits import KIB
from npucall.wire.messages import known_answers
from npucall.wire.replies import TIMINGS_BYTES, ServerIdentity, encode_reply
from npucall_server.scheduling.executor import Executor

_QUICK_ELEMENTS = 16 * KIB


class KnownCall:
    """The prepared call keeps it (``once_a_call``), and its formula (``compute.recipes``)."""

    __slots__ = ("_call", "answers", "is_quick", "reply", "room")

    def __init__(self, call: Prepared, identity: ServerIdentity) -> None:
        self._call = call
        self.reply = encode_reply(call, identity)
        sizes = [spec.storage_bytes for spec in call.outputs.values()]
        self.answers = known_answers(self.reply, TIMINGS_BYTES, sizes)
        """Those in one message, of timings and outputs."""
        self.room = 0
        """Bytes that the call takes, once ``find_room`` has found them."""
        self.is_quick = False
        """Whether it takes far less than a millisecond in the thread that has it."""

    def find_room(self, executor: Executor) -> int:
        """Bytes that the call takes. Raises TooLargeError for one that can never be admitted."""
        self.is_quick = (
            executor.device.runs_in_calling_thread and self._call.computation <= _QUICK_ELEMENTS
        )
        self.room = executor.room_of(self._call)
        return self.room

"""What a server knows of a call once it came: the next call like it needs no more."""

from __future__ import annotations

from npucall.declare.prepare import Prepared
from npucall.wire.messages import response_head
from npucall.wire.replies import ServerIdentity, encode_reply
from npucall_server.scheduling.executor import Executor


class KnownCall:
    """The prepared call keeps it (``once_a_call``), and its formula (``compute.recipes``)."""

    __slots__ = ("_call", "head", "reply", "room")

    def __init__(self, call: Prepared, identity: ServerIdentity) -> None:
        self._call = call
        self.reply = encode_reply(call, identity)
        self.head = response_head(self.reply)
        """How an answer in one message begins."""
        self.room = 0
        """Bytes that the call takes, once ``find_room`` has found them."""

    def find_room(self, executor: Executor) -> int:
        """Bytes that the call takes. Raises TooLargeError for one that can never be admitted."""
        self.room = executor.room_of(self._call)
        return self.room

"""What follows from a call on one server, found once: the next call like it needs no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.wire.messages import response_head
from npucall.wire.replies import encode_reply

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall.wire.replies import ServerIdentity


class Recipe:
    """Of one call, which keeps it (``once_a_call``); its formula is in ``compute.evaluate``."""

    __slots__ = ("head", "reply", "room")

    def __init__(self, call: Prepared, identity: ServerIdentity) -> None:
        self.reply = encode_reply(call, identity)
        self.head = response_head(self.reply)
        """How an answer in one message begins."""
        self.room: int | None = None
        """What the executor said that the call takes, once it has fitted."""

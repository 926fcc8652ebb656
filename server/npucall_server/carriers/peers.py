"""Waits for peers to send a message or to read an answer. Cuts peers that make no progress.

Only the kernel tells which bytes have moved, and of a connection as a whole. So what one message
may take has an end, whatever else moves there; and a message that others want the room of gives
way once it has been on its way for a moment.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from npucall.errors import MessageError, QueueFullError
from npucall.limits import KIB, MIB
from npucall_server import retries
from npucall_server.accounts.giving_way import IDLE_SECONDS
from npucall_server.accounts.ledger import Ledger
from npucall_server.carriers.connections import bytes_moved
from npucall_server.retries import refusal
from npucall_server.telemetry.log import GRPC

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from npucall.errors import NpucallError
    from npucall_server.access.guard import ProvedPeer
    from npucall_server.access.identity import Identity
    from npucall_server.accounts.ledger import Entry
    from npucall_server.telemetry.log import Log

T = TypeVar("T")

_LONGEST_SECONDS = 300.0
"""After this time a message has come, or its call ends."""
_LEAST_RATE = 64 * KIB
"""Bytes a second: an answer may take so much longer than the time without progress."""
_LISTING_BYTES, _HEALTH_BYTES = 16 * MIB, MIB
"""Of answers to listings, and to health checks, until they have been read."""
_CALL_BYTES = 16 * KIB
"""What such a call takes beside its answer."""
_LOOK_SECONDS = 1.0
_FAST_BYTES_A_SECOND = 16 * KIB
"""A message that comes so fast does not give way, if all of its connection do."""
_BYTES_A_SECOND = 4
"""So many bytes must move to count as progress: more than the pings of an idle connection."""

MESSAGE = "its message"
ANSWER = "its answer to be read"


class Visitor:
    """The caller of a method, or of a stream as a whole. Each carrier has a class of them.

    It has to make progress while something is awaited from it.
    """

    peer: str
    """Its address, as gRPC tells it."""
    connection: ProvedPeer
    carrier = GRPC
    """What carries its bytes, as the log says it."""
    metadata: Mapping[str, str | bytes]
    request_id: str
    """Its own name for the call; empty if it has none."""
    identity: Identity
    """Anybody, until the guard has found out who it is."""
    owner: str

    time_remaining: Callable[[], float | None]
    is_active: Callable[[], bool]
    add_callback: Callable[[Callable[[], None]], bool]
    cancel: Callable[[], None]

    awaited = ""
    """What has to come from it, or to be read; empty while the server itself is at work."""
    since = 0.0
    """Since when, or its last progress."""
    ends = math.inf
    """When that has to be over, whatever moves."""
    arriving: Entry | None = None
    """What it holds meanwhile of the room for messages; it is idle while few bytes move."""
    moved: int | None = None
    """The bytes of its connection that had moved at its last progress, if anybody has looked."""

    def refuse(self, error: NpucallError) -> NoReturn:
        """Ends the method with this error: raises what the carrier makes of it."""
        raise NotImplementedError

    def bytes_moved(self) -> int | None:
        """Of its connection, if the carrier counts them; None if only the kernel does."""
        return None


class Peers:
    """All peers with an open call. Somebody has to call ``look`` every second.

    ``timeout``: seconds without progress, after the first progress. ``first_timeout``: before it.
    ``clock`` is monotonic.
    """

    def __init__(
        self,
        log: Log,
        timeout: float,
        moved: Callable[[], dict[str, int]] = bytes_moved,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout = timeout
        self.first_timeout = timeout / 3
        self.clock = clock
        self._log, self._moved = log, moved
        self._open: dict[Visitor, None] = {}
        self.finished: dict[str, int] = {}
        """Connections with a finished call of a caller that is known, and when the last one was."""
        self.ended: dict[str, int] = {}
        """Those with a call of such a caller that ended in whatever way, and when the last one did.

        What came on them was no flood.
        """
        self.listings, self.health_checks = (
            Ledger(most, partial(_too_much_unread, most), is_known=self.finished.__contains__)
            for most in (_LISTING_BYTES, _HEALTH_BYTES)
        )

    def enter(self, caller: Visitor) -> None:
        """From now on, until its call is over, it has to make progress with what is awaited."""
        self._open[caller] = None
        if not caller.add_callback(partial(self._open.pop, caller, None)):
            self._open.pop(caller, None)

    def message(
        self, messages: Iterator[bytes], caller: Visitor, room: Ledger, grace: float = 0.0
    ) -> bytes:
        """The one message of a call that enters, once there is room for it.

        So many seconds it does not give way to others.

        Raises MessageError if the call has no message, the refusal of ``room`` if there is no room,
        and the carrier's error if the call ends.
        """
        place = room.take(caller, 1, caller.cancel)
        caller.since = now = self.clock()
        caller.ends, caller.awaited = now + _LONGEST_SECONDS, MESSAGE
        caller.arriving, place.idle_since = place, now + grace - IDLE_SECONDS
        self.enter(caller)
        try:
            return next(messages)
        except StopIteration:
            raise MessageError("request: expected one message, found none") from None
        finally:
            caller.awaited, caller.arriving = "", None
            place.give_back()

    def messages(self, messages: Iterator[bytes], caller: Visitor) -> Iterator[bytes]:
        """The messages of a stream. The peer has to send each of them in time."""
        while True:
            caller.since, caller.ends = self.clock(), math.inf
            caller.awaited = "a message of its stream"
            try:
                message = next(messages, None)
            finally:
                caller.awaited = ""
            if message is None:
                return
            yield message

    def read(
        self,
        answers: Generator[T, None, None],
        caller: Visitor,
        size: Callable[[T], int] = len,  # type: ignore[assignment]  # of bytes
    ) -> Iterator[T]:
        """The messages of an answer. The peer has to read each of them in time."""
        with closing(answers):
            for message in answers:
                self.answers(caller, size(message))
                yield message
                caller.awaited = ""

    def answers(self, caller: Visitor, size: int) -> None:
        """The peer has to read so many bytes in time."""
        caller.since = now = self.clock()
        caller.ends, caller.awaited = now + self.timeout + size / _LEAST_RATE, ANSWER

    def answers_counted(self, caller: Visitor, size: int, room: Ledger) -> None:
        """And until they are read they count, in ``listings`` or ``health_checks``.

        Raises QueueFullError.
        """
        entry = room.take(caller, size + _CALL_BYTES, caller.cancel)
        self.answers(caller, size)
        entry.idle_since = caller.since
        if not caller.add_callback(entry.give_back):
            entry.give_back()

    def look(self) -> None:
        """Cuts peers that have made no progress for too long."""
        limit = self.clock() - min(_LOOK_SECONDS, self.first_timeout)
        late = [each for each in self._open.copy() if each.awaited and each.since <= limit]
        if not late:
            return
        moved, now = self._moved(), self.clock()
        awaited = Counter(each.peer for each in late)
        for caller in late:
            since, what = caller.since, caller.awaited
            seconds = now - since
            count = caller.bytes_moved()
            count = moved.get(caller.peer) if count is None else count
            few = 0 if caller.moved is None or count is None else count - caller.moved
            if now < caller.ends and _has_moved(caller, count, seconds):
                caller.since = now
                place = caller.arriving
                if (
                    place is not None
                    and few >= _FAST_BYTES_A_SECOND * seconds * awaited[caller.peer]
                ):
                    place.idle_since = now
            else:
                patience = self.timeout if caller.arriving is None else self.first_timeout
                if seconds >= patience and what and caller.since == since:
                    self.cut(caller, what, seconds)

    def cut(self, caller: Visitor, what: str, seconds: float) -> None:
        """Ends what a peer does, which was awaited for so long."""
        self._open.pop(caller, None)
        self._log.event("cut", peer=caller.peer, message=f"waited {seconds:.0f} s for {what}")
        caller.cancel()


def _has_moved(caller: Visitor, moved: int | None, seconds: float) -> bool:
    """Whether bytes have moved on its connection in the seconds since the last progress."""
    if moved is None:
        return False
    if caller.moved is None:
        caller.moved = moved
    enough = moved - caller.moved >= _BYTES_A_SECOND * seconds
    caller.moved = moved if enough else caller.moved
    return enough


def _too_much_unread(most: int, *_: object) -> QueueFullError:
    sentence = (
        f"callers have not read {most // MIB} MiB of answers to listings or health checks, as many "
        "as may wait"
    )
    return refusal(QueueFullError, sentence, retries.WATCHER, limit=most)

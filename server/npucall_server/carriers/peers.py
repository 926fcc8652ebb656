"""Waits for peers to send a message or to read an answer. Cuts peers that make no progress.

There is no limit on the total time: a call may go on as long as its bytes move.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from npucall.errors import MessageError
from npucall_server.carriers.connections import bytes_moved
from npucall_server.telemetry.log import GRPC

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from npucall.errors import NpucallError
    from npucall_server.access.guard import ProvedPeer
    from npucall_server.access.identity import Identity
    from npucall_server.accounts.ledger import Ledger
    from npucall_server.telemetry.log import Log

_HURRIED_SECONDS = 2.0
"""The longest time without progress while others want the room that a message holds."""
_LOOK_SECONDS = 1.0
_BYTES_A_SECOND = 4
"""So many bytes must move to count as progress: more than the pings of an idle connection."""
_HURRIED_BYTES_A_SECOND = 32 * 2**10
"""The same, while others want the room: or a trickle would keep it for ever."""


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
    room: Ledger | None = None
    """The room for messages of which it holds a part meanwhile."""
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

    def enter(self, caller: Visitor) -> None:
        """From now on, until its call is over, it has to make progress with what is awaited."""
        self._open[caller] = None
        if not caller.add_callback(partial(self._open.pop, caller, None)):
            self._open.pop(caller, None)

    def message(self, messages: Iterator[bytes], caller: Visitor, room: Ledger) -> bytes:
        """The one message of a call that enters, once there is room for it.

        Raises MessageError if the call has no message, the refusal of ``room`` if there is no room,
        and the carrier's error if the call ends.
        """
        place = room.take(caller, 1, caller.cancel)
        caller.room, caller.since, caller.awaited = room, self.clock(), "its message"
        self.enter(caller)
        try:
            return next(messages)
        except StopIteration:
            raise MessageError("request: expected one message, found none") from None
        finally:
            caller.awaited, caller.room = "", None
            place.give_back()

    def messages(self, messages: Iterator[bytes], caller: Visitor) -> Iterator[bytes]:
        """The messages of a stream. The peer has to send each of them in time."""
        while True:
            caller.since, caller.awaited = self.clock(), "a message of its stream"
            try:
                message = next(messages, None)
            finally:
                caller.awaited = ""
            if message is None:
                return
            yield message

    def read(self, answers: Generator[bytes, None, None], caller: Visitor) -> Iterator[bytes]:
        """The messages of an answer. The peer has to read each of them in time."""
        with closing(answers):
            for message in answers:
                caller.since, caller.awaited = self.clock(), ANSWER
                yield message
                caller.awaited = ""

    def look(self) -> None:
        """Cuts peers that have made no progress for too long."""
        limit = self.clock() - min(_LOOK_SECONDS, self.first_timeout)
        late = [each for each in self._open.copy() if each.awaited and each.since <= limit]
        if not late:
            return
        moved, now = self._moved(), self.clock()
        for caller in late:
            since, what = caller.since, caller.awaited
            seconds = now - since
            count = caller.bytes_moved()
            if _has_moved(caller, moved.get(caller.peer) if count is None else count, seconds):
                caller.since = now
            elif seconds >= self._patience(caller) and what and caller.since == since:
                self._cut(caller, what, seconds)

    def _patience(self, caller: Visitor) -> float:
        """Seconds without progress: few if others want the room and progress can be seen."""
        room = caller.room
        if room is None:
            return self.timeout
        return (
            _HURRIED_SECONDS if room.is_wanted and caller.moved is not None else self.first_timeout
        )

    def _cut(self, caller: Visitor, what: str, seconds: float) -> None:
        self._open.pop(caller, None)
        self._log.event("cut", peer=caller.peer, message=f"waited {seconds:.0f} s for {what}")
        caller.cancel()


def _has_moved(caller: Visitor, moved: int | None, seconds: float) -> bool:
    """Whether bytes have moved on its connection in the seconds since the last progress."""
    if moved is None:
        return False
    if caller.moved is None:
        caller.moved = moved
    is_hurried = caller.room is not None and caller.room.is_wanted
    least = _HURRIED_BYTES_A_SECOND if is_hurried else _BYTES_A_SECOND
    enough = moved - caller.moved >= least * seconds
    caller.moved = moved if enough else caller.moved
    return enough

"""Waits for peers to send a message or to read an answer. Cuts peers that make no progress.

There is no limit on the total time: a call may go on as long as its bytes move.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from npucall.errors import MessageError
from npucall_server.carriers.connections import bytes_moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_server.access.callers import UnaryCaller
    from npucall_server.accounts.ledger import Ledger
    from npucall_server.telemetry.log import Log

_HURRIED_SECONDS = 2.0
"""The longest time without progress while others want the room that a message holds."""
_LOOK_SECONDS = 1.0
_BYTES_A_SECOND = 4
"""So many bytes must move to count as progress: more than the pings of an idle connection."""


class Wait:
    """One wait for a peer. ``since``: its last progress."""

    __slots__ = ("caller", "moved", "room", "seconds", "since", "what")

    def __init__(
        self, caller: UnaryCaller, what: str, seconds: float, room: Ledger | None, since: float
    ) -> None:
        self.caller = caller
        self.what = what
        self.seconds = seconds
        self.room = room
        self.since = since
        self.moved: int | None = None

    def has_moved(self, moved: int | None, seconds: float) -> bool:
        """Whether bytes have moved on its connection in the seconds since the last progress."""
        if moved is None:
            return False
        if self.moved is None:
            self.moved = moved
        enough = moved - self.moved >= _BYTES_A_SECOND * seconds
        self.moved = moved if enough else self.moved
        return enough

    @property
    def patience(self) -> float:
        """Seconds without progress: few if others want the room and progress can be seen."""
        hurried = self.room is not None and self.room.is_wanted and self.moved is not None
        return _HURRIED_SECONDS if hurried else self.seconds


class Peers:
    """All waits for peers. Somebody has to call ``look`` every second.

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
        self._log = log
        self._moved, self._clock = moved, clock
        self._waits: dict[Wait, None] = {}

    def message(self, messages: Iterator[bytes], caller: UnaryCaller, room: Ledger) -> bytes:
        """The one message of a call, once there is room for it.

        Raises MessageError if the call has no message, the refusal of ``room`` if there is no room,
        and gRPC's error if the call ends.
        """
        place = room.take(caller, 1, caller.cancel)
        wait = self.begin(caller, "its message", room)
        try:
            return next(messages)
        except StopIteration:
            raise MessageError("request: expected one message, found none") from None
        finally:
            self.end(wait)
            place.give_back()

    def messages(self, messages: Iterator[bytes], caller: UnaryCaller) -> Iterator[bytes]:
        """The messages of a stream. The peer has to send each of them in time."""
        while True:
            wait = self.begin(caller, "a message of its stream")
            try:
                message = next(messages, None)
            finally:
                self.end(wait)
            if message is None:
                return
            yield message

    def read_answer(self, caller: UnaryCaller) -> None:
        """From now on the peer has to read the answer to its call."""
        wait = self.begin(caller, "its answer to be read")
        if not caller.add_callback(lambda: self.end(wait)):
            self.end(wait)

    def begin(self, caller: UnaryCaller, what: str, room: Ledger | None = None) -> Wait:
        """From now on the peer has to make progress.

        ``room``: the part that it holds of the room for messages on their way in.
        """
        seconds = self.timeout if room is None else self.first_timeout
        wait = Wait(caller, what, seconds, room, self._clock())
        self._waits[wait] = None
        return wait

    def end(self, wait: Wait) -> None:
        """The wait is over."""
        self._waits.pop(wait, None)

    def look(self) -> None:
        """Cuts peers that have made no progress for too long."""
        limit = self._clock() - min(_LOOK_SECONDS, self.first_timeout)
        long = [wait for wait in tuple(self._waits) if wait.since <= limit]
        if not long:
            return
        moved, now = self._moved(), self._clock()
        for wait in long:
            seconds = now - wait.since
            if wait.has_moved(moved.get(wait.caller.peer), seconds):
                wait.since = now
            elif seconds >= wait.patience:
                self._cut(wait, seconds)

    def _cut(self, wait: Wait, seconds: float) -> None:
        self.end(wait)
        self._log.event(
            "cut", peer=wait.caller.peer, message=f"waited {seconds:.0f} s for {wait.what}"
        )
        wait.caller.cancel()

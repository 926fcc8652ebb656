"""Whether the process at the other end of a connection of frames stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.wire.keepalive import ALIVE_SECONDS, SILENCE_SECONDS
from npucall_server.carriers.frames.incoming import MOST_WAITING

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.carriers.frames.incoming import IncomingFrames
    from npucall_server.carriers.frames.outgoing import Outgoing


class Pulse:
    """Somebody has to call ``look`` every second. ``clock`` is monotonic."""

    def __init__(
        self, incoming: IncomingFrames, outgoing: Outgoing, clock: Callable[[], float]
    ) -> None:
        self._incoming, self._outgoing, self._clock = incoming, outgoing, clock
        self._came = self._sent = 0
        self._since = clock()
        """Since when nothing was sent, or no call is open."""
        self._asked: float | None = None
        """The first time without any answer."""

    def look(self, *, is_busy: bool) -> float:
        """Seconds for which the peer owes a sign of life, once they are too many; else 0.

        Says that this process is alive if it said nothing for long and ``is_busy``. Raises EOFError
        if the peer has gone.
        """
        now, sent, waiting = self._clock(), self._outgoing.count, self._incoming.waiting()
        came = self._incoming.count + waiting
        if not is_busy or came != self._came or waiting == MOST_WAITING:
            self._came, self._asked = came, None
        if not is_busy or sent != self._sent:
            self._sent, self._since = sent, now
        elif now - self._since >= ALIVE_SECONDS and self._outgoing.say_alive():
            self._sent, self._since = self._outgoing.count, now
            self._asked = now if self._asked is None else self._asked
        silence = 0.0 if self._asked is None else now - self._asked
        return silence if silence >= SILENCE_SECONDS else 0.0

"""The calls of one stream: which are open, where each is, and which have an answer to send."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from npucall.exchange import COMING, Event, State, after
from npucall_server.services.streams.ids import Ids

if TYPE_CHECKING:
    from collections.abc import Container

    from npucall_server.arrivals import Computed
    from npucall_server.ledger import Entry
    from npucall_server.services.streams.call import StreamCall

_ANY = frozenset(State)
"""It does not matter where a call is."""


class Calls:
    """Every call from when it is added until it is settled; several threads use it.

    ``window``: calls that may be open. ``place``: is told since when none is.
    """

    def __init__(self, window: int, place: Entry) -> None:
        self._window, self._place = window, place
        place.idle_since = time.monotonic()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self.changed = threading.Condition(self._lock)
        """Who sends waits for this: whoever changes what it looks at notifies."""
        self._ids = Ids()
        self._open: dict[int, StreamCall] = {}
        self.answered: deque[StreamCall] = deque()
        """Those whose answers are to be sent."""
        self.closed = False
        """Whether nothing is sent any more."""

    def __len__(self) -> int:
        return len(self._open)

    # --- Who reads --------------------------------------------------------------------------------

    def wait_for_room(self, call_id: int) -> bool:
        """Uses an id, and waits for the window; False where the stream has ended.

        Raises MessageError where the id was used before.
        """
        self._ids.add(call_id)
        if len(self._open) >= self._window:
            with self._lock:
                self._room.wait_for(lambda: self.closed or len(self._open) < self._window)
        return not self.closed

    def add(self, call: StreamCall) -> None:
        """Opens a call; there is room for it, since one thread alone adds."""
        with self._lock:
            self._open[call.id] = call
            self._place.idle_since = None

    def found(self, call_id: int) -> tuple[StreamCall | None, State]:
        """The open call of an id, and where it is."""
        call = self._open.get(call_id)
        if call is not None:
            return call, call.state
        return None, State.ENDED if call_id in self._ids else State.NEW

    # --- Whoever changes a call -------------------------------------------------------------------

    def advance(self, call: StreamCall, event: Event, since: Container[State] = _ANY) -> bool:
        """Takes a step of the table, unless the call is past it: of several who try, one does.

        ``since``: the only states from which it is wanted.
        """
        with self._lock:
            state = after(call.state, event)
            if state is None or call.state not in since:
                return False
            call.state = state
            return True

    def answer(self, call: StreamCall) -> bool:
        """Its answer is to be sent, to the end; False where nothing is sent any more."""
        with self._lock:
            call.is_decided = True
            if self.closed:
                return False
            self._queue(call)
            return True

    def answer_early(self, call: StreamCall, outputs: Computed) -> None:
        """What is computed of its outputs is to be sent, unless the call is past that."""
        with self._lock:
            early = call.early
            if early is None or self.closed:
                return
            state = after(call.state, Event.OUTPUT_CHUNK if early.is_begun else Event.RESOLVED)
            if state is not None and early.add(outputs):
                call.state = state
                self._queue(call)

    def sent(self, call: StreamCall) -> bool:
        """What was there of its answer has gone; whether that was all of it."""
        if call.early is None:
            return True
        with self._lock:
            call.is_queued = False
            if not call.early.has_more:
                return call.is_decided
            if not self.closed:
                self._queue(call)
            return False

    def unsent(self, call: StreamCall) -> bool:
        """Nothing of its answer is sent any more; whether it has been decided."""
        with self._lock:
            call.is_queued = False
            return call.is_decided

    def _queue(self, call: StreamCall) -> None:
        if not call.is_queued:
            call.is_queued = True
            self.answered.append(call)
            self.changed.notify()

    def settle(self, call: StreamCall) -> bool:
        """It is open no more; False where it was settled before."""
        with self._lock:
            if self._open.pop(call.id, None) is None:
                return False
            if not self._open:
                self._place.idle_since = time.monotonic()
                self.changed.notify()
            self._room.notify()
            return True

    def close(self) -> tuple[list[StreamCall], list[StreamCall]] | None:
        """Nothing is sent any more: all that are open, and those that had an answer to send.

        None a second time.
        """
        with self._lock:
            if self.closed:
                return None
            self.closed = True
            unsent = list(self.answered)
            self.answered.clear()
            self.changed.notify_all()
            self._room.notify_all()
            return list(self._open.values()), unsent

    def next_answer(self) -> StreamCall | None:
        """Whose answer is next, if there is one."""
        with self._lock:
            return self.answered.popleft() if self.answered else None

    def wait_until_closed(self, seconds: float) -> bool:
        """Whether the stream has ended within these seconds."""
        with self._lock:
            return self._room.wait_for(lambda: self.closed, seconds)

    def receiving(self) -> list[StreamCall]:
        """Those whose bytes still come; to be called with the lock of ``changed``."""
        return [call for call in self._open.values() if call.state in COMING]

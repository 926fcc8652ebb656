"""The calls of one stream: which are open, their states, and which have an answer to send."""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Container

from npucall.errors import MessageError
from npucall.exchange import COMING, Event, State, after
from npucall.limits import MAX_ID_GAPS
from npucall_server.accounts.ledger import Entry
from npucall_server.calls.arrivals import Computed
from npucall_server.carriers.multiplex.call import StreamCall
from npucall_server.carriers.peers import Peers

_ANY = frozenset(State)
"""The call may be in any state."""


class UsedIds:
    """The ids that a stream has used. A gap among them takes 16 bytes."""

    def __init__(self, most_gaps: int = MAX_ID_GAPS) -> None:
        self._most_runs = most_gaps
        self._firsts, self._lasts = array("Q"), array("Q")

    def __contains__(self, call_id: int) -> bool:
        run = bisect_right(self._firsts, call_id) - 1
        return run >= 0 and call_id <= self._lasts[run]

    def add(self, call_id: int) -> None:
        """Uses an id. Raises MessageError where it was used before."""
        run = bisect_right(self._firsts, call_id) - 1
        if run >= 0 and call_id <= self._lasts[run]:
            raise MessageError(f"call_id: expected a new one for each call, found {call_id} twice")
        if run >= 0 and call_id == self._lasts[run] + 1:
            self._lasts[run] += 1
        elif len(self._firsts) < self._most_runs:
            self._firsts.insert(run + 1, call_id)
            self._lasts.insert(run + 1, call_id)
        else:
            raise MessageError("call_id: expected consecutive numbers, found too many gaps")


class OpenCalls:
    """Every call from when it is added until it is settled. Several threads use this.

    ``window``: how many calls may be open. ``place``: is told since when no call is open.
    """

    def __init__(self, window: int, place: Entry) -> None:
        self._window, self._place = window, place
        place.idle_since = time.monotonic()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self.changed = threading.Condition(self._lock)
        """The sending thread waits for this. Threads that change what it looks at notify it."""
        self._ids = UsedIds()
        self._open: dict[int, StreamCall] = {}
        self.answered: deque[StreamCall] = deque()
        """The calls whose answers are to be sent."""
        self.closed = False
        """Whether the stream sends nothing more."""

    def __len__(self) -> int:
        return len(self._open)

    # --- The reader -------------------------------------------------------------------------------

    def wait_for_room(self, call_id: int) -> bool:
        """Uses an id, and waits for room in the window; False if the stream has ended.

        Raises MessageError if the id was used before.
        """
        self._ids.add(call_id)
        if len(self._open) >= self._window:
            with self._lock:
                self._room.wait_for(lambda: self.closed or len(self._open) < self._window)
        return not self.closed

    def add(self, call: StreamCall) -> None:
        """Opens a call. There is room for it, since only one thread adds."""
        with self._lock:
            self._open[call.id] = call
            self._place.idle_since = None

    def found(self, call_id: int) -> tuple[StreamCall | None, State]:
        """The open call of an id, and its state."""
        call = self._open.get(call_id)
        if call is not None:
            return call, call.state
        return None, State.ENDED if call_id in self._ids else State.NEW

    # --- Changes of a call ------------------------------------------------------------------------

    def advance(self, call: StreamCall, event: Event, since: Container[State] = _ANY) -> bool:
        """Takes a step of the table, unless the call is past it. If several threads try, one does.

        ``since``: the only states from which the step may be taken.
        """
        with self._lock:
            state = after(call.state, event)
            if state is None or call.state not in since:
                return False
            call.state = state
            return True

    def answer(self, call: StreamCall) -> bool:
        """Queues its whole answer to be sent; False if the stream sends nothing more."""
        with self._lock:
            call.is_decided = True
            if self.closed:
                return False
            self._queue(call)
            return True

    def answer_early(self, call: StreamCall, outputs: Computed) -> None:
        """Queues the computed part of its outputs to be sent, unless the call is past that."""
        with self._lock:
            early = call.early
            if early is None or self.closed:
                return
            state = after(call.state, Event.OUTPUT_CHUNK if early.is_begun else Event.RESOLVED)
            if state is not None and early.add(outputs):
                call.state = state
                self._queue(call)

    def sent(self, call: StreamCall) -> bool:
        """The queued part of its answer was sent. Answers whether that was all of it."""
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
        """Its answer will not be sent. Answers whether it was decided."""
        with self._lock:
            call.is_queued = False
            return call.is_decided

    def _queue(self, call: StreamCall) -> None:
        if not call.is_queued:
            call.is_queued = True
            self.answered.append(call)
            self.changed.notify()

    def settle(self, call: StreamCall) -> bool:
        """The call is no longer open; False if it was settled before."""
        with self._lock:
            if self._open.pop(call.id, None) is None:
                return False
            if not self._open:
                self._place.idle_since = time.monotonic()
                self.changed.notify()
            self._room.notify()
            return True

    def close(self) -> tuple[list[StreamCall], list[StreamCall]] | None:
        """Sends nothing more. Answers the open calls, and the calls with an answer to send.

        The second time: None.
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
        """The call whose answer is next, if there is one."""
        with self._lock:
            return self.answered.popleft() if self.answered else None

    def wait_until_closed(self, seconds: float) -> bool:
        """Whether the stream has ended within these seconds."""
        with self._lock:
            return self._room.wait_for(lambda: self.closed, seconds)

    def receiving(self) -> list[StreamCall]:
        """The calls whose bytes still come. To be called with the lock of ``changed``."""
        return [call for call in self._open.values() if call.state in COMING]

    def late(self, peers: Peers) -> tuple[list[StreamCall], float | None]:
        """Calls whose bytes are late, and seconds until the next is late or the stream ends.

        To be called with the lock of ``changed``.
        """
        if not self._open:
            return [], peers.timeout
        receiving = [call for call in self.receiving() if call.receiving is not None]
        left = {call: call.seconds_left(peers) for call in receiving}
        late = [call for call, seconds in left.items() if seconds <= 0]
        return late, min(left.values(), default=None)

"""The open calls of a connection of frames: which thread runs them, and their answers."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from npucall.errors import MessageError
from npucall_server.accounts.waiting import about_to_wait
from npucall_server.carriers.multiplex.stream import STREAM_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.accounts.ledger import Entry
    from npucall_server.carriers.frames.frame_call import FrameCall
    from npucall_server.carriers.frames.incoming import IncomingFrames
    from npucall_server.carriers.frames.outgoing import Outgoing
    from npucall_server.carriers.threads import Threads


_MOST_PARTS = 256
"""Of answers that are sent together; the kernel takes 1024."""


class FrameAnswers:
    """A quick call runs in the thread that reads, others in ``threads``.

    The reading thread calls all of this. It gathers its answers until somebody calls ``send``.
    ``place``: is told since when no call is open. ``cut`` ends the connection.
    """

    def __init__(  # both halves of the connection, and what its calls use
        self,
        incoming: IncomingFrames,
        outgoing: Outgoing,
        threads: Threads,
        place: Entry,
        cut: Callable[[], None],
    ) -> None:
        self._incoming, self._outgoing, self._threads = incoming, outgoing, threads
        self._place, self._cut = place, cut
        self._window = threading.Semaphore(STREAM_WINDOW)
        self._elsewhere: dict[int, FrameCall] = {}
        """Calls in other threads, until they have an answer: then their number is free."""
        self._unsettled: set[FrameCall] = set()
        """These, until their answers are sent."""
        self._gathered: list[FrameCall] = []
        self._parts = 0
        """Of their answers."""

    def check_new(self, call_id: int) -> None:
        """Raises MessageError if a call cannot have this id."""
        if not call_id or call_id in self._elsewhere:
            raise MessageError(f"call: expected the number of no open call, found {call_id}")

    def is_full(self) -> bool:
        """Whether as many answers have been gathered as are worth it."""
        return len(self._gathered) >= STREAM_WINDOW or self._parts >= _MOST_PARTS

    @property
    def is_busy(self) -> bool:
        """Whether any call is open."""
        return bool(self._unsettled) or self._place.idle_since is None

    def run(self, call: FrameCall) -> None:
        """Runs an admitted call, here or in another thread."""
        execution, incoming = call.execution, self._incoming
        if execution.is_quick:
            call.run()
            self._gather(call)
            return
        if execution.is_short and not incoming.has_more():
            about_to_wait()
            call.run()
            self.add(call)
            return
        try:
            self.send()
        except OSError:
            call.settle()  # nobody else has it yet
            raise
        if not self._window.acquire(blocking=False):
            about_to_wait()
            self._window.acquire()
        self._elsewhere[call.id] = call
        self._unsettled.add(call)
        self._place.idle_since = None  # if one that just ended has said otherwise
        self._threads.start(partial(self._run, call))

    def add(self, call: FrameCall) -> None:
        """It has an answer."""
        call.may_end_by(self._cut)
        self._gather(call)

    def _gather(self, call: FrameCall) -> None:
        self._gathered.append(call)
        self._parts += len(call.answer)

    def send(self) -> None:
        """Sends what has been gathered. Raises OSError if the peer has gone."""
        calls, self._gathered, self._parts = self._gathered, [], 0
        if not self._unsettled:
            self._place.idle_since = time.monotonic()
        if calls:
            try:
                if len(calls) == 1:
                    self._outgoing.send_all(calls[0].answer)
                else:
                    self._outgoing.send_all([part for call in calls for part in call.answer])
            finally:
                for call in calls:
                    call.settle()

    def cancel(self, call_id: int) -> None:
        """The peer no longer waits for a call, if that is open."""
        call = self._elsewhere.get(call_id)
        if call is not None:
            call.caller.cancel()

    def end(self) -> None:
        """No more is read. Calls in other threads settle when they end."""
        with suppress(OSError):
            self.send()
        # The last first: what one gives back is for a call of somebody else.
        for call in reversed(self._elsewhere.copy().values()):
            call.caller.cancel()

    def _run(self, call: FrameCall) -> None:
        """In another thread."""
        call.run()
        call.may_end_by(self._cut)
        del self._elsewhere[call.id]
        try:
            self._outgoing.send_all(call.answer)
        except OSError:
            self._cut()
        finally:
            self._unsettled.discard(call)
            if not self._unsettled:
                self._place.idle_since = time.monotonic()
            call.settle()
            self._window.release()

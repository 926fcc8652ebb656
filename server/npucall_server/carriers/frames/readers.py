"""The threads that read connections of frames: one of them waits for all connections at a time.

It reads whatever has come, and runs what is quick, so threads do not take the interpreter's lock
from each other in every call. Before it waits for anything else, or when what it does takes long,
another thread takes its place.
"""

from __future__ import annotations

import select
import threading
import time
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from npucall.wire.moments import Moment
from npucall_server.accounts.waiting import rely_on_this_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from npucall_server.carriers.frames.connection import FrameConnection

    _Read: TypeAlias = "tuple[FrameConnection, Callable[[], None]]"

_NAME = "npucall-frames"
_MOST_IDLE = 4
"""Threads that wait until they are needed; further ones end."""
_IDLE_SECONDS = 1.0
"""After which they end too."""
_LONG_SECONDS = 0.02
"""Another thread takes the place of one that reads a connection, and runs its calls, for longer."""


class Readers:
    """Reads connections until they have ended. Only for Linux, which has ``epoll``."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._all: dict[int, _Read] = {}
        """By descriptor: connections, and what is called before it is given back."""
        self._busy: set[int] = set()
        """Those that a thread reads whose place another one has taken."""
        self._unseen: set[int] = set()
        """Of these, those that the kernel would tell again and again."""
        self._left: dict[int, None] = {}
        """Those of which more was read than was taken."""
        self._leader: object = None
        """The thread that waits for all connections, once it has read what has come."""
        self._reading: int | None = None
        """What it reads."""
        self._reads = 0
        """How often it began to."""
        self._idle = 0
        self._wake = threading.Semaphore(0)
        self._moment = Moment()
        self._is_watched = False
        self._backlog = threading.Semaphore(0)
        self._has_watcher = False

    def serve(self, connection: FrameConnection) -> None:
        """Reads a connection from now on: this thread does, if no other one is there."""
        place = connection.fileno()
        with self._lock:
            self._all[place] = connection, partial(self._forget, place)
            self._epoll.register(place, select.EPOLLIN)
            if connection.has_left:
                self._left[place] = None
            if self._leader is not None:
                self._be_watched()
                return
            self._leader = threading.current_thread()
        self._work()

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            self._lead(me)
            with self._lock:
                if self._idle >= _MOST_IDLE:
                    return
                self._idle += 1
            if not self._wake.acquire(timeout=_IDLE_SECONDS):
                with self._lock:
                    if not self._wake.acquire(blocking=False):
                        self._idle -= 1
                        return
            with self._lock:
                self._leader = me

    def _lead(self, me: object) -> None:
        """Reads what comes, until another thread has taken its place, or nothing is left."""
        rely_on_this_thread(partial(self._step_aside, me))
        leads = True
        while leads:
            found = self._epoll.poll(0) if self._left else self._next()
            leads = bool(found or self._left or self._has_any())
            if self._left:
                found = list({**dict.fromkeys(self._left, 0), **dict(found)}.items())
            for place, _ in found:
                if not (leads := self._read(place, me)):
                    break
        rely_on_this_thread(None)

    def _next(self) -> list[tuple[int, int]]:
        if ends := self._moment.begin():
            while perf_counter() < ends:
                if found := self._epoll.poll(0):
                    self._moment.end(in_vain=False)
                    return found
            self._moment.end(in_vain=True)
        return self._epoll.poll(_IDLE_SECONDS)

    def _has_any(self) -> bool:
        with self._lock:
            if not self._all:
                self._leader = None
            return bool(self._all)

    def _read(self, place: int, me: object) -> bool:
        """Takes what has come on a connection. False if another thread has the place of this."""
        found = self._begin(place)
        if found is None:
            return True
        connection, forget = found
        connection.step(forget)
        with self._lock:
            if self._all.get(place) is found:
                if connection.has_left:
                    self._left[place] = None
                if self._busy:
                    self._return(place)
            if self._leader is me:
                self._reading = None
                return True
            if self._leader is not None:
                return False
            self._leader = me
        rely_on_this_thread(partial(self._step_aside, me))
        return True

    def _begin(self, place: int) -> _Read | None:
        """The connection, if it is not being read, and has more than was taken of late."""
        with self._lock:
            if place in self._busy:
                self._unseen.add(place)
                self._epoll.unregister(place)
                return None
            if self._left:
                self._left.pop(place, None)
            if (found := self._all.get(place)) is not None:
                self._reading = place
                self._reads += 1
                if len(self._all) > 1 and not self._is_watched:
                    self._be_watched()
            return found

    def _step_aside(self, leader: object) -> None:
        """That thread waits now: another one takes its place, if there is something to read."""
        with self._lock:
            if self._leader is leader:
                self._replace()

    def _replace(self) -> None:
        if self._reading in self._all:
            self._busy.add(self._reading)
        self._leader = self._reading = None
        if len(self._all) > 1:
            with suppress(RuntimeError):  # no more threads: others wait with this one
                self._start()

    def _start(self) -> None:
        """Has another thread lead; called with the lock."""
        if self._idle:
            self._idle -= 1
            self._leader = self._wake
            self._wake.release()
            return
        thread = threading.Thread(target=self._work, name=_NAME, daemon=True)
        thread.start()
        self._leader = thread

    def _return(self, place: int) -> None:
        """Nobody reads a connection now; with the lock."""
        self._busy.discard(place)
        if place in self._unseen:
            self._unseen.discard(place)
            self._epoll.register(place, select.EPOLLIN)

    def _forget(self, place: int) -> None:
        """A connection ends: its descriptor is about to be given back."""
        with self._lock:
            del self._all[place]
            self._left.pop(place, None)
            self._busy.discard(place)
            if place in self._unseen:
                self._unseen.discard(place)
            else:
                self._epoll.unregister(place)

    def _be_watched(self) -> None:
        """While anything is read, a thread looks whether that takes long; with the lock."""
        if self._is_watched or len(self._all) < 2:  # noqa: PLR2004  # nobody else waits
            return
        if not self._has_watcher:
            watcher = threading.Thread(target=self._watch, name=f"{_NAME}-watch", daemon=True)
            with suppress(RuntimeError):
                watcher.start()
                self._has_watcher = True
        self._is_watched = True
        self._backlog.release()

    def _watch(self) -> None:
        while True:
            self._backlog.acquire()
            while self._is_watched:
                before = self._reads
                time.sleep(_LONG_SECONDS)
                with self._lock:
                    if self._reads == before:
                        self._is_watched = False
                        if self._reading is not None:
                            self._replace()

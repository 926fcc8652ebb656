"""Turns on a device: a fixed number, given first come first served, with deadline and cancel."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from npucall.errors import CancelledError, DeadlineError, QueueFullError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from npucall.errors import NpucallError
    from npucall_server.callers import Caller
    from npucall_server.devices.base import Pieces


_RETRY_SECONDS = 1.0

_SECONDS_BETWEEN_PAUSES = 0.01
"""While a call keeps its turn: what others may have to wait for each call that computes so."""


class Turns:
    """A fixed number of turns, given to those who wait in the order in which they came."""

    def __init__(self, count: int) -> None:
        self.refusal: Callable[[], NpucallError] | None = None
        self._count = self._free = count
        self._moved = time.monotonic()
        """When the first turn was taken, or the last one given back."""
        self._lock = threading.Lock()
        self._waiting: deque[Turn] = deque()

    def take(self, turn: Turn) -> bool:
        """Gives a turn now, or puts the taker at the end of the queue and answers False."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal()
            if self._free:
                self._take()
                return True
            self._waiting.append(turn)
            return False

    def is_stuck(self, seconds: float) -> bool:
        """Whether turns are taken, and none has been given back for so long."""
        return self._free < self._count and time.monotonic() - self._moved > seconds

    def moves(self) -> None:
        """Whoever has a turn gets on with it."""
        self._moved = time.monotonic()

    def take_spare(self) -> bool:
        """Gives a turn if one is free, which it is only while nobody waits for it."""
        with self._lock:
            if self.refusal is not None or not self._free:
                return False
            self._take()
            return True

    def give_back(self) -> None:
        """Hands the turn to the next one who waits."""
        with self._lock:
            self._moved = time.monotonic()
            if self._waiting and self.refusal is None:
                self._waiting.popleft().grant()
            else:
                self._free += 1

    def refuse(self, refusal: Callable[[], NpucallError]) -> None:
        """From now on nobody gets a turn: those who wait, or ask, raise this."""
        with self._lock:
            self.refusal = refusal
            for turn in self._waiting:
                turn.wake()

    @property
    def running(self) -> int:
        """Turns that are taken."""
        return self._count - self._free

    @property
    def waiting(self) -> int:
        """Those who wait for one."""
        return len(self._waiting)

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for one."""
        return bool(self._waiting)

    def give_up(self, turn: Turn) -> None:
        """Takes one who waits out of the queue; a turn that came meanwhile goes to the next."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self.give_back()

    def _take(self) -> None:
        if self._free == self._count:
            self._moved = time.monotonic()
        self._free -= 1


class Turn:
    """The turns of one call, one after the other: ``with turn(): ...``.

    ``call_timeout`` bounds its time on the server but for that in which it waited for ``pieces``.
    ``begins`` hears that the first turn has come.
    """

    def __init__(
        self,
        turns: Turns,
        caller: Caller,
        call_timeout: float,
        pieces: Pieces | None = None,
        begins: Callable[[], object] = bool,
    ) -> None:
        self._begun = time.monotonic()
        self._remaining = caller.time_remaining()
        self._call_timeout = call_timeout
        self._pieces = pieces
        self._begins: Callable[[], object] | None = begins
        self._gives_way = False
        self._turns = turns
        self._caller = caller
        self._wake: threading.Event | None = None  # made once it has to wait: most never do
        self._granted = False
        self._told = False
        self._held = False
        self._pauses_at = 0.0
        self.waited_ns = 0

    @property
    def owner(self) -> str:
        """Who the call is for."""
        return self._caller.identity.person

    def __call__(self) -> Self:
        return self

    def __enter__(self) -> None:
        self.check()
        if not self._turns.take_spare():
            self._wake = threading.Event()
            if not self._turns.take(self):
                self._wait(self._wake)
        self._held = True
        if self._begins is not None:
            self._begins()
            self._begins = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._held:  # a pause may have ended the call without one
            self._held = False
            self._turns.give_back()

    def pause(self) -> None:
        """Within a turn: checks, and lets who waits have it for a while, every few ms.

        Raises DeadlineError, CancelledError, and what calls raise since the device is lost.
        """
        now = time.monotonic()
        if now < self._pauses_at:
            return
        self.check()
        self._turns.moves()
        if self._turns.wanted:
            self.__exit__(None, None, None)
            self.__enter__()
        self._pauses_at = time.monotonic() + _SECONDS_BETWEEN_PAUSES

    def spare(self) -> AbstractContextManager[object] | None:
        """One more turn at the same time for the same call, if one is free and nobody waits."""
        return _Spare(self._turns) if self._turns.take_spare() else None

    def grant(self) -> None:
        """Called by ``Turns`` when the turn has come."""
        self._granted = True
        self.wake()

    def give_way(self) -> None:
        """Ends the call for others who ask for its place, unless its first turn has come."""
        self._gives_way = True
        self.wake()

    def wake(self) -> None:
        """Looks again whether it is still worth waiting."""
        if self._wake is not None:
            self._wake.set()

    def _wait(self, woken: threading.Event) -> None:
        start = time.perf_counter_ns()
        if not self._told:
            self._told = True
            self._caller.add_callback(self.wake)
        try:
            while not self._granted:
                self.check()
                woken.wait(self._seconds - (time.monotonic() - self._begun))
                woken.clear()
        except BaseException:  # whatever ends the wait, a turn that nobody takes is lost
            self._turns.give_up(self)
            raise
        finally:
            self.waited_ns += time.perf_counter_ns() - start
        self._granted = False

    def check(self) -> None:
        """Raises DeadlineError or CancelledError if nobody waits for the call any more.

        And what calls raise since the device is lost.
        """
        if self._turns.refusal is not None:
            raise self._turns.refusal()
        if time.monotonic() - self._begun >= self._seconds:
            raise self._late()
        if not self._caller.is_active():
            raise CancelledError("call: cancelled by the caller, or the caller went away")
        if self._gives_way and self._begins is not None:
            raise gave_way()

    @property
    def _seconds(self) -> float:
        """After which the call ends."""
        own = self._call_timeout
        if self._pieces is not None:
            own += self._pieces.waited_ns / 1e9
        return own if self._remaining is None else min(own, self._remaining)

    def _late(self) -> DeadlineError:
        remaining = self._remaining
        if remaining is None or remaining > self._seconds:
            limit = f"{self._call_timeout:g}"
            return DeadlineError(
                f"call: expected less than {limit} s, the server's call_timeout",
                limit=limit,
                setting="call_timeout",
            )
        return DeadlineError(f"call: its deadline ended after {remaining:.3g} s on the server")


def gave_way() -> QueueFullError:
    """What a call raises that was ended for the sake of others."""
    return QueueFullError(
        "call: expected to go on, found that others ask for room and its connection holds more "
        "than half of it; repeat the call later",
        retry_after=_RETRY_SECONDS,
    )


class _Spare:
    """A further turn of a call, taken already."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self._turns.give_back()

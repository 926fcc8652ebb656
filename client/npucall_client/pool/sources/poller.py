"""Sources without a stream: a thread asks for the members again and again, and tells of changes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from inspect import ismethod
from typing import Protocol

from npucall_client.pool.members import Member, Update

_SOONEST_SECONDS = 0.2
"""The shortest time between two looks, even if many members fail at once."""


def heard_by(update: Update) -> Callable[[], Update | None]:
    """A function that returns ``update``, or None if it is a method of an object that is gone.

    So no thread keeps a client alive that its user forgot to close.
    """
    if ismethod(update):
        return weakref.WeakMethod(update)
    return lambda: update


class Lister(Protocol):
    """Knows who the members are now."""

    def listed(self) -> Sequence[Member]:
        """All members. Raises ValueError or OSError if it cannot find them out."""

    def why_not(self) -> str:
        """What is wrong with some of them, or why there are none."""


class Poller:
    """A source that asks a lister every ``pause`` seconds; if that fails, the last list counts.

    ``name``: the name of its thread.
    """

    def __init__(self, lister: Lister, pause: float, name: str) -> None:
        self._lister = lister
        self._pause = pause
        self._name = name
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failure = ""
        self._last: Sequence[Member] | None = None

    def start(self, update: Update) -> None:
        """Looks from here on, in a thread of its own."""
        arguments = (heard_by(update),)
        threading.Thread(target=self._run, args=arguments, name=self._name, daemon=True).start()

    def look(self) -> None:
        """Makes it look at once."""
        self._wake.set()

    def why_empty(self) -> str:
        """Why the last look gave no members, or not all of them."""
        return self._failure or self._lister.why_not()

    def refusal(self) -> None:
        """None: looking again may always help."""

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._wake.set()

    def _run(self, update_of: Callable[[], Update | None]) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            members = self._listed()
            update = update_of()
            if update is None or self._stop.is_set():
                return
            if members is not None and members != self._last:
                self._last = members
                update(members, complete=True)
            del update
            if not self._stop.wait(_SOONEST_SECONDS):
                self._wake.wait(self._pause - _SOONEST_SECONDS)

    def _listed(self) -> Sequence[Member] | None:
        try:
            members = self._lister.listed()
        except (ValueError, OSError) as error:
            self._failure = str(error)
            return None
        self._failure = ""
        return members

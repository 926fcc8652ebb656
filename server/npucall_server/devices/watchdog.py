"""Finds calls that never return. To end a C function that hangs, its process has to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from npucall.errors import NpucallError
from npucall_server.devices.base import BrokenDeviceError

_GRACE_SECONDS = 1.0
"""Added to the time that a launch may take: for the steps before and after it."""


class Watched(Protocol):
    """Something that may call a C function that never returns: a lane, or ``Visitors``."""

    @property
    def busy_since(self) -> float | None:
        """``time.monotonic()`` when the current work began; None if there is none."""

    def give_up(self, error: NpucallError) -> None:
        """Raises this in the threads that wait for it, if that is possible."""


class Visitors:
    """Threads that call C functions but have no lane."""

    def __init__(self) -> None:
        self._since: dict[object, float] = {}

    @contextmanager
    def visit(self) -> Iterator[None]:
        """For a block that calls C functions. All of them must return in time."""
        visit = object()
        self._since[visit] = time.monotonic()
        try:
            yield
        finally:
            del self._since[visit]

    @property
    def busy_since(self) -> float | None:
        """When the oldest block that still runs began."""
        return min(list(self._since.values()), default=None)

    def give_up(self, error: NpucallError) -> None:
        """Does nothing: a thread that hangs in C cannot raise an error."""


class Watchdog:
    """Calls ``lost``, once, when some work has taken longer than ``device_timeout``.

    It watches until it is closed, so that no thread waits for ever if another one hangs later.
    """

    def __init__(
        self,
        lanes: Sequence[Watched],
        device_timeout: float,
        lost: Callable[[NpucallError], None],
    ) -> None:
        self._lanes, self._timeout, self._lost = lanes, device_timeout, lost
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="npucall-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        limit, given_up = self._timeout + _GRACE_SECONDS, list[Watched]()
        error = None
        while not self._closed.wait(min(self._timeout / 4, 1.0)):
            late = [each for each in self._lanes if _busy_seconds(each) > limit]
            if late and error is None:
                error = self._error()
                self._lost(error)
            for lane in late:
                if error is not None and lane not in given_up:
                    given_up.append(lane)
                    lane.give_up(error)

    def _error(self) -> NpucallError:
        return BrokenDeviceError(
            f"a call has run on the device for longer than device_timeout = {self._timeout:g} s; "
            "the server exits to be started again",
            phase="run",
            limit=f"{self._timeout:g}",
            setting="device_timeout",
        )


def _busy_seconds(lane: Watched) -> float:
    began = lane.busy_since
    return 0.0 if began is None else time.monotonic() - began

"""Times on the device's own clock: events between the steps that a stream runs.

A device without such times still runs calls; then the times are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from npucall.errors import NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cleanup import Cleanup


class Events(Protocol):
    """The events of one stream of the device. Each function can raise NpucallError."""

    def create(self) -> int:
        """A new event."""

    def record(self, event: int) -> None:
        """The event gets its time when the stream has done what is queued so far."""

    def milliseconds(self, first: int, second: int) -> float:
        """The time between two events that the stream has passed."""

    def destroy(self, event: int) -> None:
        """Destroys an event that the stream has passed."""


class Stopwatch:
    """A few events of one stream; each call records them again.

    If the device cannot measure time, ``note`` is called once with the reason.
    """

    def __init__(self, clock: Events, marks: int, note: Callable[[str], None]) -> None:
        self._clock, self._note = clock, note
        self._events: list[int] = []
        self._times = True
        with Cleanup() as opening:
            opening.callback(self.close)
            self._create(marks)
            opening.pop_all()

    def mark(self, index: int) -> None:
        """Marks the time when the stream has done what is queued so far."""
        if self._times:
            try:
                self._clock.record(self._events[index])
            except NpucallError as error:
                self._give_up(error)

    def between(self, first: int, second: int) -> int:
        """Nanoseconds between two marks that the stream has passed."""
        if not self._times:
            return 0
        try:
            found = self._clock.milliseconds(self._events[first], self._events[second])
        except NpucallError as error:
            self._give_up(error)
            return 0
        return int(found * 1e6) if found > 0 else 0

    def close(self) -> None:
        """Destroys the events. The stream must have passed them."""
        with Cleanup() as every:
            while self._events:
                every.callback(self._clock.destroy, self._events.pop())

    def _create(self, marks: int) -> None:
        try:
            for _ in range(marks):
                self._events.append(self._clock.create())
        except NpucallError as error:
            self._give_up(error)

    def _give_up(self, error: NpucallError) -> None:
        """Stops timing. Calls do not fail because of that, but a broken device is an error."""
        if isinstance(error, BrokenDeviceError):
            raise error
        self._times = False
        self._note(f"nothing is timed on the device from here on: {error}")

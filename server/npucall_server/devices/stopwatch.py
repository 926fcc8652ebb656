"""Times on the device's own clock: events between the steps that a stream runs.

A device that cannot time runs calls all the same; then the times are 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from npucall.errors import NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cleanup import Cleanup

if TYPE_CHECKING:
    from collections.abc import Callable


class Events(Protocol):
    """Events of one stream, as the device has them; each function raises NpucallError."""

    def create(self) -> int:
        """A new event."""

    def record(self, event: int) -> None:
        """It gets the time when the stream has passed what is queued so far."""

    def milliseconds(self, first: int, second: int) -> float:
        """What lies between two events that the stream has passed."""

    def destroy(self, event: int) -> None:
        """The stream has passed it."""


class Stopwatch:
    """A few events of one stream, recorded anew by each call.

    ``note`` hears, once, why nothing is timed.
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
        """The time when the stream has passed what is queued so far."""
        if self._times:
            try:
                self._clock.record(self._events[index])
            except NpucallError as error:
                self._give_up(error)

    def between(self, first: int, second: int) -> int:
        """Nanoseconds between two marks, once the stream has passed them."""
        if not self._times:
            return 0
        try:
            found = self._clock.milliseconds(self._events[first], self._events[second])
        except NpucallError as error:
            self._give_up(error)
            return 0
        return int(found * 1e6) if found > 0 else 0

    def close(self) -> None:
        """Destroys the events; the stream has passed them."""
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
        """Times nothing any more. That is worth no call, but a broken device ends everything."""
        if isinstance(error, BrokenDeviceError):
            raise error
        self._times = False
        self._note(f"nothing is timed on the device from here on: {error}")

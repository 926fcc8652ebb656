"""Times on the device's own clock: events between the steps that a stream runs [src:events].

A device without such times still runs calls; then the times are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_float, c_void_p

from npucall.errors import NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.functions import ACL_EVENT_TIME_LINE, AscendCL
from npucall_server.devices.cleanup import Cleanup


class Stopwatch:
    """A few events of one stream; each call records them again.

    If the device cannot measure time, ``note`` is called once with the reason.
    """

    def __init__(
        self, acl: AscendCL, stream: c_void_p, marks: int, note: Callable[[str], None]
    ) -> None:
        self._acl, self._stream, self._note = acl, stream, note
        self._events: list[int] = []
        self._waited: set[int] = set()
        """Events whose time is on the host: they were waited for after they were recorded."""
        self._found = c_float()
        self._times = True
        with Cleanup() as opening:
            opening.callback(self.close)
            self._create(marks)
            opening.pop_all()

    def mark(self, index: int) -> None:
        """Marks the time when the stream has done what is queued so far."""
        if self._times:
            event = self._events[index]
            self._waited.discard(event)
            try:
                self._acl.aclrtRecordEvent(event, self._stream)
            except NpucallError as error:
                self._give_up(error)

    def between(self, first: int, second: int) -> int:
        """Nanoseconds between two marks that the stream has passed."""
        if not self._times:
            return 0
        events = self._events[first], self._events[second]
        try:
            for event in events:
                if event not in self._waited:
                    self._acl.aclrtSynchronizeEvent(event)
                    self._waited.add(event)
            self._acl.aclrtEventElapsedTime(byref(self._found), *events)
        except NpucallError as error:
            self._give_up(error)
            return 0
        return max(int(self._found.value * 1e6), 0)

    def close(self) -> None:
        """Destroys the events. The stream must have passed them."""
        with Cleanup() as every:
            while self._events:
                every.callback(self._acl.aclrtDestroyEvent, self._events.pop())

    def _create(self, marks: int) -> None:
        try:
            for _ in range(marks):
                event = c_void_p()
                self._acl.aclrtCreateEventExWithFlag(byref(event), ACL_EVENT_TIME_LINE)
                self._events.append(event.value or 0)
        except NpucallError as error:
            self._give_up(error)

    def _give_up(self, error: NpucallError) -> None:
        """Stops timing. Calls do not fail because of that, but a broken device is an error."""
        if isinstance(error, BrokenDeviceError):
            raise error
        self._times = False
        self._note(f"nothing is timed on the device from here on: {error}")

"""The events of a stream, which have the device's own time [src:events]."""

from __future__ import annotations

from ctypes import byref, c_float, c_void_p

from npucall_server.devices.cann.functions import ACL_EVENT_TIME_LINE, AscendCL


class StreamEvents:
    """What a ``Stopwatch`` needs of a stream."""

    def __init__(self, acl: AscendCL, stream: c_void_p) -> None:
        self._acl, self._stream = acl, stream
        self._found = c_float()
        self._waited: set[int] = set()
        """Events whose time is on the host: they were waited for after they were recorded."""

    def create(self) -> int:
        """A new event."""
        event = c_void_p()
        self._acl.aclrtCreateEventExWithFlag(byref(event), ACL_EVENT_TIME_LINE)
        return event.value or 0

    def record(self, event: int) -> None:
        """The event gets its time when the stream has done what is queued so far."""
        self._waited.discard(event)
        self._acl.aclrtRecordEvent(event, self._stream)

    def milliseconds(self, first: int, second: int) -> float:
        """The time between two events that the stream has passed.

        The host knows the time of an event only after it has waited for that event.
        """
        if first not in self._waited:
            self._wait_for(first)
        if second not in self._waited:
            self._wait_for(second)
        self._acl.aclrtEventElapsedTime(byref(self._found), first, second)
        return self._found.value

    def _wait_for(self, event: int) -> None:
        self._acl.aclrtSynchronizeEvent(event)
        self._waited.add(event)

    def destroy(self, event: int) -> None:
        """Destroys an event that the stream has passed."""
        self._acl.aclrtDestroyEvent(event)

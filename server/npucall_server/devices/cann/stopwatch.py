"""Times on the device's own clock: events between the steps that a stream runs.

A device that cannot time runs calls all the same; then the times are 0.
"""

from __future__ import annotations

from ctypes import byref, c_float, c_void_p
from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_server.devices.cann.cleanup import Cleanup
from npucall_server.devices.cann.functions import ACL_EVENT_TIME_LINE
from npucall_server.devices.cann.statuses import BrokenDeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.devices.cann.functions import AscendCL


class Stopwatch:
    """A few events of one stream, recorded anew by each call.

    ``note`` hears, once, why nothing is timed.
    """

    def __init__(
        self, acl: AscendCL, stream: c_void_p, marks: int, note: Callable[[str], None]
    ) -> None:
        self._acl, self._stream, self._note = acl, stream, note
        self._events: list[int] = []
        with Cleanup() as opening:
            opening.callback(self.close)
            self._times = self._tolerating(self._create, marks)
            opening.pop_all()

    def mark(self, index: int) -> None:
        """The time when the stream has passed what is queued so far."""
        if self._times:
            self._times = self._tolerating(
                self._acl.aclrtRecordEvent, self._events[index], self._stream
            )

    def between(self, first: int, second: int) -> int:
        """Nanoseconds between two marks, once the stream has passed them."""
        if not self._times:
            return 0
        milliseconds = c_float()
        self._times = self._tolerating(
            self._acl.aclrtEventElapsedTime,
            byref(milliseconds),
            self._events[first],
            self._events[second],
        )
        return max(round(milliseconds.value * 1e6), 0)

    def close(self) -> None:
        """Destroys the events; the stream has passed them."""
        with Cleanup() as every:
            while self._events:
                every.callback(self._acl.aclrtDestroyEvent, self._events.pop())

    def _create(self, marks: int) -> None:
        for _ in range(marks):
            event = c_void_p()
            self._acl.aclrtCreateEventExWithFlag(byref(event), ACL_EVENT_TIME_LINE)
            self._events.append(event.value or 0)

    def _tolerating(self, function: Callable[..., None], *arguments: object) -> bool:
        """Whether it worked; timing is worth no call, but a broken device ends everything."""
        try:
            function(*arguments)
        except BrokenDeviceError:
            raise
        except NpucallError as error:
            self._note(f"nothing is timed on the device from here on: {error}")
            return False
        return True

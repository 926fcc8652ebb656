"""Copies between ordinary memory and the device, for calls that do not fit into staging.

Asynchronous copies never use ordinary memory [src:pinned-copies]: if a driver does not notice that
the memory is ordinary, it queues a copy, and copies the bytes that are there later. So the bytes go
through pinned memory in pieces: while the device copies some pieces, the host fills or empties
others. If pinned memory is not allowed, synchronous copies are used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import byref, c_void_p
from typing import NamedTuple

import numpy as np

from npucall.dtypes import AnyArray
from npucall.errors import NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann import functions as c
from npucall_server.devices.cann.device_memory import PinnedBuffer
from npucall_server.devices.cann.functions import AscendCL
from npucall_server.devices.cleanup import Cleanup

COUNT = 4
"""How many pieces of pinned memory there are."""
_ALIGNED = 64


class Part(NamedTuple):
    """Bytes of the host that go to the device, or come from it."""

    address: int
    """On the device."""
    data: AnyArray


class Batch(NamedTuple):
    """The bytes of one copy: parts that follow each other on the device."""

    address: int
    length: int
    parts: Sequence[tuple[int, AnyArray]]
    """Each part with its first byte in the piece."""


class Pinned(NamedTuple):
    """Pinned memory of one piece."""

    address: int
    bytes: AnyArray


def pinned_bytes(limit: int) -> int:
    """Bytes of pinned memory for copies in pieces, within the limit. 0: copies are synchronous."""
    return COUNT * _piece_bytes(limit)


def pinned_pieces(memory: PinnedBuffer, limit: int) -> list[Pinned]:
    """The beginning of a buffer, cut into pieces; none if copies are synchronous."""
    size, address = _piece_bytes(limit), memory.address or 0
    starts = range(0, COUNT * size, size) if size else ()
    return [Pinned(address + start, memory.bytes[start : start + size]) for start in starts]


def _piece_bytes(limit: int) -> int:
    if not limit:
        return 0
    return max(limit // COUNT // _ALIGNED * _ALIGNED, _ALIGNED)


def pieces_of(parts: Iterable[Part], size: int) -> Iterator[Batch]:
    """Cuts large parts, and joins small ones. Parts come in the order of their addresses.

    The gaps between the parts of a piece are copied too; no tensor owns them.
    """
    begin = end = 0
    inside: list[tuple[int, AnyArray]] = []
    for address, data in parts:
        done = 0
        while done < len(data):
            if inside and address + done >= begin + size:
                yield Batch(begin, end - begin, inside)
                inside = []
            if not inside:
                begin = address + done
            offset = address + done - begin
            taken = data[done : done + size - offset]
            inside.append((offset, taken))
            done += len(taken)
            end = begin + offset + len(taken)
    if inside:
        yield Batch(begin, end - begin, inside)


class Copies:
    """Copies for one stream, in the thread of its lane; and the wait for the stream.

    When a call or program begins to copy, the stream has done all work that was queued before.
    ``timeout``: milliseconds for each wait.
    """

    def __init__(self, acl: AscendCL, stream: c_void_p, timeout: int) -> None:
        self.stream = stream
        self._acl, self._timeout = acl, timeout
        self._events: list[c_void_p] = []

    def synchronise(self) -> None:
        """Waits until the stream has done all queued work. Raises the error if some work failed."""
        self._acl.aclrtSynchronizeStreamWithTimeout(self.stream, self._timeout)

    def send(self, parts: Sequence[Part], pinned: Sequence[Pinned]) -> None:
        """Copies to the device: queued, through pinned memory; or synchronously without it."""
        if not pinned:
            self._copy_at_once(parts, c.ACL_MEMCPY_HOST_TO_DEVICE)
            return
        count, events = len(pinned), list[c_void_p | None]()
        for number, piece in enumerate(pieces_of(parts, len(pinned[0].bytes))):
            if number >= count:
                self._wait(events[number - count])
            memory = pinned[number % count]
            for offset, data in piece.parts:
                np.copyto(memory.bytes[offset : offset + len(data)], data)
            self._queue(piece.address, memory.address, piece.length, c.ACL_MEMCPY_HOST_TO_DEVICE)
            events.append(self._event(number % count))

    def fetch(self, parts: Sequence[Part], pinned: Sequence[Pinned]) -> None:
        """Copies from the device. If earlier work failed, raises its error and copies nothing."""
        if not pinned:
            self._copy_at_once(parts, c.ACL_MEMCPY_DEVICE_TO_HOST)
            return
        self.synchronise()
        count, queued = len(pinned), deque[tuple[Batch, Pinned, c_void_p | None]]()
        for number, piece in enumerate(pieces_of(parts, len(pinned[0].bytes))):
            if number >= count:
                self._take(*queued.popleft())
            memory = pinned[number % count]
            self._queue(memory.address, piece.address, piece.length, c.ACL_MEMCPY_DEVICE_TO_HOST)
            queued.append((piece, memory, self._event(number % count)))
        while queued:
            self._take(*queued.popleft())

    def close(self) -> None:
        """Destroys the events."""
        with Cleanup() as every:
            while self._events:
                every.callback(self._acl.aclrtDestroyEvent, self._events.pop())

    def _take(self, piece: Batch, memory: Pinned, event: c_void_p | None) -> None:
        self._wait(event)
        for offset, data in piece.parts:
            np.copyto(data, memory.bytes[offset : offset + len(data)])

    def _copy_at_once(self, parts: Sequence[Part], kind: int) -> None:
        """Waits for the stream first, since synchronous copies do not wait for streams."""
        self.synchronise()
        for address, data in parts:
            host, size = data.ctypes.data, len(data)
            to_device = kind == c.ACL_MEMCPY_HOST_TO_DEVICE
            target, source = (address, host) if to_device else (host, address)
            self._acl.aclrtMemcpy(target, size, source, size, kind)

    def _queue(self, target: int, source: int, length: int, kind: int) -> None:
        self._acl.aclrtMemcpyAsync(target, length, source, length, kind, self.stream)

    def _event(self, number: int) -> c_void_p | None:
        """Records an event after the work queued so far; None if the device has no event left."""
        return self._events[number] if self._tolerating(self._record, number) else None

    def _record(self, number: int) -> None:
        while len(self._events) <= number:
            event = c_void_p()
            flags = c.ACL_EVENT_CAPTURE_STREAM_PROGRESS
            self._acl.aclrtCreateEventExWithFlag(byref(event), flags)
            self._events.append(event)
        self._acl.aclrtRecordEvent(self._events[number], self.stream)

    def _wait(self, event: c_void_p | None) -> None:
        """Waits until the stream has passed an event; without an event, until it has done all."""
        wait = self._acl.aclrtSynchronizeEventWithTimeout
        if event is None or not self._tolerating(wait, event, self._timeout):
            self.synchronise()

    def _tolerating(self, function: Callable[..., None], *arguments: object) -> bool:
        """Whether the call worked: events only save time. Raises if the device is broken."""
        try:
            function(*arguments)
        except BrokenDeviceError:
            raise
        except NpucallError:
            return False
        return True

"""Moves the tensors of one call at a time: from received bytes to device memory, and back.

Calls of up to ``staging_limit`` bytes go through pinned memory as a whole; the device copies it
while the lane plans. Larger calls go through pinned memory in pieces. If the limit is 0, copies are
synchronous.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from npucall import memory
from npucall.dtypes import AnyArray
from npucall.tensors import Buffer
from npucall_server.devices.cann import functions as c
from npucall_server.devices.cann.clearing import Clearing
from npucall_server.devices.cann.copies import Copies, Part, pinned_bytes, pinned_pieces
from npucall_server.devices.cann.device_memory import PinnedBuffer, device_buffer
from npucall_server.devices.cann.functions import AscendCL
from npucall_server.devices.cleanup import Cleanup

_SMALL = 1 << 14
"""Below so many bytes a copy by Python is faster than one by NumPy."""


class Transfer:
    """Staging and device memory of a lane. Copies are queued on its stream."""

    def __init__(
        self, acl: AscendCL, copies: Copies, clearing: Clearing, staging_limit: int
    ) -> None:
        self._acl, self._copies, self._staging_limit = acl, copies, staging_limit
        self._clearing = clearing
        self._staging, self._memory = PinnedBuffer(acl), device_buffer(acl)
        self._staged = False
        """Whether a call is copied as a whole."""

    @property
    def kept(self) -> int:
        """Bytes of device memory that are kept."""
        return self._memory.size

    @property
    def is_empty(self) -> bool:
        """Whether it has no memory at all."""
        return not (self._memory.size or self._staging.size)

    def on(self, copies: Copies, clearing: Clearing) -> None:
        """Uses another lane's stream from now on. The old stream must have done all its work."""
        self._copies, self._clearing = copies, clearing

    def reserve(self, size: int, copied: int) -> None:
        """Reserves ``size`` bytes. The first ``copied`` of them come from the host, or go to it.

        Raises OutOfMemoryError.
        """
        self._memory.reserve(size)
        self._staged = copied <= self._staging_limit
        self._staging.reserve(copied if self._staged else pinned_bytes(self._staging_limit))

    def disown(self) -> None:
        """The owner changes: the calls until now had another owner."""
        self._memory.disown()
        self._staging.disown()

    def distrust(self) -> None:
        """As ``disown``; in addition, queued work may have failed."""
        self._memory.distrust()
        self._staging.distrust()

    def clear(self) -> None:
        """Clears data that other owners may have left: on the stream, and in staging."""
        self._memory.clear(self._clearing.clear)
        self._staging.clear(lambda _, length, __: self._staging.bytes[:length].fill(0))

    def fill(self, address: int, length: int, value: int = 0) -> None:
        """Queues work that fills device memory with a byte; zeros go up to a multiple of 32."""
        if value:
            self._acl.aclrtMemsetAsync(address, length, value, length, self._copies.stream)
        else:
            self._clearing.clear(address, length)

    def spoil(self, size: int) -> None:
        """Fills the memory of a run with the pattern of the debug mode."""
        if size:
            self.fill(self.device(0), size, memory.PATTERN)
        self._staging.bytes.fill(memory.PATTERN)

    def stage(self, parts: Sequence[tuple[int, Buffer]]) -> None:
        """Fills staging with what is copied to the device as a whole."""
        for start, data in parts if self._staged else ():
            size = len(data)
            if size < _SMALL:
                self._staging.bytes.data[start : start + size] = data
            else:  # other threads can compute meanwhile
                np.copyto(self.pinned(start, size), np.frombuffer(data, np.uint8))

    def send(self, parts: Sequence[tuple[int, Buffer]]) -> None:
        """Queues the copies to the device, in the order of ``start``. Then the bytes may change."""
        if not self._staged:
            sources = [Part(self.device(at), np.frombuffer(data, np.uint8)) for at, data in parts]
            self._copies.send(sources, pinned_pieces(self._staging, self._staging_limit))
        elif parts:
            first, (last, data) = parts[0][0], parts[-1]
            length = last + len(data) - first
            self._copy(self.device(first), self.staging(first), length, c.ACL_MEMCPY_HOST_TO_DEVICE)

    def send_to(self, address: int, data: Buffer) -> None:
        """Copies to device memory outside the program's memory, and waits for that."""
        self._copies.send([Part(address, np.frombuffer(data, np.uint8))], ())

    def fetch_from(self, address: int, length: int) -> AnyArray:
        """Copies from device memory outside the program's memory, once the stream is done."""
        data = np.empty(length, np.uint8)
        self._copies.fetch([Part(address, data)], ())
        return data

    def fetch(self, parts: Sequence[tuple[int, AnyArray]]) -> None:
        """Queues the copies from the device, or copies at once."""
        in_order = sorted(parts, key=itemgetter(0))
        if not self._staged:
            targets = [Part(self.device(start), array) for start, array in in_order]
            self._copies.fetch(targets, pinned_pieces(self._staging, self._staging_limit))
        elif parts:
            first, (last, array) = in_order[0][0], in_order[-1]
            length = last + len(array) - first
            self._copy(self.staging(first), self.device(first), length, c.ACL_MEMCPY_DEVICE_TO_HOST)

    def collect(self, parts: Sequence[tuple[int, AnyArray]]) -> None:
        """Fills the arrays when the stream is done: the next call will use the staging memory."""
        for start, array in parts if self._staged else ():
            np.copyto(array, self.pinned(start, len(array)))

    def give_back(self) -> None:
        """Gives the memory back."""
        with Cleanup() as every:
            every.callback(self._memory.give_back)
            every.callback(self._staging.give_back)

    def device(self, start: int) -> int:
        """Address of a byte of device memory."""
        return (self._memory.address or 0) + start

    def staging(self, start: int) -> int:
        """Address of a byte of staging."""
        return (self._staging.address or 0) + start

    def pinned(self, start: int, length: int) -> AnyArray:
        """A part of staging."""
        return self._staging.bytes[start : start + length]

    def copy_on_device(self, target: int, source: int, length: int) -> None:
        """Queues a copy from device memory to device memory."""
        self._copy(target, source, length, c.ACL_MEMCPY_DEVICE_TO_DEVICE)

    def _copy(self, target: int, source: int, length: int, kind: int) -> None:
        self._acl.aclrtMemcpyAsync(target, length, source, length, kind, self._copies.stream)

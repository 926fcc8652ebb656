"""Moves the tensors of one call at a time: from received bytes to device memory, and back.

Calls of up to ``staging_limit`` bytes go through pinned memory as a whole; the device copies it
while the lane plans. Larger calls go through pinned memory in pieces. If the limit is 0, copies are
synchronous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from npucall_server.devices.memory_map import MemoryMap

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

    def reserve(self, memory_map: MemoryMap) -> dict[str, int]:
        """Device addresses of the tensors of a call. Raises OutOfMemoryError."""
        base = self._memory.reserve(memory_map.size) or 0
        self._choose(memory_map.size)
        return {name: base + start for name, start in memory_map.starts.items()}

    def on(self, copies: Copies, clearing: Clearing) -> None:
        """Uses another lane's stream from now on. The old stream must have done all its work."""
        self._copies, self._clearing = copies, clearing

    def reserve_for_program(self, size: int, copied: int) -> None:
        """Reserves ``size`` bytes. The first ``copied`` of them come from the host, or go to it.

        Raises OutOfMemoryError.
        """
        self._memory.reserve(size)
        self._choose(copied)

    def _choose(self, size: int) -> None:
        """Chooses how ``size`` bytes are copied: as a whole, in pieces, or synchronously."""
        self._staged = size <= self._staging_limit
        self._staging.reserve(size if self._staged else pinned_bytes(self._staging_limit))

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

    def stage(self, memory_map: MemoryMap, storages: Mapping[str, Buffer]) -> None:
        """Prepares the copy: queues the clearing, and meanwhile fills staging."""
        if memory.is_poisoned():
            self._spoil(memory_map.size)
        for span in memory_map.cleared:
            self.fill(self.device(span.start), span.length)
        for span in memory_map.sent if self._staged else ():
            source = np.frombuffer(storages[span.name], np.uint8)
            np.copyto(self.pinned(span.start, span.length), source)

    def _stage_bytes(self, start: int, data: Buffer) -> None:
        size = len(data)
        if size < _SMALL:
            self._staging.bytes.data[start : start + size] = data
        else:  # other threads can compute meanwhile
            np.copyto(self.pinned(start, size), np.frombuffer(data, np.uint8))

    def copy_in(self, memory_map: MemoryMap, storages: Mapping[str, Buffer]) -> None:
        """Queues the copy to the device. After it returns, ``storages`` may change."""
        if not self._staged:
            self._send((span.start, storages[span.name]) for span in memory_map.sent)
            return
        first, length = memory_map.copied_in
        if length:
            self.copy_to_device(self.device(first), self.staging(first), length)

    def copy_out(self, memory_map: MemoryMap, outputs: Mapping[str, AnyArray]) -> None:
        """Queues the copy from the device, or fills the outputs at once."""
        if not self._staged:
            self._fetch((span.start, outputs[span.name]) for span in memory_map.outputs)
            return
        first, length = memory_map.copied_out
        if length:
            self.copy_to_host(self.staging(first), self.device(first), length)

    def collect(self, memory_map: MemoryMap, outputs: Mapping[str, AnyArray]) -> None:
        """Fills the outputs when the stream is done: the next call will use the staging memory."""
        for span in memory_map.outputs if self._staged else ():
            np.copyto(outputs[span.name], self.pinned(span.start, span.length))

    def send_parts(self, parts: Sequence[tuple[int, Buffer]], end: int) -> None:
        """Queues the copies of a program to the device; all bytes lie before ``end``."""
        if not self._staged:
            self._send(parts)
        elif parts:
            for start, data in parts:
                self._stage_bytes(start, data)
            self.copy_to_device(self.device(0), self.staging(0), end)

    def send_to(self, address: int, data: Buffer) -> None:
        """Copies to device memory outside the program's memory, and waits for that."""
        self._copies.send([Part(address, np.frombuffer(data, np.uint8))], ())

    def fetch_parts(self, parts: Sequence[tuple[int, AnyArray]], end: int) -> None:
        """Queues a program's copies from the device, or copies at once; all before ``end``."""
        if not self._staged:
            self._fetch(parts)
        elif parts:
            first = min(start for start, _ in parts)
            self.copy_to_host(self.staging(first), self.device(first), end - first)

    def collect_parts(self, parts: Sequence[tuple[int, AnyArray]]) -> None:
        """Fills the arrays when the stream is done."""
        for start, array in parts if self._staged else ():
            np.copyto(array, self.pinned(start, len(array)))

    def give_back(self) -> None:
        """Gives the memory back."""
        with Cleanup() as every:
            every.callback(self._memory.give_back)
            every.callback(self._staging.give_back)

    def _send(self, parts: Iterable[tuple[int, Buffer]]) -> None:
        sources = [Part(self.device(start), np.frombuffer(data, np.uint8)) for start, data in parts]
        self._copies.send(sources, pinned_pieces(self._staging, self._staging_limit))

    def _fetch(self, parts: Iterable[tuple[int, AnyArray]]) -> None:
        in_order = sorted(parts, key=itemgetter(0))
        targets = [Part(self.device(start), array) for start, array in in_order]
        self._copies.fetch(targets, pinned_pieces(self._staging, self._staging_limit))

    def _spoil(self, size: int) -> None:
        if size:
            self.fill(self.device(0), size, memory.PATTERN)
        pinned = size if self._staged else pinned_bytes(self._staging_limit)
        self.pinned(0, pinned).fill(memory.PATTERN)

    def device(self, start: int) -> int:
        """Address of a byte of device memory."""
        return (self._memory.address or 0) + start

    def staging(self, start: int) -> int:
        """Address of a byte of staging."""
        return (self._staging.address or 0) + start

    def pinned(self, start: int, length: int) -> AnyArray:
        """A part of staging."""
        return self._staging.bytes[start : start + length]

    def copy_to_device(self, target: int, source: int, length: int) -> None:
        """Queues a copy from host memory, both by their addresses."""
        self._copy(target, source, length, c.ACL_MEMCPY_HOST_TO_DEVICE)

    def copy_to_host(self, target: int, source: int, length: int) -> None:
        """Queues a copy to host memory."""
        self._copy(target, source, length, c.ACL_MEMCPY_DEVICE_TO_HOST)

    def copy_on_device(self, target: int, source: int, length: int) -> None:
        """Queues a copy from device memory to device memory."""
        self._copy(target, source, length, c.ACL_MEMCPY_DEVICE_TO_DEVICE)

    def _copy(self, target: int, source: int, length: int, kind: int) -> None:
        self._acl.aclrtMemcpyAsync(target, length, source, length, kind, self._copies.stream)

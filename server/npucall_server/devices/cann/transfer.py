"""The tensors of one call at a time: from received bytes to device memory, and back.

Up to ``staging_limit`` bytes they go through pinned memory, which the device copies by itself while
the lane plans. What is larger goes straight from and to ordinary memory; the driver then copies
before it returns.
"""

from __future__ import annotations

from ctypes import c_void_p
from typing import TYPE_CHECKING

import numpy as np

from npucall import buffers
from npucall_server.devices.cann import functions as c
from npucall_server.devices.cann.memory import PinnedBuffer, device_buffer
from npucall_server.devices.cleanup import Cleanup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer
    from npucall_server.devices.cann.clearing import Clearing
    from npucall_server.devices.cann.functions import AscendCL
    from npucall_server.devices.memory_map import MemoryMap


_SMALL = 1 << 14
"""Bytes below which Python copies sooner than NumPy begins."""


class Transfer:
    """Staging and device memory of a lane. Copies are queued on its stream."""

    def __init__(
        self, acl: AscendCL, stream: c_void_p, staging_limit: int, clearing: Clearing
    ) -> None:
        self._acl, self._stream, self._staging_limit = acl, stream, staging_limit
        self._clearing = clearing
        self._staging, self._memory = PinnedBuffer(acl), device_buffer(acl)
        self._staged = False
        self._sources: list[AnyArray] = []

    @property
    def kept(self) -> int:
        """Bytes of device memory that are kept."""
        return self._memory.size

    def reserve(self, memory_map: MemoryMap) -> dict[str, int]:
        """Device addresses of the tensors of a call. Raises OutOfMemoryError."""
        base = self._memory.reserve(memory_map.size) or 0
        self._staged = memory_map.size <= self._staging_limit
        if self._staged:
            self._staging.reserve(memory_map.size)
        return {name: base + start for name, start in memory_map.starts.items()}

    def on(self, stream: c_void_p, clearing: Clearing) -> None:
        """From now on all is queued on this stream; what was queued before has passed."""
        self._stream, self._clearing = stream, clearing

    def reserve_for_program(self, size: int, staged: int) -> bool:
        """Room for so many bytes, of which the first come from the host or go there.

        Whether they go through staging. Raises OutOfMemoryError.
        """
        self._memory.reserve(size)
        self._staged = staged <= self._staging_limit
        if self._staged:
            self._staging.reserve(staged)
        return self._staged

    def disown(self) -> None:
        """The calls until now were another owner's than the next one."""
        self._memory.disown()
        self._staging.disown()

    def clear(self) -> None:
        """Clears what others may have left, where there is any: on the stream, and in staging."""
        self._memory.clear(self._clearing.clear)
        self._staging.clear(lambda _, length, __: self._staging.bytes[:length].fill(0))

    def fill(self, address: int, length: int, value: int = 0) -> None:
        """Queues that device memory is filled with a byte; with zeros up to a multiple of 32."""
        if value:
            self._acl.aclrtMemsetAsync(address, length, value, length, self._stream)
        else:
            self._clearing.clear(address, length)

    def stage(self, memory_map: MemoryMap, storages: Mapping[str, Buffer]) -> None:
        """What comes before the copy: queues what is cleared, and fills staging meanwhile."""
        if buffers.is_poisoned():
            self._spoil(memory_map.size)
        for span in memory_map.cleared:
            self.fill(self.device(span.start), span.length)
        for span in memory_map.sent if self._staged else ():
            source = np.frombuffer(storages[span.name], np.uint8)
            np.copyto(self.pinned(span.start, span.length), source)

    def stage_bytes(self, start: int, data: Buffer) -> None:
        """Fills a part of staging."""
        size = len(data)
        if size < _SMALL:
            self._staging.bytes.data[start : start + size] = data
        else:  # others compute meanwhile
            np.copyto(self.pinned(start, size), np.frombuffer(data, np.uint8))

    def copy_in(self, memory_map: MemoryMap, storages: Mapping[str, Buffer]) -> None:
        """Queues what goes to the device. ``storages`` must live until the stream has passed."""
        if not self._staged:
            for span in memory_map.sent:
                source = np.frombuffer(storages[span.name], np.uint8)
                self._sources.append(source)
                self.copy_to_device(self.device(span.start), source.ctypes.data, span.length)
            return
        first, length = memory_map.copied_in
        if length:
            self.copy_to_device(self.device(first), self.staging(first), length)

    def copy_out(self, memory_map: MemoryMap, outputs: Mapping[str, AnyArray]) -> None:
        """Queues what comes from the device."""
        if not self._staged:
            for span in memory_map.outputs:
                self.copy_to_host(
                    outputs[span.name].ctypes.data, self.device(span.start), span.length
                )
            return
        first, length = memory_map.copied_out
        if length:
            self.copy_to_host(self.staging(first), self.device(first), length)

    def settle(self) -> None:
        """The stream has passed: what was copied need not live for it any more."""
        self._sources.clear()

    def collect(self, memory_map: MemoryMap, outputs: Mapping[str, AnyArray]) -> None:
        """Fills the outputs, once the stream has passed: staging belongs to the next call."""
        for span in memory_map.outputs if self._staged else ():
            np.copyto(outputs[span.name], self.pinned(span.start, span.length))

    def release(self) -> None:
        """Gives the memory back."""
        self._sources.clear()
        with Cleanup() as every:
            every.callback(self._memory.release)
            every.callback(self._staging.release)

    def _spoil(self, size: int) -> None:
        if size:
            self.fill(self.device(0), size, buffers.PATTERN)
        if self._staged:
            self.pinned(0, size).fill(buffers.PATTERN)

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
        self._acl.aclrtMemcpyAsync(target, length, source, length, kind, self._stream)

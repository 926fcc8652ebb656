"""The tensors of one call at a time: from received bytes to device memory, and back.

Up to ``staging_limit`` bytes they go through pinned memory, which the device copies by itself while
the lane plans. What is larger goes straight from and to ordinary memory; the driver then copies
before it returns.
"""

from __future__ import annotations

from ctypes import c_void_p
from typing import TYPE_CHECKING

import numpy as np

from npucall_server.devices.cann import functions as c
from npucall_server.devices.cann.cleanup import Cleanup
from npucall_server.devices.cann.memory import PinnedBuffer, device_buffer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer
    from npucall_server.devices.cann.functions import AscendCL
    from npucall_server.devices.cann.layout import Layout


class Transfer:
    """Staging and device memory of a lane. Copies are queued on its stream."""

    def __init__(self, acl: AscendCL, stream: c_void_p, staging_limit: int) -> None:
        self._acl, self._stream, self._staging_limit = acl, stream, staging_limit
        self._staging, self._memory = PinnedBuffer(acl), device_buffer(acl)
        self._staged = False
        self._sources: list[AnyArray] = []

    @property
    def kept(self) -> int:
        """Bytes of device memory that are kept."""
        return self._memory.size

    def reserve(self, layout: Layout) -> dict[str, int]:
        """Device addresses of the tensors of a call. Raises OutOfMemoryError."""
        base = self._memory.reserve(layout.size) or 0
        self._staged = layout.size <= self._staging_limit
        if self._staged:
            self._staging.reserve(layout.size)
        return {name: base + start for name, start in layout.starts.items()}

    def stage(self, layout: Layout, storages: Mapping[str, Buffer]) -> None:
        """What comes before the copy: queues what is cleared, and fills staging meanwhile."""
        for piece in layout.cleared:
            address = self._device(piece.start)
            self._acl.aclrtMemsetAsync(address, piece.length, 0, piece.length, self._stream)
        for piece in layout.sent if self._staged else ():
            source = np.frombuffer(storages[piece.name], np.uint8)
            np.copyto(self._pinned(piece.start, piece.length), source)

    def copy_in(self, layout: Layout, storages: Mapping[str, Buffer]) -> None:
        """Queues what goes to the device. ``storages`` must live until the stream has passed."""
        if not self._staged:
            for piece in layout.sent:
                source = np.frombuffer(storages[piece.name], np.uint8)
                self._sources.append(source)
                self._copy_to_device(piece.start, source.ctypes.data, piece.length)
            return
        first, length = layout.copied_in
        if length:
            self._copy_to_device(first, self._staging_address(first), length)

    def copy_out(self, layout: Layout, outputs: Mapping[str, AnyArray]) -> None:
        """Queues what comes from the device."""
        if not self._staged:
            for piece in layout.outputs:
                self._copy_to_host(outputs[piece.name].ctypes.data, piece.start, piece.length)
            return
        first, length = layout.copied_out
        if length:
            self._copy_to_host(self._staging_address(first), first, length)

    def settle(self) -> None:
        """The stream has passed: what was copied need not live for it any more."""
        self._sources.clear()

    def collect(self, layout: Layout, outputs: Mapping[str, AnyArray]) -> None:
        """Fills the outputs, once the stream has passed: staging belongs to the next call."""
        for piece in layout.outputs if self._staged else ():
            np.copyto(outputs[piece.name], self._pinned(piece.start, piece.length))

    def release(self) -> None:
        """Gives the memory back."""
        self._sources.clear()
        with Cleanup() as every:
            every.callback(self._memory.release)
            every.callback(self._staging.release)

    def _device(self, start: int) -> int:
        return (self._memory.address or 0) + start

    def _staging_address(self, start: int) -> int:
        return (self._staging.address or 0) + start

    def _pinned(self, start: int, length: int) -> AnyArray:
        return self._staging.bytes[start : start + length]

    def _copy_to_device(self, start: int, source: int, length: int) -> None:
        self._acl.aclrtMemcpyAsync(
            self._device(start), length, source, length, c.ACL_MEMCPY_HOST_TO_DEVICE, self._stream
        )

    def _copy_to_host(self, target: int, start: int, length: int) -> None:
        self._acl.aclrtMemcpyAsync(
            target, length, self._device(start), length, c.ACL_MEMCPY_DEVICE_TO_HOST, self._stream
        )

"""Memory that a lane keeps: device memory and pinned host memory, in buffers that grow."""

from __future__ import annotations

import ctypes
from ctypes import c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from npucall_server.devices.cann.functions import ACL_MEM_MALLOC_HUGE_FIRST

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.dtypes import AnyArray
    from npucall_server.devices.cann.functions import AscendCL

PIECE = 512
"""Pieces of a buffer start and end at multiples of this many bytes."""
_OVERREACH = 32
"""Kernels may touch as many bytes behind a tensor, once its length is rounded up to as many."""


@lru_cache(1024)
def piece_bytes(length: int) -> int:
    """Bytes that a tensor of this length takes in a buffer."""
    return _round_up(_round_up(length, _OVERREACH) + _OVERREACH, PIECE)


class GrowingBuffer:
    """One allocation that is replaced by a larger one when it is too small.

    Nothing may use it any more when ``reserve`` or ``release`` is called: freeing does not wait for
    streams.
    """

    def __init__(
        self,
        allocate: Callable[[c_void_p, int], None],
        free: Callable[[int], None],
        granularity: int,
    ) -> None:
        self._allocate, self._free = allocate, free
        self._granularity = granularity
        self.address: int | None = None
        self.size = 0
        self._touched = self._foreign = 0
        self._replaced: list[int] = []

    def disown(self) -> None:
        """What has been written until now belongs to others than what comes next."""
        self._foreign = max(self._foreign, self._touched)
        self._touched = 0

    def clear(self, fill: Callable[[int, int], None]) -> None:
        """Has an address and as many bytes filled that may hold what belongs to others, if any.

        New memory does: whoever had it before in this process has freed it as it was.
        """
        if self._foreign and self.address is not None:
            fill(self.address, self._foreign)
            self._foreign = 0

    def reserve(self, size: int) -> int | None:
        """Address of at least that many bytes; None for none. Raises OutOfMemoryError."""
        if size > self.size:
            self.release()
        return self.reserve_beside(size)

    def reserve_beside(self, size: int) -> int | None:
        """Likewise while work may still use what it had until now, which stays till ``settle``."""
        if size > self.size:
            if self.address is not None:
                self._replaced.append(self.address)
                self.address, self.size = None, 0
            rounded = _round_up(size, self._granularity)
            pointer = c_void_p()
            self._allocate(pointer, rounded)
            self.address, self.size, self._foreign = pointer.value, rounded, rounded
        self._touched = max(self._touched, size)
        return self.address if size else None

    def settle(self) -> None:
        """Nothing uses any more what has been replaced."""
        while self._replaced:
            self._free(self._replaced.pop())

    def release(self) -> None:
        """Gives the memory back."""
        self.settle()
        if self.address is not None:
            address, self.address, self.size = self.address, None, 0
            self._touched = self._foreign = 0
            self._free(address)


_HUGE_PAGE = 2 * 1024 * 1024
_PINNED_STEP = 64 * 1024


def device_buffer(acl: AscendCL) -> GrowingBuffer:
    """A buffer in device memory, which the host cannot read, in steps of a huge page."""

    def allocate(pointer: c_void_p, size: int) -> None:
        acl.aclrtMalloc(ctypes.byref(pointer), size, ACL_MEM_MALLOC_HUGE_FIRST)

    return GrowingBuffer(allocate, acl.aclrtFree, _HUGE_PAGE)


class PinnedBuffer(GrowingBuffer):
    """A buffer in host memory that the device can copy from and to by itself."""

    def __init__(self, acl: AscendCL) -> None:
        self.bytes: AnyArray = _NOTHING
        """All of it as an array, until it grows or is released."""

        def allocate(pointer: c_void_p, size: int) -> None:
            acl.aclrtMallocHost(ctypes.byref(pointer), size)
            memory = (ctypes.c_ubyte * size).from_address(pointer.value or 0)
            self.bytes = np.ctypeslib.as_array(memory)

        def free(address: int) -> None:
            self.bytes = _NOTHING  # before its memory goes
            acl.aclrtFreeHost(address)

        super().__init__(allocate, free, _PINNED_STEP)


_NOTHING: AnyArray = np.empty(0, np.uint8)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step

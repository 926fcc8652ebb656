"""The memory that a lane keeps: device memory and pinned host memory, in buffers that grow."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_void_p
from functools import lru_cache

import numpy as np

from npucall.dtypes import AnyArray
from npucall_server.devices.cann.functions import ACL_MEM_MALLOC_HUGE_FIRST, AscendCL

PIECE = 512
"""Pieces of a buffer start and end at multiples of this many bytes."""
ALIGNED = 32
"""Kernels read and write 32 bytes at a time, at multiples of 32. They may touch 32 more bytes after
the last ones."""


@lru_cache(1024)
def piece_bytes(length: int) -> int:
    """Bytes that a tensor of this length takes in a buffer."""
    return round_up(round_up(length, ALIGNED) + ALIGNED, PIECE)


_NO_BYTES = range(0)


class GrowingBuffer:
    """An allocation that is replaced by a larger one when it is too small.

    When ``reserve`` or ``give_back`` is called, no work may use it any more: freeing does not wait
    for streams.
    """

    def __init__(
        self,
        allocate: Callable[[c_void_p, int], None],
        free: Callable[[int], None],
        granularity: int,
        added: int = 0,
    ) -> None:
        """``granularity``: of the size of an allocation with the bytes that the runtime adds."""
        self._allocate, self._free = allocate, free
        self._granularity, self._added = granularity, added
        self.address: int | None = None
        self.size = 0
        self._touched = 0
        self._foreign = _NO_BYTES
        """The part that may hold data of other owners."""
        self._replaced: list[int] = []

    def disown(self) -> None:
        """The owner changes: everything written so far belongs to another owner."""
        self._foreign = range(max(self._foreign.stop, self._touched))
        self._touched = 0

    def distrust(self) -> None:
        """As ``disown``; in addition, work that was to clear memory may have failed."""
        self._foreign, self._touched = range(self.size), 0

    def clear(self, fill: Callable[[int, int, int], None], size: int | None = None) -> None:
        """Calls ``fill`` for the part that may hold data of other owners, if there is any.

        Looks only at the first ``size`` bytes if that is given. New memory may hold such data,
        since memory is freed without being cleared. ``fill`` gets an address, how many bytes it
        has to fill, and how many it may fill.
        """
        foreign = self._foreign
        if not foreign:
            return
        end = foreign.stop if size is None else min(round_up(size, ALIGNED), foreign.stop)
        if foreign.start < end and self.address is not None:
            room = self.size - foreign.start
            fill(self.address + foreign.start, end - foreign.start, room)
            self._foreign = range(end, foreign.stop) or _NO_BYTES

    def reserve(self, size: int) -> int | None:
        """Address of at least ``size`` bytes; None if ``size`` is 0. Raises OutOfMemoryError."""
        if size > self.size:
            self.give_back()
        return self.reserve_beside(size)

    def reserve_beside(self, size: int) -> int | None:
        """As ``reserve``, while work may still use the old memory: it stays until ``settle``."""
        if size > self.size:
            if self.address is not None:
                self._replaced.append(self.address)
                self.address, self.size = None, 0
            rounded = round_up(size + self._added, self._granularity) - self._added
            pointer = c_void_p()
            self._allocate(pointer, rounded)
            self.address, self.size, self._foreign = pointer.value, rounded, range(rounded)
        self._touched = max(self._touched, size)
        return self.address if size else None

    def settle(self) -> None:
        """Frees replaced memory; no work may use it any more."""
        while self._replaced:
            self._free(self._replaced.pop())

    def give_back(self) -> None:
        """Gives the memory back."""
        self.settle()
        if self.address is not None:
            address, self.address, self.size = self.address, None, 0
            self._touched, self._foreign = 0, _NO_BYTES
            self._free(address)


_HUGE_PAGE = 2 * 1024 * 1024
_ADDED = ALIGNED
"""Bytes that aclrtMalloc adds to an allocation, so that kernels may touch them."""
_PINNED_STEP = 64 * 1024


def device_buffer(acl: AscendCL) -> GrowingBuffer:
    """A buffer in device memory, which the host cannot read. It consists of whole huge pages."""

    def allocate(pointer: c_void_p, size: int) -> None:
        acl.aclrtMalloc(ctypes.byref(pointer), size, ACL_MEM_MALLOC_HUGE_FIRST)

    return GrowingBuffer(allocate, acl.aclrtFree, _HUGE_PAGE, _ADDED)


class PinnedBuffer(GrowingBuffer):
    """A buffer in host memory that the device itself can copy from and to."""

    def __init__(self, acl: AscendCL) -> None:
        self.bytes: AnyArray = _NOTHING
        """The whole buffer as an array. Valid until the buffer grows or is released."""

        def allocate(pointer: c_void_p, size: int) -> None:
            acl.aclrtMallocHost(ctypes.byref(pointer), size)
            memory = (ctypes.c_ubyte * size).from_address(pointer.value or 0)
            self.bytes = np.ctypeslib.as_array(memory)

        def free(address: int) -> None:
            self.bytes = _NOTHING  # before its memory is freed
            acl.aclrtFreeHost(address)

        super().__init__(allocate, free, _PINNED_STEP)


_NOTHING: AnyArray = np.empty(0, np.uint8)


def round_up(size: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-size // step) * step

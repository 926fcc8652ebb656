"""The memory of handles on the device, and what is known about the values in it.

Order: work on a stream reads or writes a handle only during a run, and every run ends with a
synchronise of its stream (``Lane``). The writer says that a handle is filled only after this
synchronise. Readers wait for that, so they always come later, on any stream, and no events between
streams are needed. For the same reason the copies here are synchronous.

Memory is freed when no run uses it any more. Runs hold the memory that they use (``in_use``). If a
handle is given back during runs, its memory is freed when the last of them ends. If a run breaks
the device, that is known before the run ends. From then on no memory is freed, since the stream of
that run may still write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from npucall import memory
from npucall.declare.prepare import Prepared
from npucall.dtypes import DType
from npucall.errors import NpucallError
from npucall.tensors import Buffer
from npucall_server.devices.base import BrokenDeviceError, ResidentPart, Source, Target, is_resident
from npucall_server.devices.cann import functions as c
from npucall_server.devices.cann.device_memory import ALIGNED, round_up
from npucall_server.devices.cann.runtime import DeviceContext
from npucall_server.devices.lane_pool import with_room
from npucall_server.devices.watchdog import Visitors


class HandleMemory:
    """Allocates and copies memory for handles, in the calling thread.

    Calls ``lost`` when the device is found to be broken. If memory runs out, calls ``make_room``
    and tries once more. ``visitors`` watches each call of a C function.
    """

    def __init__(
        self,
        device: DeviceContext,
        visitors: Visitors,
        lost: Callable[[NpucallError], None],
        make_room: Callable[[], None],
    ) -> None:
        self._device, self._acl, self._lost = device, device.libraries.acl, lost
        self._visitors, self._make_room = visitors, make_room
        self.broken = False
        """The device will not work again. Then no memory is freed: work may still use it."""

    def allocate(self, nbytes: int, dtype: DType | None = None) -> DeviceResident:
        """Allocates memory. Its content is undefined. Raises OutOfMemoryError."""
        pointer = c_void_p()
        if nbytes:
            size = handle_bytes(nbytes)
            self._do(self._acl.aclrtMalloc, byref(pointer), size, c.ACL_MEM_MALLOC_HUGE_FIRST)
        return DeviceResident(self, pointer.value or 0, nbytes, Range(dtype, nbytes))

    def to_device(self, address: int, data: Buffer) -> None:
        """Copies to the device, and waits for that."""
        source, size = np.frombuffer(data, np.uint8), len(data)
        kind = c.ACL_MEMCPY_HOST_TO_DEVICE
        self._do(self._acl.aclrtMemcpy, address, size, source.ctypes.data, size, kind)

    def to_host(self, address: int, size: int) -> Buffer:
        """Copies from the device into new memory, and waits for that."""
        target = memory.fresh_array((size,), np.uint8)
        kind = c.ACL_MEMCPY_DEVICE_TO_HOST
        self._do(self._acl.aclrtMemcpy, target.ctypes.data, size, address, size, kind)
        return target.data

    def free(self, address: int) -> None:
        """Frees memory that is not in use. Raises no error: the caller could not handle it."""
        if not self.broken:
            try:
                self._once(self._acl.aclrtFree, address)
            except NpucallError:
                return

    def _do(self, function: Callable[..., None], *arguments: object) -> None:
        with_room(lambda: self._once(function, *arguments), self._make_room)

    def _once(self, function: Callable[..., None], *arguments: object) -> None:
        """Calls a C function in a thread that may never have used the device before."""
        try:
            with self._visitors.visit():
                self._device.bind()
                function(*arguments)
        except BrokenDeviceError as error:
            if not self.broken:
                self._lost(error)
            raise


class Range:
    """The smallest and the largest integer, if they are written in order from the first on."""

    def __init__(self, dtype: DType | None, nbytes: int) -> None:
        is_integer = dtype is not None and dtype.numpy.kind in "iu"
        self.dtype = dtype if is_integer else None
        self._nbytes, self._next, self._rest = nbytes, 0, b""
        self._found: tuple[int, int] | None = None

    @property
    def found(self) -> tuple[int, int] | None:
        """Both numbers when all integers have been written; None if they are not known."""
        return self._found if self.dtype is not None and self._next == self._nbytes else None

    def write(self, offset: int, data: Buffer) -> None:
        """Looks at integers that are written."""
        if self.dtype is None:
            return
        if offset != self._next:
            self.dtype = None
            return
        self._next += len(data)
        size = self.dtype.numpy.itemsize
        if self._rest:
            data = self._rest + bytes(data)
        whole = len(data) - len(data) % size
        view = memoryview(data)
        self._rest = bytes(view[whole:])
        if whole:
            self._add(np.frombuffer(view[:whole], self.dtype.numpy))

    def _add(self, values: Any) -> None:
        low, high = int(values.min()), int(values.max())
        before = self._found or (low, high)
        self._found = min(low, before[0]), max(high, before[1])


class DeviceResident:
    """Device memory of one handle."""

    def __init__(self, memory: HandleMemory, address: int, nbytes: int, written: Range) -> None:
        self._memory, self.address, self._nbytes = memory, address, nbytes
        self._written = written
        self._known: dict[tuple[DType, int, int], tuple[int, int]] = {}
        self._passed: WeakKeyDictionary[Prepared, set[tuple[str, int]]] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._users = 0
        self._given_back = False

    @property
    def nbytes(self) -> int:
        """How many."""
        return self._nbytes

    def write(self, offset: int, data: Buffer) -> None:
        """Copies bytes into it, before any call reads it. Raises errors of the device."""
        self._check(offset, len(data))
        if len(data):
            with in_use((self,)):
                self._memory.to_device(self.address + offset, data)
            self._written.write(offset, data)

    def read(self, offset: int, length: int) -> Buffer:
        """A copy of a part. Raises errors of the device."""
        self._check(offset, length)
        with in_use((self,)):
            return self._memory.to_host(self.address + offset, length) if length else b""

    def free(self) -> None:
        """Gives the memory back, at once or when the last run that uses it has ended."""
        with self._lock:
            self._given_back = True
            address = self._taken_back()
        if address:
            self._memory.free(address)

    def begin_use(self) -> None:
        """A run uses the memory from now on, until ``end_use``."""
        with self._lock:
            if self._given_back:
                raise ValueError("the memory of the handle was given back")
            self._users += 1

    def end_use(self) -> None:
        """The work that the run queued has ended."""
        with self._lock:
            self._users -= 1
            address = self._taken_back()
        if address:
            self._memory.free(address)

    def range_of(self, dtype: DType, offset: int, length: int) -> tuple[int, int] | None:
        """The smallest and largest integer of a part, or wider limits; None if not known."""
        if self._written.dtype == dtype and self._written.found is not None:
            return self._written.found
        return self._known.get((dtype, offset, length))

    def learn(self, dtype: DType, offset: int, data: Buffer) -> None:
        """Remembers the range of integers that have been read back."""
        if dtype.numpy.kind in "iu" and len(data) and len(data) % dtype.numpy.itemsize == 0:
            values = np.frombuffer(data, dtype.numpy)
            if len(self._known) < _KNOWN:
                self._known[dtype, offset, len(data)] = int(values.min()), int(values.max())

    def has_passed(self, call: Prepared, name: str, offset: int) -> bool:
        """Whether the values from ``offset`` on have passed this call's check."""
        return (name, offset) in self._passed.get(call, ())

    def passes(self, call: Prepared, name: str, offset: int) -> None:
        """Remembers that they have passed: the handle does not change any more."""
        self._passed.setdefault(call, set()).add((name, offset))

    def _taken_back(self) -> int:
        """The address, if it can be freed now; answers it only once, else 0."""
        if not self._given_back or self._users:
            return 0
        address, self.address = self.address, 0
        return address

    def _check(self, offset: int, length: int) -> None:
        if not 0 <= offset <= offset + length <= self._nbytes:
            raise ValueError(f"{offset} + {length} of {self._nbytes} bytes")


_KNOWN = 64
"""How many parts of a handle have their range remembered."""


def handle_bytes(nbytes: int) -> int:
    """Bytes to allocate for a handle. The runtime adds bytes that kernels may touch after it."""
    return round_up(nbytes, ALIGNED)


def address_of(part: ResidentPart) -> int:
    """Where a part of a handle lies on the device."""
    memory: Any = part.memory
    address: int = memory.address + part.offset
    return address


def is_aligned(part: ResidentPart) -> bool:
    """Whether a kernel can read it where it lies.

    The bytes that kernels touch after it are in the same allocation, which is larger.
    """
    return address_of(part) % ALIGNED == 0


def residents(storages: Iterable[Source | object], targets: Iterable[Target]) -> list[Any]:
    """The memory of handles that a call reads or writes."""
    read = [source.memory for source in storages if type(source) is ResidentPart]
    return read + [target for target in targets if is_resident(target)]


@contextmanager
def in_use(used: Iterable[DeviceResident]) -> Iterator[None]:
    """Frees none of this memory during the block. If the block breaks the device: never."""
    held: list[DeviceResident] = []
    try:
        for memory in used:
            memory.begin_use()
            held.append(memory)
        yield
    finally:
        for memory in held:
            memory.end_use()

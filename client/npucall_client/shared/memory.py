"""``client.shared()``: memory whose arrays a server on the same host reads and writes itself."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from npucall_client.calls import arrays
from npucall_client.shared import places, side_socket

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import DTypeLike

    from npucall.dtypes import AnyArray
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.shared.side_socket import Region

_ALIGNMENT = 64
"""Arrays begin at a multiple of this: a line of the cache, as the contract recommends."""


class SharedMemory:
    """Memory that client and server share. A context manager; made by ``client.shared``.

    Its arrays are ordinary NumPy arrays. If a call takes them, or their slices, views or torch
    tensors, their data does not travel: the server reads it where it lies. If you give such arrays
    for outputs (``options(outputs=...)``), the server writes there. You may use the arrays after
    the memory is closed: from then on they travel like all others.

    If a call ends without its answer (timeout, cancel, a lost connection), the server may still
    write to its outputs for a short time: do not use their memory, or close this and open another.
    """

    def __init__(
        self, memory: AnyArray, region: Region | None, end: Callable[[Region], object]
    ) -> None:
        self._memory = memory
        self._region = region
        self._end = end
        self._lock = threading.Lock()
        self._used = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        unclosed = f"not closed: {self!r}" if self.shared else ""
        self.close()
        if unclosed:
            warnings.warn(unclosed, ResourceWarning, source=self, stacklevel=1)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.left} left, shared={self.shared}"
        return f"<SharedMemory of {self.nbytes} bytes, {state}>"

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self._memory.nbytes

    @property
    def descriptor(self) -> int:
        """The descriptor of its file, for another process, while ``shared``; else -1."""
        return self._region.descriptor if self._region is not None and self.shared else -1

    @property
    def left(self) -> int:
        """Bytes that the next array may have."""
        return max(0, self.nbytes - self._next())

    @property
    def shared(self) -> bool:
        """Whether a server sees it: until it is closed, or the server goes; never for ``local:``.

        After that, its arrays keep their values, and travel.
        """
        return self._region is not None and self._region.is_open

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike) -> AnyArray:
        """A new array with any values. Raises MemoryError if too little is left."""
        extents = tuple(map(index, shape)) if isinstance(shape, Iterable) else (index(shape),)
        kind = np.dtype(dtype)
        size = prod(extents) * kind.itemsize
        if min(extents, default=0) < 0:
            raise ValueError(f"shape: expected extents of 0 or more, found {extents}")
        return self._take(size).view(kind).reshape(extents)

    def zeros(self, shape: int | Sequence[int], dtype: DTypeLike) -> AnyArray:
        """A new array of zeros. Raises MemoryError if too little is left."""
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def array(self, existing: Any) -> AnyArray:
        """A new array with the elements of an array, or of a CPU tensor of torch.

        Raises MemoryError if too little is left.
        """
        source = arrays.as_array("array", existing)
        array = self.empty(source.shape, source.dtype)
        np.copyto(array, source)
        return array

    def clear(self) -> None:
        """Starts again: the next arrays overwrite those that were made before."""
        with self._lock:
            self._used = 0

    def close(self) -> None:
        """Gives it back to the server. Arrays of it stay as they are, and travel from then on."""
        self._closed = True
        if self._region is not None:
            self._end(self._region)

    def _take(self, size: int) -> AnyArray:
        with self._lock:
            if self._closed:
                raise ValueError("the shared memory is closed; client.shared() gives new memory")
            start = self._next()
            if start + size > self.nbytes:
                raise MemoryError(
                    f"shared memory has {self.left} of {self.nbytes} bytes left, and the array "
                    f"needs {size}; clear() frees all of it, client.shared() gives more"
                )
            self._used = start + size
            return self._memory[start : start + size]

    def _next(self) -> int:
        """Where the next array begins."""
        return -(-self._used // _ALIGNMENT) * _ALIGNMENT


def ordinary(nbytes: int) -> SharedMemory:
    """Ordinary memory, for ``local:``, which sends nothing."""
    memory = np.zeros(_checked(nbytes) + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return SharedMemory(memory[start : start + nbytes], None, lambda _: None)


class SharedMemories:
    """The shared memory that is open on one connection to a server."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # what is collected meanwhile is ended in the same thread
        self.regions: tuple[Region, ...] = ()

    def open(self, path: str, nbytes: int, timeout: float, authorization: str = "") -> SharedMemory:
        """Memory of the server that listens at ``path``; see ``side_socket.ask``."""
        taken = side_socket.ask(path, _checked(nbytes), timeout, authorization)
        with self._lock:
            self.regions += (taken,)
        return SharedMemory(taken.memory, taken, self._end)

    def place(self, call: BoundCall) -> None:
        """Leaves the arrays of a call that lie in open memory there."""
        known = [region for region in self.regions if region.is_open]
        call.placement = places.place(call, known) if known else None

    def withdraw(self, call: BoundCall) -> bool:
        """Makes all arrays of a call travel, since the server no longer knows their memory.

        False if they travelled already. That memory counts as ordinary from then on.
        """
        if call.placement is None:
            return False
        lost = places.ids(call.placement)
        call.placement = None
        ended = [self._end(known) for known in self.regions if known.id in lost]
        if any(ended):
            warnings.warn(
                "the server no longer knows the shared memory, perhaps after a restart; the client "
                "sends its arrays from now on (client.shared() gives new memory)",
                RuntimeWarning,
                stacklevel=2,
            )
        return True

    def close(self) -> None:
        """Gives all of it back."""
        for known in self.regions:
            self._end(known)

    def _end(self, ended: Region) -> bool:
        with self._lock:
            self.regions = tuple(known for known in self.regions if known is not ended)
        return ended.end()


def _checked(nbytes: int) -> int:
    if index(nbytes) < 1:
        raise ValueError(f"nbytes: expected 1 or more, found {nbytes}")
    return index(nbytes)

"""One call of a stream: what has come of it, who waits for it, and its answer."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from npucall.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer
    from npucall.wire.frames import Chunk
    from npucall_server.log import Record
    from npucall_server.services.streams.arrivals import Arrivals
    from npucall_server.shared.places import PlacedCall

_MOST_RUNS = 1 << 16
"""Of ids that do not follow each other: what bounds the memory that a stream's ids take."""


class StreamCall:
    """A call from its first frame to its last. It is the ``Caller`` that the executor asks."""

    def __init__(self, call_id: int, record: Record, seconds: float | None) -> None:
        self.id = call_id
        self.record = record
        self.prepared: Prepared | None = None
        """Set once the call has been admitted, so that its room is to be given back."""
        self.storages: list[Buffer] = []
        self.placed: PlacedCall | None = None
        """Its storages and outputs, where some are in shared memory."""
        self.frames: Iterator[bytes] = iter(())
        """The answer."""
        self.admitted = False
        """It has its room, so that it may be refused for bytes that do not come."""
        self.receiving = True
        """Its bytes still come."""
        self.complete = False
        """All of its bytes have come."""
        self.begun_ns = time.perf_counter_ns()
        self._ends = None if seconds is None else time.monotonic() + seconds
        self.arrivals: Arrivals | None = None
        """Where its chunks go, if they are computed as they come."""
        self._arrays: list[AnyArray] = []
        self._sizes: tuple[int, ...] = ()
        self._received: list[int] = []
        self._active = True
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def time_remaining(self) -> float | None:
        """Seconds to its deadline, of the call or of its stream."""
        return None if self._ends is None else self._ends - time.monotonic()

    def is_active(self) -> bool:
        """Whether it has not been cancelled, and its stream is whole."""
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it is cancelled."""
        with self._lock:
            if self._active:
                self._callbacks.append(callback)
            return self._active

    def cancel(self) -> None:
        """The answer is not wanted any more."""
        with self._lock:
            self._active = False
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def expect(self, sizes: tuple[int, ...], arrivals: Arrivals | None) -> None:
        """Storages that come in chunks: into the arrivals, or into memory that is made for them."""
        self._sizes = sizes
        self._received = [0] * len(sizes)
        self.arrivals = arrivals
        if arrivals is None:
            self._arrays = [np.empty(size, np.uint8) for size in sizes]
            self.storages = [array.data for array in self._arrays]

    def receive(self, chunk: Chunk) -> None:
        """Puts a chunk where it belongs. Raises MessageError where it does not fit."""
        index, start = chunk.storage, chunk.offset
        if index >= len(self._sizes):
            raise MessageError(
                f"chunk: expected one of call {self.id}'s {len(self._sizes)} storages, "
                f"found {index}"
            )
        size, received = self._sizes[index], self._received[index]
        end = start + len(chunk.data)
        if start != received or end > size:
            raise MessageError(
                f"chunk: expected bytes from {received} on of the {size} of storage {index} "
                f"of call {self.id}, found those from {start} to {end}"
            )
        self._put(chunk, end)
        self._received[index] = end
        self.record.request_bytes += len(chunk.data)

    def check_complete(self) -> None:
        """Raises MessageError where bytes are missing."""
        for index, (size, received) in enumerate(zip(self._sizes, self._received, strict=True)):
            if received != size:
                raise MessageError(
                    f"end: expected {size} bytes of storage {index} of call {self.id}, "
                    f"found {received}"
                )

    def forget_storages(self) -> None:
        """Its inputs are not read any more."""
        self.storages, self._arrays, self.placed = [], [], None
        if self.arrivals is not None:
            self.arrivals.stop()

    def _put(self, chunk: Chunk, end: int) -> None:
        if self.arrivals is not None:
            self.arrivals.put(chunk.storage, chunk.data)
            return
        arrays = self._arrays
        if arrays:  # the thread of answers may have refused the call this moment
            arrays[chunk.storage][chunk.offset : end] = np.frombuffer(chunk.data, np.uint8)


class Ids:
    """The ids that a stream has used. Those that follow each other take no memory."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, call_id: int) -> bool:
        run = bisect_right(self._starts, call_id) - 1
        return run >= 0 and call_id < self._ends[run]

    def add(self, call_id: int) -> None:
        """Uses an id. Raises MessageError where it was used before."""
        run = bisect_right(self._starts, call_id) - 1
        if run >= 0 and call_id < self._ends[run]:
            raise MessageError(f"call_id: expected one not used before, found {call_id}")
        if run >= 0 and call_id == self._ends[run]:
            self._ends[run] += 1
        elif len(self._starts) < _MOST_RUNS:
            self._starts.insert(run + 1, call_id)
            self._ends.insert(run + 1, call_id + 1)
        else:
            raise MessageError("call_id: expected ids of which most follow each other")

"""The chunks of a call on their way into its computation, which starts before all have come."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from npucall.compute.pieces import Piece
from npucall.declare.prepare import Prepared
from npucall.errors import CancelledError
from npucall.exchange import Receiving, into
from npucall.memory import fresh
from npucall.tensors import Buffer

_GATHERED_BYTES = 1 << 19
"""Small chunks become parts of this length, so that blocks are worth their turns."""
_LEAST_BYTES = 1 << 16
"""The smallest chunk that is kept as it came. Many small ones would take more than their data."""
_MOST_BESIDE = 1 << 12
"""The most other bytes in the message of a chunk that is kept: a view keeps its whole message."""


class Computed(NamedTuple):
    """How much of the outputs of a call is computed."""

    outputs: Sequence[Buffer]
    done: int
    """How many elements of each output, counted from the first, will not change again."""
    of: int
    """How many elements each output has."""


class Arrivals:
    """An iterator over the pieces of a call, in the thread that computes them.

    Another thread puts the chunks in and never waits. Parts are held, not copied, from when they
    come until their piece has been taken. Together they are at most as long as the storages.
    """

    def __init__(self, call: Prepared) -> None:
        specs = [call.inputs[name] for name in call.stored]
        read = {parameter.name for parameter in call.operator.inputs if parameter.read}
        self._parts = [
            _Parts(spec.storage_bytes, spec.dtype.itemsize) if name in read else None
            for name, spec in zip(call.stored, specs, strict=True)
        ]
        self._by_name = {
            name: parts
            for name, parts in zip(call.stored, self._parts, strict=True)
            if parts is not None
        }
        self._elements = max(parts.elements for parts in self._by_name.values())
        self._many = [parts for parts in self._by_name.values() if parts.elements == self._elements]
        self._taken = 0
        self._whole = self._stopped = False
        self._changed = threading.Condition()
        self.waited_ns = 0
        """How long the thread that computes waited for bytes."""
        self.tell: Callable[[Computed], object] | None = None
        """Called with what is computed, in the thread that computes."""

    def put(self, index: int, data: Buffer) -> None:
        """Takes the next bytes of a storage. Drops those that no formula reads."""
        parts = self._parts[index]
        if parts is None:
            return
        with self._changed:
            if not self._stopped:
                parts.put(data)
                if self._ready():
                    self._changed.notify()

    def end(self) -> None:
        """All chunks have been put in."""
        with self._changed:
            self._whole = True
            self._changed.notify()

    def stop(self) -> None:
        """No more pieces are needed: drops the parts. Asking for a piece raises from now on."""
        with self._changed:
            self._stopped, self.tell = True, None
            for parts in self._by_name.values():
                parts.clear()
            self._changed.notify()

    @property
    def held_bytes(self) -> int:
        """Bytes that have come and have not been taken."""
        with self._changed:
            return sum(parts.held_bytes for parts in self._by_name.values())

    def computed(self, outputs: Sequence[Buffer], elements: int) -> None:
        """So many elements of each output will not change again."""
        tell = self.tell  # another thread may stop this at any moment
        if tell is not None:
            tell(Computed(outputs, elements, self._elements))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        """The next piece. Raises CancelledError after ``stop``."""
        with self._changed:
            if not self._ready():
                start = time.perf_counter_ns()
                self._changed.wait_for(self._ready)
                self.waited_ns += time.perf_counter_ns() - start
            if self._stopped:
                raise CancelledError("the call ended before all its bytes arrived")
            if self._taken == self._elements:
                raise StopIteration
            return self._next()

    def _ready(self) -> bool:
        if self._stopped or self._taken == self._elements:
            return self._stopped or self._whole
        return all(parts.ready for parts in self._by_name.values())

    def _next(self) -> Piece:
        count = min(parts.ready for parts in self._many)
        start, self._taken = self._taken, self._taken + count
        many = self._elements
        inputs = {
            name: parts.take(count) if parts.elements == many else parts.first
            for name, parts in self._by_name.items()
        }
        return Piece(start, self._taken, inputs)


def in_pieces(call: Prepared, name: str) -> tuple[Receiving, Arrivals]:
    """Takes the storages of a call in chunks, to be computed as they come.

    ``name``: the call's name in errors.
    """
    arrivals = Arrivals(call)
    return Receiving(
        name, call.stored_bytes, lambda chunk: arrivals.put(chunk.storage, chunk.data)
    ), arrivals


def in_memory(
    call: Prepared, places: Sequence[object], name: str
) -> tuple[Receiving, dict[str, Buffer]]:
    """Takes in chunks the storages that have no place, into memory made for them."""
    expected = [
        size if place is None else 0 for size, place in zip(call.stored_bytes, places, strict=True)
    ]
    memories = [fresh(size) for size in expected]
    storages = dict(zip(call.stored, memories, strict=True))
    return Receiving(name, expected, into(memories)), storages


class _Parts:
    """The parts of one storage that have come and not been taken: whole elements, never empty.

    Small chunks, and chunks that end inside an element, are copied together into parts.
    """

    def __init__(self, size: int, itemsize: int) -> None:
        self.elements = size // itemsize
        self._itemsize = itemsize
        self._missing = size
        self._parts: deque[memoryview] = deque()
        self._gathered = bytearray()

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._parts)) + len(self._gathered)

    @property
    def ready(self) -> int:
        """How many elements the first part has."""
        return len(self._parts[0]) // self._itemsize if self._parts else 0

    @property
    def first(self) -> memoryview:
        return self._parts[0]

    def clear(self) -> None:
        self._parts.clear()
        self._gathered = bytearray()

    def put(self, data: Buffer) -> None:
        view = memoryview(data)
        self._missing -= len(view)
        if _is_kept(view):
            begun = -len(self._gathered) % self._itemsize
            self._gathered += view[:begun]
            self._end_gathering()
            end = len(view) - (len(view) - begun) % self._itemsize
            self._parts.append(view[begun:end])
            view = view[end:]
        self._gathered += view
        if not self._missing or len(self._gathered) >= _GATHERED_BYTES:
            self._end_gathering()

    def take(self, count: int) -> memoryview:
        """Takes elements from the front of the first part."""
        size = count * self._itemsize
        part = self._parts[0]
        if size == len(part):
            return self._parts.popleft()
        self._parts[0] = part[size:]
        return part[:size]

    def _end_gathering(self) -> None:
        """Makes a part of the whole elements that have been gathered."""
        end = len(self._gathered) - len(self._gathered) % self._itemsize
        if end:
            self._parts.append(memoryview(self._gathered)[:end])
            self._gathered = self._gathered[end:]


def _is_kept(view: memoryview) -> bool:
    """Whether a chunk may stay in the message that it came in."""
    if len(view) < _LEAST_BYTES:
        return False
    message = memoryview(view.obj)
    return message.nbytes - len(view) <= _MOST_BESIDE

"""The exchange of a stream: the states of its calls, and their storages in chunks.

Pure: frames are values here, ``wire.frames`` turns them into bytes, and nothing waits. Server and
client use the same table; the proto prints it for clients in other languages.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from npucall.errors import MessageError
from npucall.limits import INLINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from npucall.tensors import Buffer


class Begin(NamedTuple):
    """Opens a call, or a program."""

    request: bytes
    """An ``ExecuteRequest``, for ``wire.messages`` to split; of a program an
    ``ExecuteProgramRequest``, for ``wire.program_messages``."""
    chunked: bool = False
    """The storages follow in chunks; never those of a program."""
    timeout_ns: int = 0
    request_id: str = ""
    program: bool = False
    early_outputs: bool = False
    """The caller takes outputs before the reply."""


class Chunk(NamedTuple):
    """A part of a storage."""

    storage: int
    offset: int
    data: Buffer


class End(NamedTuple):
    """All chunks have been sent."""


class Cancel(NamedTuple):
    """The answer is not wanted any more."""


class Credential(NamedTuple):
    """Renews the credential of the stream; it is about no call, and no part of the exchange."""

    authorization: str


class Resolved(NamedTuple):
    """What the call resolved to; its outputs follow in chunks, and then its reply."""

    reply: bytes
    """A ``Reply``, that of the ``ExecuteResponse`` which follows."""


class ReplyFrame(NamedTuple):
    """The answer to a call, or to a program."""

    response: bytes
    """An ``ExecuteResponse``, for ``wire.messages`` to split; of a program an
    ``ExecuteProgramResponse``, for ``wire.program_messages``."""
    program: bool = False


class Error(NamedTuple):
    """The call failed."""

    status: bytes
    """A serialised ``google.rpc.Status``."""


CallFrame: TypeAlias = Begin | Chunk | End | Cancel
RequestFrame: TypeAlias = CallFrame | Credential
ResponseFrame: TypeAlias = Resolved | ReplyFrame | Chunk | End | Error


class State(Enum):
    """The state of the exchange about one call, the same for caller and server."""

    __hash__ = object.__hash__  # that of Enum is Python's, and every frame needs some

    NEW = "new"
    """No frame has its id."""
    RECEIVING = "receiving"
    """It was opened, and its storages follow in chunks."""
    COMPLETE = "complete"
    """All of it has been sent; it waits, or runs."""
    CROSSING = "crossing"
    """Its storages still follow in chunks, and its outputs come in chunks already."""
    ANSWERING = "answering"
    """All of it has been sent; it runs, its outputs come in chunks, then its reply."""
    REPLYING = "replying"
    """Its reply has been sent, and the outputs follow in chunks."""
    ENDED = "ended"
    """It has been answered in full."""


class Event(Enum):
    """What a frame does to a call; first the caller's frames, then the server's."""

    __hash__ = object.__hash__

    BEGIN = "begin"
    BEGIN_CHUNKED = "begin, chunked"
    CHUNK = "chunk"
    END = "end"
    CANCEL = "cancel"
    RESOLVED = "resolved"
    REPLY = "reply"
    REPLY_CHUNKED = "reply, chunks follow"
    OUTPUT_CHUNK = "chunk of an output"
    OUTPUT_END = "end of the outputs"
    ERROR = "error"


TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.NEW: {Event.BEGIN: State.COMPLETE, Event.BEGIN_CHUNKED: State.RECEIVING},
    State.RECEIVING: {
        Event.CHUNK: State.RECEIVING,
        Event.END: State.COMPLETE,
        Event.CANCEL: State.RECEIVING,  # the server answers with an error
        Event.RESOLVED: State.CROSSING,
        Event.ERROR: State.ENDED,
    },
    State.COMPLETE: {
        Event.CANCEL: State.COMPLETE,  # the same, unless the reply comes first
        Event.RESOLVED: State.ANSWERING,
        Event.REPLY: State.ENDED,
        Event.REPLY_CHUNKED: State.REPLYING,
        Event.ERROR: State.ENDED,
    },
    State.CROSSING: {
        Event.CHUNK: State.CROSSING,
        Event.END: State.ANSWERING,
        Event.CANCEL: State.CROSSING,
        Event.OUTPUT_CHUNK: State.CROSSING,
        Event.ERROR: State.ENDED,  # whatever has come of the outputs is void
    },
    State.ANSWERING: {
        Event.CANCEL: State.ANSWERING,
        Event.REPLY: State.ENDED,  # all of the outputs have come
        Event.OUTPUT_CHUNK: State.ANSWERING,
        Event.ERROR: State.ENDED,
    },
    State.REPLYING: {Event.OUTPUT_CHUNK: State.REPLYING, Event.OUTPUT_END: State.ENDED},
    State.ENDED: {},
}
"""The next state for each state and event."""
PASSED_OVER: Mapping[State, frozenset[Event]] = {
    State.NEW: frozenset({Event.CANCEL}),
    State.RECEIVING: frozenset(),
    State.COMPLETE: frozenset({Event.CHUNK, Event.END}),
    State.CROSSING: frozenset(),
    State.ANSWERING: frozenset({Event.CHUNK, Event.END}),
    State.REPLYING: frozenset({Event.CHUNK, Event.END, Event.CANCEL}),
    State.ENDED: frozenset({Event.CHUNK, Event.END, Event.CANCEL}),
}
"""Frames of the caller that are ignored, because they come too late or mean nothing. A frame that
is in neither table breaks the contract, and the stream ends."""
COMING = frozenset({State.RECEIVING, State.CROSSING})
"""While the storages of a call come."""


def after(state: State, event: Event) -> State | None:
    """The state after an event; None if the event is not allowed."""
    return state if event in PASSED_OVER[state] else TRANSITIONS[state].get(event)


def event_of(frame: CallFrame) -> Event:
    """What a caller's frame does."""
    if isinstance(frame, Begin):
        return Event.BEGIN_CHUNKED if frame.chunked else Event.BEGIN
    return _EVENTS[type(frame)]


_EVENTS: Mapping[type, Event] = {Chunk: Event.CHUNK, End: Event.END, Cancel: Event.CANCEL}


class Sending:
    """Storages to send: in the message of their call or reply, or in chunks after it.

    They are read while they are sent, and never copied as a whole. Storages in shared memory (None
    here) are not sent.
    """

    def __init__(self, storages: Sequence[Buffer | None]) -> None:
        self._views = [
            (index, memoryview(data)) for index, data in enumerate(storages) if data is not None
        ]
        self.nbytes = sum(len(view) for _, view in self._views)

    def is_chunked(self, inline_bytes: int = INLINE_BYTES) -> bool:
        """Whether they have no room in the message."""
        return self.nbytes > inline_bytes

    def rounds(self, length: int, done: int = 1, of: int = 1) -> int:
        """How many chunks of each storage there are, where so much of every storage is done."""
        sizes = [len(view) for _, view in self._views]
        if done < of:
            return min((size * done // of for size in sizes), default=0) // length
        return -(-max(sizes, default=0) // length)

    def chunks(self, length: int, first: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        """Chunks of so many bytes, one of each storage in turn; rounds from ``first`` to ``stop``.

        So the peer can compute with what has arrived of all.
        """
        stop = self.rounds(length) if stop is None else stop
        for start in range(first * length, stop * length, length):
            for index, view in self._views:
                if part := view[start : start + length]:
                    yield Chunk(index, start, part)


class Receiving:
    """Storages to receive: which of their bytes have arrived.

    ``sizes`` are the expected bytes of each; ``sink`` gets the chunks that fit.
    """

    def __init__(self, what: str, sizes: Sequence[int], sink: Callable[[Chunk], object]) -> None:
        self._what = what
        self._sizes = sizes
        self._sink = sink
        self._ends = [0] * len(sizes)

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return sum(self._ends)

    @property
    def nbytes(self) -> int:
        """Bytes that shall come."""
        return sum(self._sizes)

    def take(self, chunk: Chunk) -> None:
        """Takes a chunk. Raises MessageError where it is not the next part of a storage."""
        index, start = chunk.storage, chunk.offset
        if index >= len(self._sizes):
            raise MessageError(
                f"chunk: expected the index of one of the {len(self._sizes)} storages of "
                f"{self._what}, found {index}"
            )
        size, come, end = self._sizes[index], self._ends[index], start + len(chunk.data)
        if start != come or end > size:
            raise MessageError(
                f"chunk: expected the bytes of storage {index} of {self._what} from {come} on, of "
                f"{size} in all, found those from {start} to {end}"
            )
        self._sink(chunk)
        self._ends[index] = end

    def come(self, index: int) -> int:
        """Bytes of one of them that have come."""
        return self._ends[index]

    def end(self, without: Collection[int] = ()) -> None:
        """Nothing more comes. Raises MessageError where bytes are missing.

        ``without``: those of which nothing has to come.
        """
        for index, (size, come) in enumerate(zip(self._sizes, self._ends, strict=True)):
            if come != size and (come or index not in without):
                raise MessageError(
                    f"end: expected {size} bytes of storage {index} of {self._what}, found {come}"
                )


def into(memories: Sequence[Buffer]) -> Callable[[Chunk], None]:
    """A sink that copies chunks to where they belong in these memories."""
    arrays = [np.frombuffer(memory, np.uint8) for memory in memories]

    def copy(chunk: Chunk) -> None:
        """NumPy copies without the interpreter's lock."""
        end = chunk.offset + len(chunk.data)
        np.copyto(arrays[chunk.storage][chunk.offset : end], np.frombuffer(chunk.data, np.uint8))

    return copy

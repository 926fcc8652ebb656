"""What comes on a connection of frames: by a small buffer, and past it into larger memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from npucall.wire.headers import HEADER_BYTES, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.wire.headers import Header
    from npucall_server.carriers.peers import Peers, Visitor

BUFFER_BYTES = 16 * 2**10
"""Of each connection, as long as it is open: small frames that come together are read at once."""


class Incoming:
    """Reads frames one after the other, in one thread.

    ``receive`` waits for bytes, and answers how many came: none if the other side has gone. No more
    is taken in than the buffer has room for, until somebody makes room for a message. Once a part
    of a frame has come, ``peer`` has to send the rest.
    """

    def __init__(self, receive: Callable[[memoryview], int], peer: Visitor, peers: Peers) -> None:
        self._receive, self._peer, self._clock = receive, peer, peers.clock
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._begin = self._end = 0
        self.count = 0
        """Bytes that have come so far."""

    def header(self) -> Header:
        """The next header. Raises EOFError where none comes."""
        if self._begin == self._end:
            self._fill()
        if self._end - self._begin < HEADER_BYTES:
            self._fill_up_to(HEADER_BYTES)
        begin, self._begin = self._begin, self._begin + HEADER_BYTES
        return unpack(self._buffer, begin)

    @property
    def has_frame(self) -> bool:
        """Whether a whole frame is here."""
        have = self._end - self._begin - HEADER_BYTES
        return have >= 0 and have >= unpack(self._buffer, self._begin).length

    def take(self, size: int) -> bytes:
        """The next bytes, which fit into the buffer."""
        if self._end - self._begin < size:
            self._fill_up_to(size)
        begin, self._begin = self._begin, self._begin + size
        return bytes(self._buffer[begin : self._begin])

    def take_into(self, memory: memoryview) -> None:
        """The next bytes, into memory of that length."""
        have = min(self._end - self._begin, len(memory))
        memory[:have] = self._buffer[self._begin : self._begin + have]
        self._begin += have
        with self._awaiting():
            while have < len(memory):
                have += self._some(memory[have:])

    def skip(self, size: int) -> None:
        """Passes over the next bytes."""
        with self._awaiting():
            while size > (have := self._end - self._begin):
                size -= have
                self._begin = self._end
                self._fill()
        self._begin += size

    def _fill_up_to(self, size: int) -> None:
        with self._awaiting():
            while self._end - self._begin < size:
                self._fill()

    def _fill(self) -> None:
        if self._begin:
            have = self._end - self._begin
            self._buffer[:have] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, have
        self._end += self._some(self._buffer[self._end :])

    def _some(self, memory: memoryview) -> int:
        count = self._receive(memory)
        if not count:
            raise EOFError
        self.count += count
        return count

    @contextmanager
    def _awaiting(self) -> Iterator[None]:
        """The peer has to send what is missing."""
        peer = self._peer
        peer.since, peer.awaited = self._clock(), "its message"
        try:
            yield
        finally:
            peer.awaited = ""

"""What comes on a connection of frames: by a small buffer, and past it into larger memory."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from npucall.errors import MessageError, TooLargeError
from npucall.memory import fresh
from npucall.wire.headers import HEADER_BYTES, MOST_METADATA_BYTES, metadata_in, unpack
from npucall_server.accounts.waiting import about_to_wait
from npucall_server.carriers.frames.tls_socket import TlsSocket
from npucall_server.carriers.peers import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.wire.headers import Header
    from npucall_server.carriers.peers import Peers, Visitor

BUFFER_BYTES = 16 * 2**10
"""Of each connection, as long as it is open: small frames that come together are read at once."""
MOST_WAITING = 4 * 2**10
"""So much waits at least where the peer cannot send more."""


class IncomingFrames:
    """Reads frames one after the other, in one thread at a time.

    No more is taken in than the buffer has room for, until somebody makes room for a message. Once
    a part of a frame has come, ``peer`` has to send the rest.
    """

    def __init__(
        self, connection: socket.socket | TlsSocket, peer: Visitor, peers: Peers, most: int
    ) -> None:
        self._socket, self._clock, self.most = connection, peers.clock, most
        """Bytes of a message."""
        self._tls = connection if isinstance(connection, TlsSocket) else None
        self._peer: Visitor | None = peer
        self.reading = threading.Lock()
        """Held while the kernel may write for the descriptor, which is not closed meanwhile."""
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

    def size_of(self, header: Header) -> int:
        """Bytes of its message. Raises TooLargeError, or MessageError for too much metadata."""
        size, most = header.length - header.metadata, self.most
        if size > most:
            raise TooLargeError(
                f"length: expected a message of at most {most} bytes, found {size}",
                limit=str(most),
                setting="max_message_bytes",
            )
        if size < 0 or header.metadata > MOST_METADATA_BYTES:
            most = min(header.length, MOST_METADATA_BYTES)
            raise MessageError(f"metadata: expected at most {most} bytes, found {header.metadata}")
        return size

    def metadata(self, header: Header) -> dict[str, str]:
        """What stands before the message. Raises MessageError."""
        return metadata_in(self.take(header.metadata))

    def message(self, size: int) -> bytes:
        """The message, which is read as bytes are; a large one is memory of its own."""
        if size <= BUFFER_BYTES:
            return self.take(size)
        memory = memoryview(fresh(size))
        self.take_into(memory)
        return memory  # type: ignore[return-value]

    def has_more(self) -> bool:
        """Whether more has come, or the peer has gone."""
        if self._begin != self._end:
            return True
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    @property
    def is_empty(self) -> bool:
        """Whether nothing is here that was read from the kernel."""
        return self._begin == self._end and (self._tls is None or not self._tls.has_left)

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

    def end(self) -> None:
        """Nothing more is read: it lets go of the peer, which has it."""
        self._peer = None

    def waiting(self) -> int:
        """Bytes that nobody reads now, up to ``MOST_WAITING``. Raises EOFError for a lost peer."""
        # Whoever reads by now holds it, for as long as nothing comes.
        if not self.reading.acquire(blocking=False):
            return 0
        try:
            count = len(self._socket.recv(MOST_WAITING, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return 0
        except OSError:
            raise EOFError from None
        finally:
            self.reading.release()
        if not count:
            raise EOFError
        return count

    def _fill_up_to(self, size: int) -> None:
        with self._awaiting():
            while self._end - self._begin < size:
                self._fill()

    def _fill(self) -> None:
        have = self._end - self._begin
        if not have:
            self._begin = self._end = 0
            self._end = self._some(self._buffer)
            return
        if self._begin:
            self._buffer[:have] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, have
        self._end += self._some(self._buffer[self._end :])

    def _some(self, memory: memoryview) -> int:
        with self.reading:
            try:
                count = self._socket.recv_into(memory, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                about_to_wait()
                count = self._socket.recv_into(memory)
        if not count:
            raise EOFError
        self.count += count
        return count

    @contextmanager
    def _awaiting(self) -> Iterator[None]:
        """The peer has to send what is missing."""
        peer = self._peer
        if peer is None:
            raise EOFError
        peer.since, peer.awaited = self._clock(), MESSAGE
        try:
            yield
        finally:
            peer.awaited = ""

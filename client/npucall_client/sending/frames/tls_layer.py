"""TLS for connections of frames, of threads and of an event loop. OpenSSL's object does no I/O."""

from __future__ import annotations

import ssl
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npucall.tensors import Buffer
    from npucall_client.sending.frames.frame_connection import FrameSocket

_TAKEN_BYTES = 64 * 2**10
"""Read from the kernel at a time."""
_SENT_BYTES = 256 * 2**10
"""Encrypted at a time."""


class TlsLayer:
    """A socket over another one: one thread may read while another one sends.

    Nothing comes through before ``handshake``, which verifies the server.
    """

    is_trusted = True

    def __init__(self, below: FrameSocket, context: ssl.SSLContext, name: str) -> None:
        self._below = below
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)
        self._lock = threading.Lock()
        """For OpenSSL's object, not while anybody waits."""
        self._taken = memoryview(bytearray(_TAKEN_BYTES))
        self.until, self.is_quiet = below.until, below.is_quiet
        self.cut, self.close = below.cut, below.close
        self.let_another_read, self.takes_more = below.let_another_read, below.takes_more
        self.send_left = below.send_left

    async def handshake(self) -> None:
        """Raises OSError where the server is another one, or wants none of this client."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            else:
                await self._flush()
                return

    async def receive_into(self, memory: memoryview) -> int:
        """See ``FrameSocket``."""
        if not (self._in.pending or self._tls.pending()):  # to find that out by a read takes more
            await self._receive()
        while True:
            with self._lock:
                try:
                    return self._tls.read(len(memory), memory)  # type: ignore[return-value]
                except ssl.SSLWantReadError:
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return 0
            await self._receive()

    async def send(self, parts: Sequence[Buffer], size: int) -> None:
        """See ``FrameSocket``."""
        for piece in _pieces(parts, size):
            data = self._encrypted(piece)
            await self._below.send((data,), len(data))

    def send_now(self, data: bytes) -> Buffer:
        """See ``FrameSocket``: what is left is encrypted already."""
        return self._below.send_now(self._encrypted(data))

    async def receive_files(self, size: int) -> tuple[bytes, list[int]]:
        """None come from another host."""
        raise NotImplementedError

    def _encrypted(self, piece: Buffer) -> bytes:
        with self._lock:
            sent = self._tls.write(piece)
            while sent < len(piece):
                sent += self._tls.write(piece[sent:])
            return self._out.read()

    async def _flush(self) -> None:
        with self._lock:
            data = self._out.read()
        if data:
            await self._below.send((data,), len(data))

    async def _receive(self) -> None:
        count = await self._below.receive_into(self._taken)
        with self._lock:
            if count:
                self._in.write(self._taken[:count])
            else:
                self._in.write_eof()


def _pieces(parts: Sequence[Buffer], size: int) -> Iterator[Buffer]:
    """All bytes in pieces of a bounded length, none of them empty; small parts are joined."""
    if size <= _SENT_BYTES:
        yield b"".join(parts)
        return
    small: list[Buffer] = []
    for part in (*parts, b""):
        if 0 < len(part) < _TAKEN_BYTES:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small.clear()
        whole = memoryview(part)
        for start in range(0, len(whole), _SENT_BYTES):
            yield whole[start : start + _SENT_BYTES]

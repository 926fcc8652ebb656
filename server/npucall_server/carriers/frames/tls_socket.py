"""TLS for connections of frames, of which one thread reads while others send."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Sequence

from npucall.tensors import Buffer

_RECORD_BYTES = 32 * 2**10
"""Read from the kernel at a time; a record of TLS has up to 16 KiB and a little."""
_MOST_RECEIVED_BYTES = 256 * 2**10
"""The same, while the rest of a large message is awaited."""
_SENT_BYTES = 64 * 2**10
"""Encrypted at a time. So much of an answer is kept twice."""


class TlsSocket:
    """Does what a connection does with its socket. OpenSSL's object is never left to two threads.

    ``connection``: of TCP. Nothing comes through before ``handshake``.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._lock = threading.Lock()
        """For OpenSSL's object, not while anybody waits."""
        self._left = memoryview(b"")
        """Encrypted, and not sent yet; of so many bytes:"""
        self._taken = 0
        self.has_left = False
        """Whether more may have come than was decrypted, but for a part of a record."""
        self._has_ended = False
        """Whether the peer has said that nothing more comes."""
        self.setsockopt, self.shutdown = connection.setsockopt, connection.shutdown
        self.recv, self.close = connection.recv, connection.close
        self.fileno = connection.fileno

    def handshake(self) -> None:
        """Raises ssl.SSLError, which is an OSError, where it fails, and EOFError."""
        while not self._has_shaken_hands():
            if not self._receive():
                raise EOFError

    def certificate(self) -> tuple[list[bytes], bytes] | None:
        """The names in the peer's certificate, and the certificate as PEM; None without one."""
        data = self._tls.getpeercert(binary_form=True)
        if data is None:
            return None
        told = self._tls.getpeercert() or {}
        names = [str(name[1]).encode() for name in told.get("subjectAltName", ())]
        return names, ssl.DER_cert_to_PEM_cert(data).encode()

    def recv_into(self, memory: memoryview, _: int = 0, flags: int = 0) -> int:
        """The next bytes; none if the peer has gone."""
        while True:
            if self.has_left:
                count = self._decrypted(memory)
                if count or self._has_ended:
                    return count
            if not self._receive(len(memory), flags):
                return 0

    def sendmsg(self, parts: Sequence[Buffer], beside: object = (), flags: int = 0) -> int:
        """Sends some of the bytes. One thread at a time, and again with those that are left."""
        del beside  # no descriptor travels to another host
        if not self._left:
            self._left, self._taken = self._encrypted(parts)
        sent = self._socket.send(self._left, flags)
        self._left = self._left[sent:]
        return 0 if self._left else self._taken

    def _has_shaken_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        else:
            return True
        finally:
            if data := self._out.read():
                self._socket.sendall(data)

    def _encrypted(self, parts: Sequence[Buffer]) -> tuple[memoryview, int]:
        taken = 0
        with self._lock:
            for part in parts:
                piece = memoryview(part)[: _SENT_BYTES - taken]
                taken += len(piece)
                while piece:
                    piece = piece[self._tls.write(piece) :]
                if taken == _SENT_BYTES:
                    break
            return memoryview(self._out.read()), taken

    def _decrypted(self, memory: memoryview) -> int:
        """What has come, as much as the memory holds. Asks only while there is something."""
        count = 0
        with self._lock:
            try:
                while count < len(memory):
                    rest = memory[count:]
                    count += self._tls.read(len(rest), rest)  # type: ignore[operator]
                    self.has_left = bool(self._in.pending or self._tls.pending())
                    if not self.has_left:
                        break
            except ssl.SSLWantReadError:  # a part of a record
                self.has_left = False
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._has_ended = True
        return count

    def _receive(self, wanted: int = 0, flags: int = 0) -> bool:
        data = self._socket.recv(min(max(_RECORD_BYTES, wanted), _MOST_RECEIVED_BYTES), flags)
        with self._lock:
            if data:
                self._in.write(data)
        self.has_left = True
        return bool(data)

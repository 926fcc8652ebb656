"""TLS for connections of frames, of which one thread reads while others send."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Sequence

from npucall.tensors import Buffer

_RECORD_BYTES = 32 * 2**10
"""Read from the kernel at a time; a record of TLS has up to 16 KiB and a little."""
_MOST_BYTES = 256 * 2**10
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
        self._left: Buffer = b""
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
            if not (data := self._socket.recv(_RECORD_BYTES)):
                raise EOFError
            self._in.write(data)
        self.has_left = True

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
            data = b""
            if not self.has_left:
                data = self._socket.recv(min(max(_RECORD_BYTES, len(memory)), _MOST_BYTES), flags)
                if not data:
                    return 0
            count = self._decrypted(data, memory)
            if count or self._has_ended:
                return count

    def sendmsg(self, parts: Sequence[Buffer], beside: object = (), flags: int = 0) -> int:
        """Sends some of the bytes. One thread at a time, and again with those that are left."""
        del beside  # no descriptor travels to another host
        if not self._left:
            self._left, self._taken = self._encrypted(parts)
        sent = self._socket.send(self._left, flags)
        if sent != len(self._left):
            self._left = memoryview(self._left)[sent:]
            return 0
        self._left = b""
        return self._taken

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

    def _encrypted(self, parts: Sequence[Buffer]) -> tuple[Buffer, int]:
        """As much of the parts as is worth it at a time, and how much that is."""
        taken, tls = 0, self._tls
        # Few records, and few calls of OpenSSL: small parts are one.
        if len(parts) > 1 and sum(map(len, parts)) <= _SENT_BYTES:
            parts = (b"".join(parts),)
        with self._lock:
            for part in parts:
                piece = part if len(part) <= _SENT_BYTES - taken else part[: _SENT_BYTES - taken]
                taken += len(piece)
                while piece and (written := tls.write(piece)) != len(piece):
                    piece = memoryview(piece)[written:]
                if taken == _SENT_BYTES:
                    break
            return self._out.read(), taken

    def _decrypted(self, data: bytes, memory: memoryview) -> int:
        """What has come, as much as the memory holds. Asks only while there is something."""
        count, tls, come = 0, self._tls, self._in
        with self._lock:
            if data:
                come.write(data)
            try:
                while count < len(memory):
                    rest = memory[count:] if count else memory
                    count += tls.read(len(rest), rest)  # type: ignore[operator]
                    if not (come.pending or tls.pending()):
                        self.has_left = False
                        return count
            except ssl.SSLWantReadError:  # a part of a record
                self.has_left = False
                return count
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self._has_ended = True
        self.has_left = True
        return count

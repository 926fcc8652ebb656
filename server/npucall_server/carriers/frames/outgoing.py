"""What is sent on a connection of frames, by whichever thread has something."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from npucall.tensors import Buffer
from npucall.wire.headers import ALIVE, pack
from npucall.wire.keepalive import takes_more
from npucall_server.accounts.waiting import about_to_wait
from npucall_server.carriers.frames.tls_socket import TlsSocket
from npucall_server.carriers.peers import ANSWER, Peers, Visitor

_LOOK_SECONDS = 1
"""How long one call of the kernel may wait, so that it is seen whether bytes move."""
_TIMEVAL = struct.Struct("@ll")
"""C's ``struct timeval``."""
_Ancillary: TypeAlias = tuple[int, int, bytes]
_NOTHING: Sequence[_Ancillary] = ()
_AT_ONCE = getattr(socket, "MSG_DONTWAIT", 0)


class Outgoing(Visitor):
    """Sends frames, each as a whole. It is the peer's other half: who has to read."""

    def __init__(self, connection: socket.socket | TlsSocket, peers: Peers) -> None:
        self._socket, self._clock = connection, peers.clock
        self._sending, self._closing = threading.RLock(), threading.Lock()
        self.count = 0
        """Bytes that have been taken so far."""
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(_LOOK_SECONDS, 0)
        )

    def belongs_to(self, whole: Visitor) -> None:
        """The connection whose half this is."""
        self.peer, self.cancel, self.add_callback = whole.peer, whole.cancel, whole.add_callback

    def bytes_moved(self) -> int:
        """That the peer's system has taken."""
        return self.count

    def cut(self) -> None:
        """Nothing more comes or goes."""
        with self._closing, suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives the descriptor back once no thread is about to use it: others may get it then."""
        self.cut()
        with self._sending, self._closing:
            self._socket.close()

    def send(
        self, kind: int, call_id: int = 0, message: Buffer = b"", descriptor: int | None = None
    ) -> None:
        """Sends one frame, and a file descriptor. Raises OSError if the peer has gone."""
        beside = _NOTHING if descriptor is None else [_rights(descriptor)]
        self.send_all([pack(kind, len(message), call_id), message], beside)

    def send_all(self, parts: Sequence[Buffer], beside: Sequence[_Ancillary] = _NOTHING) -> None:
        """Sends the parts of whole frames."""
        with self._sending:
            size = sum(map(len, parts))
            try:
                sent = self._socket.sendmsg(parts, beside, 0 if beside else _AT_ONCE)
            except BlockingIOError:
                sent = 0
            self.count += sent
            if sent != size:
                self._send_rest(parts, sent)

    def say_alive(self) -> bool:
        """Sends that, if it takes no waiting; returns whether it did."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            if is_free := takes_more(self._socket):
                self.send(ALIVE)
        except OSError:
            return False
        else:
            return is_free
        finally:
            self._sending.release()

    def _send_rest(self, parts: Sequence[Buffer], sent: int) -> None:
        """What the peer has no room for yet."""
        about_to_wait()
        self.since, self.awaited = self._clock(), ANSWER
        try:
            rest = [memoryview(part) for part in parts]
            while rest:
                while rest and sent >= len(rest[0]):
                    sent -= len(rest.pop(0))
                if rest:
                    rest[0] = rest[0][sent:]
                    sent = self._some(rest)
        finally:
            self.awaited = ""

    def _some(self, rest: Sequence[Buffer]) -> int:
        try:
            sent = self._socket.sendmsg(rest)
        except BlockingIOError:  # none within a second
            return 0
        self.count += sent
        return sent


def _rights(descriptor: int) -> _Ancillary:
    """A file descriptor for the other process: unix(7)."""
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("@i", descriptor)

"""A TCP proxy that cuts connections after so many bytes, as a network or a dying peer does."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cut(NamedTuple):
    """Bytes after which a connection is cut; None: never."""

    to_server: int | None = None
    to_client: int | None = None


class CuttingProxy:
    """Listens on a port of its own. ``cuts`` are used up by connections, in order."""

    def __init__(self, server: str) -> None:
        self.lead_to(server)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts: list[Cut] = []
        self.cut_always: Cut | None = None
        self.cut_count = 0
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, server: str) -> None:
        """Where connections lead that come from now on."""
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes who receives, who then closes it

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                cut = self.cut_always or (self.cuts.pop(0) if self.cuts else Cut())
                with self._lock:
                    self._sockets |= {client, server}
                for source, target, limit in (
                    (client, server, cut.to_server),
                    (server, client, cut.to_client),
                ):
                    arguments = (source, target, limit)
                    threading.Thread(target=self._forward, args=arguments, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, limit: int | None) -> None:
        left = float("inf") if limit is None else limit
        with suppress(OSError):
            while left > 0 and (data := source.recv(int(min(left, 65536)))):
                target.sendall(data)
                left -= len(data)
        if left <= 0:
            self.cut_count += 1
        with self._lock:
            self._sockets -= {source, target}
        for one in (source, target):
            with suppress(OSError):  # at once, with what is still to be sent thrown away
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def cutting(server: str) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server)
    try:
        yield proxy
    finally:
        proxy.close()

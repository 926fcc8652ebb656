"""A TCP proxy, and one that cuts connections, as a network or a dying peer does."""

import socket
import struct
import threading
from contextlib import AbstractContextManager, closing, suppress
from typing import NamedTuple

PIECE = 65536


class Proxy:
    """Listens on a port of its own; a subclass says what it does with a connection."""

    def __init__(self, server: str) -> None:
        self.lead_to(server)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._sockets: set[socket.socket] = set()
        self.start(self._accept)

    def lead_to(self, server: str) -> None:
        """Where connections lead that come from now on."""
        host, _, port = server.rpartition(":")
        self._server = (host, int(port)) if port else ("", 0)

    def close(self) -> None:
        for one in (self._listener, *self._sockets.copy()):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes who waits at it
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                self._sockets.add(client)
                self.serve(client)

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def connected(self) -> socket.socket:
        server = socket.create_connection(self._server)
        self._sockets.add(server)
        return server

    @staticmethod
    def start(run: object, *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()  # type: ignore[arg-type]


class Cut(NamedTuple):
    """Bytes after which a connection is cut; None: never."""

    to_server: int | None = None
    to_client: int | None = None


class CuttingProxy(Proxy):
    """Cuts as a network or a dying peer does. ``cuts`` are used up by connections, in order."""

    def __init__(self, server: str) -> None:
        self.cuts: list[Cut] = []
        self.cut_always: Cut | None = None
        self.cut_count = 0
        super().__init__(server)

    def serve(self, client: socket.socket) -> None:
        server = self.connected()
        cut = self.cut_always or (self.cuts.pop(0) if self.cuts else Cut())
        self.start(self._forward, client, server, cut.to_server)
        self.start(self._forward, server, client, cut.to_client)

    def _forward(self, source: socket.socket, target: socket.socket, limit: int | None) -> None:
        left = float("inf") if limit is None else limit
        with suppress(OSError):
            while left > 0 and (data := source.recv(int(min(left, PIECE)))):
                target.sendall(data)
                left -= len(data)
        if left <= 0:
            self.cut_count += 1
        for one in (source, target):
            self._sockets.discard(one)
            with suppress(OSError):  # at once, with what is still to be sent thrown away
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def cutting(server: str) -> AbstractContextManager[CuttingProxy]:
    return closing(CuttingProxy(server))

"""TCP proxies: one that cuts connections, one that is far away, one that speaks HTTP's CONNECT."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import closing, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_PIECE = 65536
_END_OF_HEAD = b"\r\n\r\n"


class Proxy:
    """Listens on a port of its own; a subclass says what it does with a connection."""

    def __init__(self, server: str) -> None:
        self.lead_to(server)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._sockets: set[socket.socket] = set()
        self._start(self._accept)

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
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _connected(self) -> socket.socket:
        server = socket.create_connection(self._server)
        self._sockets.add(server)
        return server

    @staticmethod
    def _start(run: object, *arguments: object) -> None:
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

    def _serve(self, client: socket.socket) -> None:
        server = self._connected()
        cut = self.cut_always or (self.cuts.pop(0) if self.cuts else Cut())
        self._start(self._forward, client, server, cut.to_server)
        self._start(self._forward, server, client, cut.to_client)

    def _forward(self, source: socket.socket, target: socket.socket, limit: int | None) -> None:
        left = float("inf") if limit is None else limit
        with suppress(OSError):
            while left > 0 and (data := source.recv(int(min(left, _PIECE)))):
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


class DelayingProxy(Proxy):
    """Holds back every byte for so many seconds, as a long way does."""

    def __init__(self, server: str, seconds: float) -> None:
        self._seconds = seconds
        super().__init__(server)

    def _serve(self, client: socket.socket) -> None:
        server = self._connected()
        for source, target in ((client, server), (server, client)):
            pieces: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            self._start(self._take, source, pieces)
            self._start(self._give, target, pieces)

    def _take(self, source: socket.socket, pieces: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(_PIECE)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + self._seconds, data))

    @staticmethod
    def _give(target: socket.socket, pieces: SimpleQueue[tuple[float, bytes]]) -> None:
        with suppress(OSError):
            while True:
                due, data = pieces.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)


class ConnectProxy(Proxy):
    """Knows CONNECT alone, and hosts that nobody else knows.

    ``hosts``: where its names for servers lead; ``login``: NAME:PASSWORD in base64 that callers
    have to bring, if any.
    """

    def __init__(self, hosts: dict[str, str], login: str = "") -> None:
        self._hosts, self._login = hosts, login
        self.servers: list[str] = []
        """Those that callers named."""
        self.sent = bytearray()
        """What clients sent through it."""
        super().__init__("")

    def _serve(self, client: socket.socket) -> None:
        self._start(self._answer, client)

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError):  # it has hung up, or the proxy was closed
            head = b""
            while _END_OF_HEAD not in head:
                if not (data := client.recv(4096)):
                    return
                head += data
            method, server, _ = head.split(b"\r\n")[0].decode().split(" ")
            self.servers.append(server)
            status = self._status(method, server, head)
            client.sendall(f"HTTP/1.1 {status} said\r\n\r\n".encode())
            if status == 200:  # of HTTP
                self._join(client, self._hosts[server])

    def _status(self, method: str, server: str, head: bytes) -> int:
        if method != "CONNECT":
            return 405
        if self._login and f"Proxy-Authorization: Basic {self._login}".encode() not in head:
            return 407
        return 200 if server in self._hosts else 403

    def _join(self, client: socket.socket, server: str) -> None:
        self.lead_to(server)
        upstream = self._connected()
        self._start(self._forward, upstream, client, None)
        self._forward(client, upstream, self.sent)

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket, seen: bytearray | None) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                if seen is not None:
                    seen += data
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def cutting(server: str) -> AbstractContextManager[CuttingProxy]:
    return closing(CuttingProxy(server))


def delaying(server: str, seconds: float) -> AbstractContextManager[DelayingProxy]:
    return closing(DelayingProxy(server, seconds))


def proxying(hosts: dict[str, str], login: str = "") -> AbstractContextManager[ConnectProxy]:
    return closing(ConnectProxy(hosts, login))

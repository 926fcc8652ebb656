"""An HTTP proxy that knows CONNECT alone, and hosts that nobody else knows."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_END = b"\r\n\r\n"


class ConnectProxy:
    """Listens on a port of its own. ``hosts``: where its names for servers lead."""

    def __init__(self, hosts: dict[str, str], login: str = "") -> None:
        self._hosts, self._login = hosts, login
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[str] = []
        """The servers that were asked for."""
        self.sent = bytearray()
        """What clients sent through it."""
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes who waits at it
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):  # it has hung up, or the proxy was closed
            self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        head = b""
        while _END not in head:
            if not (data := client.recv(4096)):
                return
            head += data
        method, server, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.asked.append(server)
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
        host, _, port = server.rpartition(":")
        upstream = socket.create_connection((host, int(port)))
        self._sockets.append(upstream)
        down = threading.Thread(target=self._forward, args=(upstream, client, None), daemon=True)
        down.start()
        self._forward(client, upstream, self.sent)

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket, seen: bytearray | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if seen is not None:
                    seen += data
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxying(hosts: dict[str, str], login: str = "") -> Iterator[ConnectProxy]:
    """``login``: NAME:PASSWORD in base64 that callers have to bring, if any."""
    proxy = ConnectProxy(hosts, login)
    try:
        yield proxy
    finally:
        proxy.close()

"""A TCP proxy that holds back every byte for a while, as a long way does."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 65536


class DelayingProxy:
    """Listens on a port of its own; ``seconds``: of one way."""

    def __init__(self, server: str, seconds: float) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._seconds = seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._threads.pop(0).join()
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes who receives
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._sockets):
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(self._server)
                self._sockets += (client, server)
                for source, target in ((client, server), (server, client)):
                    pieces: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                    for run, end in (self._take, source), (self._give, target):
                        thread = threading.Thread(target=run, args=(end, pieces))
                        self._threads.append(thread)
                        thread.start()

    def _take(self, source: socket.socket, pieces: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(_PIECE)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + self._seconds, data))

    def _give(self, target: socket.socket, pieces: SimpleQueue[tuple[float, bytes]]) -> None:
        with suppress(OSError):
            while True:
                due, data = pieces.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)


@contextmanager
def delaying(server: str, seconds: float) -> Iterator[DelayingProxy]:
    proxy = DelayingProxy(server, seconds)
    try:
        yield proxy
    finally:
        proxy.close()

"""All connections of frames: who may connect, how many there may be, how they end."""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING

from npucall.errors import QueueFullError
from npucall.texts import retry_in
from npucall.wire.headers import join_hello
from npucall_server import retries
from npucall_server.accounts.ledger import Ledger
from npucall_server.carriers.connections import IDLE_SECONDS
from npucall_server.carriers.frames.connection import FrameConnection
from npucall_server.carriers.frames.frame_parts import FrameParts
from npucall_server.carriers.frames.readers import Readers
from npucall_server.carriers.multiplex.stream import STREAM_WINDOW

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from npucall_server.accounts.budget import Budget
    from npucall_server.calls.beginning import Executions
    from npucall_server.carriers.door import Door, Exchange
    from npucall_server.carriers.frames.tls_socket import TlsSocket
    from npucall_server.carriers.peers import Peers
    from npucall_server.carriers.threads import Threads
    from npucall_server.shared.regions import Regions

_MOST_STRANGERS = 64
"""Connections whose callers are not known yet. The oldest ends for a newer one."""
_STRANGER_SECONDS = 5.0


class FrameService:
    """Opens connections. Somebody has to call ``look`` every second."""

    def __init__(  # noqa: PLR0913  # what calls need on any carrier
        self,
        executions: Executions,
        budget: Budget,
        door: Door,
        peers: Peers,
        threads: Threads,
        room: Ledger,
        streams: Exchange,
        regions: Regions,
    ) -> None:
        most = budget.frame_connections
        self.places = Ledger(most, lambda *_: _too_many(most))
        self.instance = door.identity.instance
        hello = join_hello(self.instance, budget.frame_bytes, STREAM_WINDOW)
        self._connections: dict[FrameConnection, None] = {}
        """The oldest first."""
        self._parts = FrameParts(
            executions, door, peers, threads, self.places, room, budget, streams, regions,
            hello, self._connections,
        )  # fmt: skip
        self._readers = Readers() if hasattr(select, "epoll") else None
        """Elsewhere each connection has a thread."""

    def open(
        self,
        connection: socket.socket | TlsSocket,
        peer: str,
        of_user: Callable[[], str] = str,
        holders: tuple[str, ...] = (),
    ) -> None:
        """Serves a connection until it ends; until its caller is known, in a thread of its own.

        ``of_user``: gives the credential of the user who connected, empty if it has none.
        ``holders``: of memory that it shares; none if it is of another host.
        """
        opened = FrameConnection(connection, peer, self._parts, of_user, holders)
        strangers = [each for each in self._connections.copy() if each.place is None]
        for oldest in strangers[: max(len(strangers) - _MOST_STRANGERS + 1, 0)]:
            oldest.cancel()
        self._connections[opened] = None
        try:
            threading.Thread(
                target=self._serve, args=(opened,), name="npucall-frames", daemon=True
            ).start()
        except RuntimeError:  # the system has no more threads
            self._connections.pop(opened)
            connection.close()

    def look(self) -> None:
        """Ends connections that have been idle for long, and doubts credentials that have ended."""
        now = time.monotonic()
        arrived_before = self._parts.peers.clock() - _STRANGER_SECONDS
        for each in self._connections.copy():
            if each.place is None:
                if each.came < arrived_before:
                    each.cancel()
                continue
            idle_since = each.place.idle_since
            if idle_since is not None and now - idle_since > IDLE_SECONDS:
                each.cancel()
            each.look()

    def close(self) -> None:
        """Ends all connections."""
        for each in self._connections.copy():
            each.cancel()

    def _serve(self, connection: FrameConnection) -> None:
        if not connection.enter():
            return
        if self._readers is not None:
            self._readers.serve(connection)
            return
        while connection.step():
            pass


def _too_many(limit: int) -> QueueFullError:
    return QueueFullError(
        f"all connections of frames are in use (max_connections = {limit}); "
        f"{retry_in(retries.STREAM)}",
        retry_after=retries.STREAM,
        limit=str(limit),
        setting="max_connections",
    )

"""Opens the connections of a link, and knows those that are open."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from npucall_client.sending.frames.frame_connection import CallConnection
from npucall_client.sending.frames.frame_places import context_of
from npucall_client.sending.frames.tls_layer import TlsLayer

if TYPE_CHECKING:
    import ssl

    from npucall_client.sending.channels import RenewedChannels
    from npucall_client.sending.frames.frame_places import FramesPlace
    from npucall_client.sending.senders import Files, Sender
    from npucall_client.settings import ClientSettings


class FrameOpener:
    """``channels``: know what the files of certificates say."""

    def __init__(self, settings: ClientSettings, sender: Sender, channels: RenewedChannels) -> None:
        self._settings, self._sender, self._channels = settings, sender, channels
        self.every: set[CallConnection] = set()
        self._is_closed = False
        self._context: tuple[Files, ssl.SSLContext] | None = None
        self._lock = threading.Lock()
        """For that."""

    async def entered(
        self, place: FramesPlace, authorization: str, instance: str, ends: float
    ) -> CallConnection:
        """A connection on which the server takes calls.

        Raises OSError, EOFError, ValueError for certificates, the error of a server that refuses.
        """
        files = self._channels.files()
        context = self._tls(files) if place.name and files is not None else None
        socket = await self._sender.frame_socket(place, ends)
        tls = None if context is None else TlsLayer(socket, context, place.name)
        connection = CallConnection(tls or socket, authorization, files)
        connection.is_near = bool(place.path)
        self.every.add(connection)
        try:
            self._check_open()
            if tls is not None:
                await tls.handshake()
            await connection.enter(instance)
            self._check_open()
        except BaseException:
            self.end(connection)
            raise
        return connection

    def end(self, connection: CallConnection) -> None:
        """Ends a connection that nobody uses; a call that runs there ends too."""
        self.every.discard(connection)
        connection.socket.cut()
        connection.socket.close()

    def close(self) -> None:
        """Whoever uses a connection hears that it has ended."""
        self._is_closed = True
        for connection in self.every.copy():
            connection.socket.cut()

    def forget(self) -> None:
        """In a forked process: the connections are those of the other one."""
        every, self.every = self.every, set()
        self._lock = threading.Lock()
        for connection in every:
            connection.socket.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EOFError

    def _tls(self, files: Files) -> ssl.SSLContext:
        with self._lock:
            if self._context is None or self._context[0] is not files:
                self._context = files, context_of(files, self._settings)
            return self._context[1]

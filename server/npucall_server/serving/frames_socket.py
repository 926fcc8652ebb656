"""The Unix socket where frames come in (``frames.proto``)."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_server.shared import unix_sockets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from npucall_server.access.tenants_guard import TenantsGuard
    from npucall_server.carriers.frames.frame_service import FrameService

_PAUSE_SECONDS = 0.1
_REFUSED_SECONDS = 0.001
"""A pause after each refusal, so that a client that tries again and again costs little."""


class FramesSocket:
    """Listens on a path. Raises OSError if the path cannot be used.

    ``users`` may connect in addition to the server's own user. With a ``guard`` everybody may
    connect, and shows who it is.
    """

    def __init__(
        self,
        path: Path,
        users: Iterable[int],
        service: FrameService,
        guard: TenantsGuard | None = None,
    ) -> None:
        self._path, self._service, self._guard = path, service, guard
        self._users = {os.geteuid(), *users}
        is_open = guard is not None or self._users - {os.geteuid()}
        # The system's word decides who may connect; the mode only keeps others from trying.
        self._listener = unix_sockets.listening(
            path, socket.SOCK_STREAM, 0o666 if is_open else 0o600
        )
        self._inode = path.stat().st_ino
        self._thread = threading.Thread(target=self._accept, name="npucall-accept", daemon=True)

    def start(self) -> None:
        """Accepts connections from now on."""
        self._thread.start()

    def close(self) -> None:
        """Accepts no more, and removes the file, unless another one has replaced it."""
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # such as no descriptor left: it would be ready again at once
                time.sleep(_PAUSE_SECONDS)
                continue
            process, user = unix_sockets.who_connected(connection)
            if self._guard is None and user not in self._users:
                connection.close()
                time.sleep(_REFUSED_SECONDS)
                continue
            holders = [f"one process {process}"]
            if self._guard is None and len(self._users) > 1:
                holders.append(f"one user {user}")
            of_user = partial(self._credential_of, user)
            self._service.open(connection, f"unix:{process}", of_user, tuple(holders))

    def _credential_of(self, user: int) -> str:
        """The credential of a user of this host; empty if it belongs to no tenant."""
        if self._guard is None:
            return ""
        try:
            return self._guard.credential_of(user)[0]
        except NpucallError:
            return ""

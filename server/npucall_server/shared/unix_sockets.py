"""Unix sockets of this server: where they listen, and who connects."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PAUSE_SECONDS = 0.1
"""Until a connection is accepted again after that has failed: it would be ready at once."""
REFUSED_SECONDS = 0.001
"""A pause after each refusal, so that a client that tries again and again costs little."""
_PROBE_SECONDS = 1.0
_BACKLOG = 512
"""Connections that wait to be accepted; the system refuses more at once."""
_CREDENTIALS = struct.Struct("iII")
"""C's ``struct ucred``: process, user, group."""


class UnixListener:
    """Listens on a path, and says who may connect. Raises OSError if the path cannot be used.

    ``users`` may, in addition to the server's own user; or ``everybody``, who then shows who it is.
    """

    def __init__(
        self, path: Path, kind: socket.SocketKind, users: Iterable[int], *, everybody: bool
    ) -> None:
        self._path, self._everybody = path, everybody
        self._users = {os.geteuid(), *users}
        # The system's word decides who may connect; the mode only keeps others from trying.
        is_open = everybody or len(self._users) > 1
        self.socket = _listening(path, kind, 0o666 if is_open else 0o600)
        self._inode = path.stat().st_ino

    def lets_in(self, user: int) -> bool:
        """Whether a user may connect."""
        return self._everybody or user in self._users

    def holders(self, process: int, user: int) -> list[str]:
        """What memory counts for, each with at most half: the process, and one of several users."""
        one_of_several = not self._everybody and len(self._users) > 1
        return [f"one process {process}", *([f"one user {user}"] if one_of_several else [])]

    def remove(self) -> None:
        """Removes the file, unless another file has replaced it."""
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def who_connected(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end: unix(7), SO_PEERCRED."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return process, user


def _listening(path: Path, kind: socket.SocketKind, mode: int) -> socket.socket:
    _clear(path, kind)
    listener = socket.socket(socket.AF_UNIX, kind)
    try:
        listener.bind(str(path))
        path.chmod(mode)  # before it listens: nobody else gets in first
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _clear(path: Path, kind: socket.SocketKind) -> None:
    """Removes a socket on which nobody listens. Raises FileExistsError for any other file."""
    if not path.exists():
        return
    if not path.is_socket():
        raise FileExistsError("a file is there that is not a socket")
    with socket.socket(socket.AF_UNIX, kind) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:  # one of another type, or one that is busy
            pass
    raise FileExistsError("another server uses it")

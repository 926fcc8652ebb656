"""Unix sockets of this server: where they listen, and who connects."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PROBE_SECONDS = 1.0
_BACKLOG = 512
"""Connections that wait to be accepted; the system refuses more at once."""
_CREDENTIALS = struct.Struct("iII")
"""C's ``struct ucred``: process, user, group."""


def who_connected(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end: unix(7), SO_PEERCRED."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return process, user


def listening(path: Path, kind: socket.SocketKind, mode: int) -> socket.socket:
    """A socket that listens at a path. Raises OSError if the path cannot be used."""
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

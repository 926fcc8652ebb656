"""Unix sockets of this server: where they listen, and who connects."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PAUSE_SECONDS = 0.1
"""Until a connection is accepted again after that has failed: it would be ready at once."""
REFUSED_SECONDS = 0.001
"""A pause after each refusal, so that a client that tries again and again costs little."""
_PROBE_SECONDS = 1.0
_TRIES = 20
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


def own_folder(kind: socket.SocketKind, *, everybody: bool) -> Path:
    """A folder of this user alone for sockets of that kind. Raises OSError.

    Only this user can make files there, so a socket in it is of one of his servers; those that
    nobody listens on are removed. ``everybody``: others may connect to what is in it.
    """
    folder = Path(tempfile.gettempdir(), f"npucall-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise FileExistsError(f"{folder}: expected a folder that only this user can change")
    if everybody:
        folder.chmod(0o711)
    with _alone(folder):
        for path in folder.glob("*.sock"):
            with suppress(OSError):
                _clear(path, kind)
    return folder


def _listening(path: Path, kind: socket.SocketKind, mode: int) -> socket.socket:
    with _alone(path.parent):
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


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other server makes a socket there: one that does not listen yet looks as one of nobody."""
    with ExitStack() as held:
        with suppress(PermissionError):  # one may make files in it, and not list them
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            _lock(descriptor)
        yield


def _lock(descriptor: int) -> None:
    """Not for ever, since whoever can read a folder could hold it."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(PAUSE_SECONDS)


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

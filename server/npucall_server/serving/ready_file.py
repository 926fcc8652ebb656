"""Tells others that the server is ready: by a file, and systemd over its socket.

The file appears all at once, and nothing is written into a file of somebody else.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path

from npucall_server.settings.listening import socket_of_systemd

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def write(path: Path, text: str) -> None:
    """Puts a file with all of its content at a path at once. It replaces a file that is there.

    If somebody put a file or link at the path or at the draft's path, it is neither written to nor
    followed. Raises OSError.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(draft, _NEW_FILE, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def tell_systemd(state: str) -> None:
    """Tells the service manager READY=1 or STOPPING=1, if it wants to know: sd_notify(3)."""
    where = socket_of_systemd()
    if where:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), where.replace("@", "\0", 1) if where[0] == "@" else where)

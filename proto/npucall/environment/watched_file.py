"""A file that is read again when it changes: certificates, tokens, tenants, keys of an issuer."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

LARGEST = 16 * 2**20
"""Bytes; a larger file must be a mistake."""
_SETTLED_SECONDS = 2.0
"""After which a file's time tells apart what is written to it: file systems count in ticks."""


class WatchedFile:
    """Returns the bytes of a file each time that they have changed.

    It reads the file again if its time, size or inode has changed: the file was written in place,
    or replaced, as ``mv`` and the links of Kubernetes do. Safe to use from several threads; one of
    them sees the change.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = b""
        """What ``changed`` answered last."""
        self._state: tuple[int, ...] | None = None
        self._is_settled = False
        self._lock = threading.Lock()

    def changed(self) -> bytes | None:
        """The bytes, if they have changed since the last call, else None.

        The first call returns them. Raises OSError if the file cannot be read; the next call tries
        again.
        """
        with self._lock:
            if self._is_settled and _state_of(self.path.stat()) == self._state:
                return None
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise OSError(f"expected at most {LARGEST} bytes in {self.path}, found more")
            is_first, self._state = self._state is None, _state_of(status)
            self._is_settled = abs(time.time() - status.st_mtime) > _SETTLED_SECONDS
            if content == self.content and not is_first:
                return None
            self.content = content
            return content


def _state_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev

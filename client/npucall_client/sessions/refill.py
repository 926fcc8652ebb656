"""What a client can prove of a session's handles: bytes that it has, and their SHA-256."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall_client.sessions.transport import Upload


class Proofs:
    """The arrays that were put into a session, and not changed since. Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[bytes, tuple[Upload, bytes]] = {}

    def __contains__(self, handle: bytes) -> bool:
        return handle in self._uploads

    def keep(self, upload: Upload) -> None:
        """Keeps an upload, whose array stays in memory as long as its handle is not released."""
        proof = upload.digest or sha256(upload.data).digest()
        with self._lock:
            self._uploads[upload.handle] = upload, proof

    def forget(self, handles: Iterable[bytes]) -> None:
        """They were released."""
        with self._lock:
            for handle in handles:
                self._uploads.pop(handle, None)

    def valid(self) -> list[Upload]:
        """Those whose arrays still hold the same bytes; the others are forgotten."""
        with self._lock:
            kept = list(self._uploads.values())
        valid, changed = [], []
        for upload, proof in kept:
            if sha256(upload.data).digest() == proof:
                valid.append(upload)
            else:
                changed.append(upload.handle)
        self.forget(changed)
        return valid

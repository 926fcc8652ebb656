"""The handles of a session that a client can fill again: it has their bytes, and their SHA-256."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall_client.sending.session_transport import HandleUpload


class Proofs:
    """The arrays that were put into a session, and not changed since. Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[bytes, tuple[HandleUpload, bytes]] = {}

    def __contains__(self, handle: bytes) -> bool:
        return handle in self._uploads

    def keep(self, upload: HandleUpload) -> None:
        """Keeps an upload; its array stays in memory until its handle is released."""
        proof = upload.digest or sha256(upload.data).digest()
        with self._lock:
            self._uploads[upload.handle] = upload, proof

    def forget(self, handles: Iterable[bytes]) -> None:
        """Forgets handles that were released."""
        with self._lock:
            for handle in handles:
                self._uploads.pop(handle, None)

    def valid(self) -> list[HandleUpload]:
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

"""Bytes that are kept by their SHA-256 while there is room for them. A miss is normal."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import NamedTuple

from npucall.tensors import Buffer
from npucall_server.accounts.ledger import Entry, Ledger

DIGEST_BYTES = 1 << 10
"""Each counts for so many bytes in addition to its own."""
_OWNER = "digests"
"""Whose the memory is, in its ledger."""
_MOST = 4096
"""The most digests of all tenants. This bounds the time to look through them."""


class _Kept(NamedTuple):
    data: Buffer
    entry: Entry


class Digests:
    """Bytes by tenant and SHA-256: at most ``limit`` of them, which count in ``memory``.

    Bytes used longest ago go first, if others or calls need the memory. The caller verifies bytes
    before it keeps them, and nobody changes them.
    """

    def __init__(self, limit: int, memory: Ledger) -> None:
        self._limit, self._memory = limit, memory
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, bytes], _Kept] = OrderedDict()
        self.hits = self.misses = 0
        """How often bytes were asked for that were kept, and that were not."""

    @property
    def used(self) -> int:
        """Bytes that are kept."""
        return self._memory.held(_OWNER)

    def find(self, tenant: str, sha256: bytes) -> Buffer | None:
        """The bytes of a tenant's digest; None if they are not kept."""
        key = tenant, sha256
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                self.misses += 1
                return None
            self.hits += 1
            self._kept.move_to_end(key)
            return kept.data

    def has(self, tenant: str, sha256: bytes) -> bool:
        """Whether the bytes are kept. Asking counts as a use."""
        return self.find(tenant, sha256) is not None

    def remember(self, tenant: str, sha256: bytes, data: Buffer) -> bool:
        """Keeps bytes. Bytes used longer ago make room for them. False if there is no room."""
        key, size = (tenant, sha256), len(data) + DIGEST_BYTES
        if size > self._limit:
            return False
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return True
            while self.used + size > self._limit or len(self._kept) >= _MOST:
                self._drop(self._next_to_go())
            entry = self._memory.hold_spare(_OWNER, size, lambda: self._yield(key))
            if entry is None:
                return False
            self._kept[key] = _Kept(memoryview(data).toreadonly(), entry)
            return True

    def _next_to_go(self) -> tuple[str, bytes]:
        """What the tenant with most has not used for longest."""
        sizes: Counter[str] = Counter()
        for (tenant, _), kept in self._kept.items():
            sizes[tenant] += kept.entry.amount
        most = max(sizes, key=sizes.__getitem__)
        return next(key for key in self._kept if key[0] == most)

    def _yield(self, key: tuple[str, bytes]) -> None:
        """Drops the bytes, since somebody needs the memory."""
        with self._lock:
            if key in self._kept:
                self._drop(key)

    def _drop(self, key: tuple[str, bytes]) -> None:
        self._kept.pop(key).entry.give_back()

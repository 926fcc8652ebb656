"""What is kept because it may be asked for again: bounded by bytes, and fair between owners."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, of at most so many bytes together.

    Where there is no room, the oldest value of the owner with the most bytes goes: whoever brings
    many values loses its own, not those of others. ``get`` takes no lock.
    """

    get: Callable[[K], V | None]

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0
        """Bytes of all values."""
        self._values: dict[K, V] = {}
        self.get = self._values.get
        self._owners: dict[str, _Owned[K]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def keep(self, key: K, value: V, size: int, owner: str = "") -> None:
        """Keeps a value of so many bytes for all, and charges it to its owner."""
        if size > self._most:
            return
        with self._lock:
            if key in self._values:  # another thread made it at the same time
                return
            self._values[key] = value
            owned = self._owners.setdefault(owner, _Owned())
            owned.sizes[key] = size
            owned.used += size
            self.used += size
            while self.used > self._most:
                self._drop_one()

    def _drop_one(self) -> None:
        owner, owned = max(self._owners.items(), key=lambda each: each[1].used)
        oldest = next(iter(owned.sizes))
        size = owned.sizes.pop(oldest)
        owned.used -= size
        self.used -= size
        del self._values[oldest]
        if not owned.sizes:
            del self._owners[owner]


class _Owned(Generic[K]):
    """What one owner has brought: the bytes of each value, the oldest first."""

    __slots__ = ("sizes", "used")

    def __init__(self) -> None:
        self.sizes: dict[K, int] = {}
        self.used = 0

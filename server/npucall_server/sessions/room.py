"""The memory of handles, within the budgets of session, tenant and server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from npucall.errors import HandleMemoryError, OutOfMemoryError, QueueFullError
from npucall_server.accounts.ledger import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.dtypes import DType
    from npucall_server.access.identity import Identity
    from npucall_server.accounts.ledger import Ledger
    from npucall_server.accounts.quotas import Held, Quotas
    from npucall_server.devices.base import Device, Resident

HANDLE_BYTES = 1 << 10
"""Bytes of the host that each handle counts for, in addition to what it holds."""
PAGE_BYTES = 1 << 12
"""Size of pages of a device's own memory. A handle takes whole pages, and counts for them."""
SESSION_BYTES = 1 << 18
"""Bytes of the host that each session counts for, mostly for ids that it remembers."""


class Budget:
    """Bytes that handles may hold; ``setting`` names what sets the limit."""

    def __init__(self, whose: str, limit: int, setting: str) -> None:
        self.limit, self.held = limit, 0
        self._whose, self._setting = whose, setting
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Raises HandleMemoryError if there is not so much left."""
        with self._lock:
            if self.held + size > self.limit:
                raise full(self._whose, self._setting, self.limit, self.held, size)
            self.held += size

    def give_back(self, size: int) -> None:
        """Gives back what was taken."""
        with self._lock:
            self.held -= size


class Room:
    """The memory of one handle, and all that has been counted for it so far."""

    __slots__ = ("_account", "host_bytes", "of_all", "of_session", "quota", "resident")

    def __init__(self, account: Account) -> None:
        self._account = account
        self.of_session = self.of_all = self.host_bytes = 0
        self.quota: Held | None = None
        self.resident: Resident | None = None

    @property
    def memory(self) -> Resident:
        """The memory of a handle that got all its room."""
        assert self.resident is not None  # noqa: S101  # Account.take has answered it
        return self.resident

    def give_back(self) -> None:
        """Frees the memory, and then no longer counts it. To be called once."""
        self._account.give_back(self)


class Account:
    """What one session holds of its own budget and of those that it shares with others."""

    def __init__(self, memory: HandleMemory, identity: Identity, budget: Budget) -> None:
        self.budget = budget
        self._memory = memory
        self._tenant = identity.tenant
        self._entry = Entry(memory.host, _Holder(identity.owner), 0, None)
        memory.host.grow(self._entry, SESSION_BYTES)

    def take(self, size: int, dtype: DType | None = None) -> Room:
        """Memory for a handle. Raises HandleMemoryError."""
        room = Room(self)
        try:
            self._take(room, size, dtype)
        except BaseException:
            room.give_back()
            raise
        return room

    def _take(self, room: Room, size: int, dtype: DType | None) -> None:
        memory = self._memory
        self.budget.take(size)
        room.of_session = size
        taken = memory.taken(size)
        memory.budget.take(taken)
        room.of_all = taken
        room.quota = memory.quotas.hold_handle(self._tenant, size)
        room.host_bytes = memory.count(self._entry, size)
        room.resident = memory.allocate(size, dtype)

    def give_back(self, room: Room) -> None:
        """Called by a room."""
        if room.resident is not None:
            room.resident.free()
        self._memory.host.shrink(self._entry, room.host_bytes)
        if room.quota is not None:
            room.quota.give_back()
        self._memory.budget.give_back(room.of_all)
        self.budget.give_back(room.of_session)

    def close(self) -> None:
        """The session has ended. Handles that are still read continue to count."""
        self._memory.host.shrink(self._entry, SESSION_BYTES)


class HandleMemory:
    """The memory that the handles of all sessions hold.

    ``host`` is the ledger of the host's memory. Handles of a device without its own memory count
    there too. ``make_room`` is called before so many bytes of it are taken.
    """

    def __init__(
        self,
        device: Device,
        limit: int,
        host: Ledger,
        quotas: Quotas,
        make_room: Callable[[int], object] = bool,
    ) -> None:
        self.budget = Budget("the handles of all sessions", limit, "handle_memory")
        self.host, self.quotas = host, quotas
        self._device, self._make_room = device, make_room
        self._is_host = device.memory_for_handles == 0

    def taken(self, size: int) -> int:
        """Bytes that a handle takes of the memory for handles."""
        return size if self._is_host else max(-(-size // PAGE_BYTES), 1) * PAGE_BYTES

    def count(self, entry: Entry, size: int) -> int:
        """Has a handle count for what it takes of the host, which is answered."""
        taken = HANDLE_BYTES + (size if self._is_host else 0)
        try:
            self.host.grow(entry, taken)
        except QueueFullError as error:
            limit, held = self.host.limit, self.host.used
            raise full("calls and handles", "memory_limit", limit, held, taken) from error
        if self._is_host:
            self._make_room(size)
        return taken

    def allocate(self, size: int, dtype: DType | None = None) -> Resident:
        """Memory of the device. Raises HandleMemoryError if the device has none."""
        try:
            return self._device.allocate(size, dtype)
        except (OutOfMemoryError, MemoryError) as error:
            limit, held = self.budget.limit, self.budget.held - self.taken(size)
            raise HandleMemoryError(
                f"the device has no {size} bytes free for the handle ({error}); handles hold "
                f"{held} bytes (handle_memory = {limit}): release some",
                limit=str(limit),
                held=str(held),
                wanted=str(size),
                setting="handle_memory",
            ) from error


def full(whose: str, setting: str, limit: int, held: int, wanted: int) -> HandleMemoryError:
    """The error of a budget that is used up."""
    return HandleMemoryError(
        f"{whose} hold {held} bytes and this one needs {wanted} more ({setting} = {limit}); "
        "release handles",
        limit=str(limit),
        held=str(held),
        wanted=str(wanted),
        setting=setting,
    )


class _Holder:
    """Of a session, which is bound to no connection."""

    peer = ""

    def __init__(self, owner: str) -> None:
        self.owner = owner

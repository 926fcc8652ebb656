"""Room for handles: what they take of the device and the host, within the limits of all levels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from npucall.dtypes import DType
from npucall.errors import HandleMemoryError, QueueFullError
from npucall_server.access.identity import Identity
from npucall_server.accounts.ledger import Entry, Holder, Ledger, Quota
from npucall_server.devices.base import Device, Resident

HANDLE_BYTES = 1 << 10
"""Bytes of the host that each handle counts for, in addition to what it holds."""
PAGE_BYTES = 1 << 12
"""Size of pages of a device's own memory. A handle takes whole pages, and counts for them."""
SESSION_BYTES = 1 << 18
"""Bytes of the host that each session counts for, mostly for ids that it remembers."""


class HandleRoom:
    """The memory that the handles of all sessions hold.

    ``host`` is the ledger of the host's memory. Handles of a device without its own memory count
    there too. ``quota``: what those of a tenant may hold. ``make_room`` is called before so many
    bytes of the host are taken.
    """

    def __init__(
        self,
        device: Device,
        limit: int,
        host: Ledger,
        quota: Quota | None = None,
        make_room: Callable[[int], object] = bool,
    ) -> None:
        self.ledger = Ledger(limit, partial(_full, "the handles of all sessions", "handle_memory"))
        """Bytes of the device, in whole pages."""
        self._sizes = Ledger(quota=quota)
        """Bytes of handles, by session and tenant."""
        self._device, self._host, self._make_room = device, host, make_room
        self._is_host = device.memory_for_handles == 0

    @property
    def ledgers(self) -> tuple[Ledger, Ledger]:
        """Of the device, and of the host."""
        return self.ledger, self._host

    def open(self, identity: Identity, limit: int, setting: str) -> SessionRoom:
        """Room for a session, whose handles hold at most ``limit``. Raises QueueFullError."""
        refusal = partial(_full, "the handles of the session", setting)
        sizes = self._sizes.child(identity.tenant, limit, refusal)
        own = self._host.hold(identity.owner, SESSION_BYTES, identity.tenant)
        return SessionRoom(self, identity, sizes, own)

    def take(self, room: SessionRoom, size: int, dtype: DType | None) -> Allocation:
        """Memory for a handle of a session. Raises HandleMemoryError."""
        made, identity = Allocation(room), room.identity
        try:
            made.entries.append(self._sizes.take_for(room.sizes, size))
            pages = size if self._is_host else max(-(-size // PAGE_BYTES), 1) * PAGE_BYTES
            made.entries.append(
                self.ledger.hold(identity.owner, pages, identity.tenant, room.gives_way)
            )
            made.entries.append(self._of_host(room, size))
            made.resident = self._allocate(size, pages, dtype)
        except BaseException:
            made.give_back()
            raise
        return made

    def _of_host(self, room: SessionRoom, size: int) -> Entry:
        taken, who = HANDLE_BYTES + (size if self._is_host else 0), room.identity
        yields = room.gives_way if room.is_refillable else None  # others have their own limit
        try:
            entry = self._host.hold(who.owner, taken, who.tenant, yields)
        except QueueFullError as error:
            raise _full("calls and handles", "memory_limit", self._host, taken) from error
        if self._is_host:
            self._make_room(size)
        return entry

    def _allocate(self, size: int, pages: int, dtype: DType | None) -> Resident:
        try:
            return self._device.allocate(size, dtype)
        except MemoryError as error:
            limit, held = self.ledger.limit, self.ledger.used - pages
            raise HandleMemoryError(
                f"the device has no {size} bytes free for the handle ({error}); handles hold "
                f"{held} bytes (handle_memory = {limit}): release some",
                limit=str(limit),
                held=str(held),
                wanted=str(size),
                setting="handle_memory",
            ) from error


class SessionRoom:
    """What one session holds of its own limit and of those that it shares with others."""

    def __init__(self, room: HandleRoom, identity: Identity, sizes: Holder, own: Entry) -> None:
        self.identity, self.sizes = identity, sizes
        self._room, self._own = room, own
        self.gives_way: Callable[[], object] | None = None
        """Ends the session for others, unless a call uses it."""
        self.is_refillable = False
        """Whether its caller can fill all handles again."""
        self._was_used = False
        self.allocations: dict[Allocation, None] = {}
        """What its handles hold."""

    def tell_idle(self, since: float | None, *, is_used: bool) -> None:
        """What its handles hold is idle since then, if they can be filled again."""
        if not (self.is_refillable or is_used or self._was_used):
            return
        self._was_used = is_used
        for each in tuple(self.allocations):
            for entry in each.giving_way:
                entry.yields = None if is_used else self.gives_way
                entry.idle_since = since if self.is_refillable else None

    @property
    def limit(self) -> int:
        """Bytes that its handles may hold."""
        return self.sizes.limit

    @property
    def used(self) -> int:
        """Bytes that its handles hold."""
        return self.sizes.used

    def take(self, size: int, dtype: DType | None = None) -> Allocation:
        """Memory for a handle. Raises HandleMemoryError."""
        made = self._room.take(self, size, dtype)
        self.allocations[made] = None
        return made

    def give_back(self) -> None:
        """The session has ended. Handles that are still read continue to count."""
        self.gives_way = None  # what has ended keeps nothing alive
        self._own.give_back()


class Allocation:
    """The memory of one handle, and all that has been counted for it so far."""

    __slots__ = ("_room", "entries", "resident")

    def __init__(self, room: SessionRoom) -> None:
        self._room = room
        self.entries: list[Entry] = []
        self.resident: Resident | None = None

    @property
    def giving_way(self) -> list[Entry]:
        """What others may ask for: room for handles, and of the host if they can be refilled."""
        return self.entries[1 : 3 if self._room.is_refillable else 2]

    @property
    def memory(self) -> Resident:
        """The memory of a handle that got all its room."""
        assert self.resident is not None  # noqa: S101  # HandleRoom has answered it
        return self.resident

    def give_back(self) -> None:
        """Frees the memory, and then no longer counts it. To be called once."""
        self._room.allocations.pop(self, None)
        if self.resident is not None:
            self.resident.free()
        for entry in reversed(self.entries):
            entry.give_back()


def _full(whose: str, setting: str, full: Holder | Ledger, wanted: int) -> HandleMemoryError:
    """The error of a limit that is used up."""
    return HandleMemoryError(
        f"{whose} hold {full.used} bytes and this one needs {wanted} more "
        f"({setting} = {full.limit}); release handles",
        limit=str(full.limit),
        held=str(full.used),
        wanted=str(wanted),
        setting=setting,
    )

"""Memory that clients on this host share with the server: made here, sealed, named at random."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections.abc import Collection
from contextlib import ExitStack
from weakref import finalize

from npucall.errors import (
    OutOfMemoryError,
    QueueFullError,
    SharedMemoryError,
    TensorLayoutError,
    TooLargeError,
)
from npucall.limits import MAX_REGIONS, REGION_ID_BYTES
from npucall.places import RegionPart
from npucall.texts import retry_in
from npucall_server import retries
from npucall_server.access.identity import Identity
from npucall_server.accounts.ledger import Holder, Ledger, Quota
from npucall_server.retries import refusal

_OWNER = "shared memory"
"""Whose the memory is, in its ledger: regions have limits of their own."""
_ANYBODY = "anybody"
"""Whose regions are where nobody has to show who he is."""


class Regions:
    """All memory that the server shares, at most ``limit`` bytes, which count in ``memory``.

    Each holder has at most half of that, and half of the number of regions. So one that takes all
    it can leaves something to others. ``quota``: what the callers of a tenant have together.

    A region can be viewed until it is given back. It stays mapped, and counts, until its last view
    has gone too. So no memory is ever unmapped while a call uses it. One thread creates and
    gives back; any thread may view.
    """

    def __init__(self, limit: int, memory: Ledger, quota: Quota | None = None) -> None:
        self._limit = min(limit, memory.limit)
        self._memory = memory
        self._shared = Ledger(self._limit, _no_room, quota)
        self._shares = Ledger()
        """What each holder has, of all that holders have."""
        self._viewable: dict[bytes, tuple[memoryview, Identity | None]] = {}
        """Regions, and whose calls may name them."""

    @property
    def bytes_taken(self) -> int:
        """Bytes of all that is mapped, in whole pages."""
        return self._shared.used

    def create(
        self, size: int, holders: Collection[str] = (), whose: Identity | None = None
    ) -> tuple[bytes, int]:
        """Makes a region of zeros. Answers its id, and a descriptor that the caller has to close.

        ``holders``: its holders, as errors name them ("one process"), each followed by a number.
        Only calls of ``whose`` may name it; None: calls of anybody who knows its id. Raises
        TooLargeError, QueueFullError, QuotaError and OutOfMemoryError.
        """
        pages = _in_pages(size)
        self._check_room(pages)
        for holder in holders:
            self._check_share(pages, holder)
        owner, tenant = (whose.person, whose.tenant) if whose is not None else (_ANYBODY, "")
        with ExitStack() as held:
            held.callback(self._shared.hold(owner, pages, tenant).give_back)
            for holder in holders:
                held.callback(self._shares.hold(holder, pages).give_back)
            held.callback(self._memory.hold(_OWNER, pages).give_back)
            try:
                descriptor, mapping = _sealed(size)
            except (OSError, OverflowError) as error:
                raise OutOfMemoryError(
                    f"the host has no {size} bytes of memory to share: {error}"
                ) from error
            finalize(mapping, held.pop_all().close)
        name = secrets.token_bytes(REGION_ID_BYTES)
        self._viewable[name] = memoryview(mapping), whose
        return name, descriptor

    def give_back(self, name: bytes) -> None:
        """Gives no more views of a region."""
        self._viewable.pop(name, None)

    def view(self, region: RegionPart, name: str, person: str = "") -> memoryview:
        """The bytes of a part for the tensor ``name``, writable. ``person``: who asks.

        The client sees them and may change them at any time. Raises SharedMemoryError if the id is
        unknown or somebody else's, and TensorLayoutError if the part is not inside the memory.
        """
        memory, whose = self._viewable.get(region.id, (None, None))
        if memory is None or (whose is not None and whose.person != person):
            raise SharedMemoryError(
                f"{name}: expected memory that this server shares, found an unknown id: somebody "
                "gave the memory back, or the server has restarted; send the bytes instead",
                parameter=name,
            )
        end = region.offset + region.length
        if end > len(memory):
            raise TensorLayoutError(
                f"{name}: expected a part of {len(memory)} bytes of shared memory, found bytes "
                f"{region.offset} to {end}",
                parameter=name,
            )
        return memory[region.offset : end]

    def _check_room(self, size: int) -> None:
        if size > self._limit:
            raise TooLargeError(
                f"shared memory: expected at most {self._limit} bytes (setting "
                f"shared_memory_limit), found {size}",
                limit=str(self._limit),
                setting="shared_memory_limit",
            )
        if self._memory.parts(_OWNER) >= MAX_REGIONS:
            sentence = f"{MAX_REGIONS} regions of shared memory are in use, as many as may be"
            raise refusal(QueueFullError, sentence, retries.SHARED_MEMORY, limit=MAX_REGIONS)

    def _check_share(self, size: int, holder: str) -> None:
        share = self._limit // 2
        kind = holder.rstrip("0123456789 ")
        if size > share:
            raise TooLargeError(
                f"shared memory: expected at most {share} bytes for {kind}, half of the setting "
                f"shared_memory_limit, found {size}",
                limit=str(share),
                setting="shared_memory_limit",
            )
        taken, regions = self._shares.held(holder), self._shares.parts(holder)
        if taken + size > share or regions >= MAX_REGIONS // 2:
            raise QueueFullError(
                f"{kind} holds {taken} bytes of shared memory in {regions} regions and asks for "
                f"{size} more; it may have {share} bytes, half of shared_memory_limit, in "
                f"{MAX_REGIONS // 2} regions: give some back, or {retry_in(retries.SHARED_MEMORY)}",
                retry_after=retries.SHARED_MEMORY,
                limit=str(share),
                setting="shared_memory_limit",
            )


def _no_room(shared: Holder, size: int) -> QueueFullError:
    sentence = (
        f"shared memory has {shared.limit - shared.used} bytes free, and {size} were asked for "
        f"(shared_memory_limit = {shared.limit})"
    )
    told = {"limit": shared.limit, "setting": "shared_memory_limit"}
    return refusal(QueueFullError, sentence, retries.SHARED_MEMORY, **told)


def _sealed(size: int) -> tuple[int, mmap.mmap]:
    """A memory file that nobody can truncate, and its mapping.

    Its pages are allocated at once: if the system had no page for a later access, it would kill the
    process. A client may still give pages back (FALLOC_FL_PUNCH_HOLE); zeros take their place.
    """
    descriptor = os.memfd_create("npucall", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return descriptor, mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except BaseException:
        os.close(descriptor)
        raise


def _in_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE

"""The entries of an upload: bytes on their way into handles, or to be kept by their digests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from hashlib import sha256

import numpy as np

from npucall.errors import DigestMismatchError, MissingError, TooLargeError
from npucall.exchange import Chunk, Receiving
from npucall.memory import fresh
from npucall.tensors import Buffer
from npucall.wire.uploads import UploadEntry
from npucall_server.access.callers import Caller
from npucall_server.accounts.ledger import Entry
from npucall_server.scheduling.executor import Executor
from npucall_server.services.sessions.kept import Kept
from npucall_server.sessions.session import Filling, OpenSession


class Entries:
    """All entries of one upload. They are filled together, or none is filled.

    One thread opens them, takes chunks and ends them. ``end_upload`` ends the upload if others ask
    for its memory.
    """

    def __init__(
        self,
        entries: Sequence[UploadEntry],
        kept: Kept,
        caller: Caller,
        end_upload: Callable[[], object],
    ) -> None:
        self._kept, self._caller = kept, caller
        self._memory = _Memory(kept.executor, caller, end_upload)
        self._session = ExitStack()
        self._fills: OpenSession | None = None
        self._entries = made = [_Entry(entry, self._memory) for entry in entries]
        sizes = [entry.length for entry in entries]
        self._receiving = Receiving(
            "the upload", sizes, lambda chunk: made[chunk.storage].take(chunk)
        )
        self.remembered = [False] * len(entries)
        """Whether each entry is kept by its digest."""

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return self._receiving.received

    def open(self) -> None:
        """Begins to fill the handles. Raises the errors of sessions."""
        handles = [entry.asked.handle for entry in self._entries if entry.asked.handle]
        if not handles:
            return
        self._fills = session = self._kept.sessions.of(self._caller, handles)
        self._session.enter_context(session.use())
        for entry in self._entries:
            handle, size, digest, dtype = entry.asked
            if handle:
                entry.filling = session.fill(handle, size, _identity(digest), dtype)

    def take(self, chunk: Chunk) -> None:
        """The next part of an entry. Raises MessageError where it does not fit."""
        self._memory.moved()
        self._receiving.take(chunk)

    def end(self) -> None:
        """All bytes have come: verifies them, fills the handles, and keeps bytes with a digest.

        Raises MessageError, MissingError, DigestMismatchError and the error of an ended session;
        then nothing has been filled.
        """
        unsent = [
            number
            for number, entry in enumerate(self._entries)
            if entry.asked.digest and entry.asked.length and not self._receiving.come(number)
        ]
        self._receiving.end(without=unsent)
        self._find(unsent)
        for entry in self._entries:
            entry.verify()
        if self._fills is not None:  # its caller may have closed it meanwhile
            self._fills.check_open()
        for number, entry in enumerate(self._entries):
            self.remembered[number] = entry.is_found or self._remember(entry)
        for entry in self._entries:
            entry.succeed()

    def _find(self, unsent: Sequence[int]) -> None:
        """Fills entries for which no bytes came with kept bytes."""
        missing: dict[bytes, None] = {}
        for number in unsent:
            entry = self._entries[number]
            data = self._kept.digests.find(self._caller.identity.tenant, entry.asked.digest)
            if data is not None:
                entry.put(data)
            elif entry.is_needed:
                missing[entry.asked.digest] = None
        if missing:
            raise MissingError(
                f"the server does not have the bytes of {len(missing)} of the digests; upload them",
                digests=", ".join(digest.hex() for digest in missing),
            )

    def _remember(self, entry: _Entry) -> bool:
        digest, digests = entry.asked.digest, self._kept.digests
        if not digest:
            return False
        data, tenant = entry.data(), self._caller.identity.tenant
        return (
            digests.has(tenant, digest) if data is None else digests.remember(tenant, digest, data)
        )

    def wait_for_others(self, caller: Caller) -> None:
        """Waits for others that fill the same handles. Raises their error if they failed."""
        for entry in self._entries:
            if entry.filling is not None and not entry.filling.is_new:
                entry.filling.wait(caller, entry.identity)

    def give_back(self, error: BaseException) -> None:
        """The upload is over: entries that are not filled fail with this error. Gives all back."""
        for entry in self._entries:
            if entry.filling is not None and entry.filling.is_new:
                entry.filling.fail(error)
            entry.forget()
        self._session.close()
        self._memory.give_back()


class _Memory:
    """The host's memory of one upload, for bytes that do not go straight into a handle."""

    def __init__(
        self, executor: Executor, caller: Caller, end_upload: Callable[[], object]
    ) -> None:
        self._ledger, self._caller, self._end_upload = executor.memory, caller, end_upload
        self._parts: list[Entry] = []
        self.reads_handles = not executor.device.memory_for_handles
        """Whether the bytes in a handle can be kept as they are."""

    def take(self, size: int) -> Buffer:
        """It lasts until the upload ends."""
        limit = self._ledger.limit
        if size > limit:
            raise TooLargeError(
                f"upload: expected at most {limit} bytes (setting memory_limit), found {size}",
                limit=str(limit),
                setting="memory_limit",
            )
        self._parts.append(self._ledger.take(self._caller, size, self._end_upload))
        return fresh(size)

    def moved(self) -> None:
        """Bytes have come. An upload without any for a while gives way to others."""
        now = time.monotonic()
        for part in self._parts:
            part.idle_since = now

    def give_back(self) -> None:
        """The upload is over."""
        while self._parts:
            self._parts.pop().give_back()


class _Entry:
    """The bytes of one entry: written into a handle as they come, or gathered, or only compared."""

    def __init__(self, asked: UploadEntry, memory: _Memory) -> None:
        self.asked, self._memory = asked, memory
        self.filling: Filling | None = None
        self._gathered: Buffer | None = None
        self._sha256 = sha256()
        self._has_come = not asked.length
        self.is_found = False
        """Whether the bytes are those that were kept by the digest."""

    @property
    def identity(self) -> bytes | None:
        """The identity of what fills the handle."""
        return _identity(self.asked.digest or self._sha256.digest())

    @property
    def is_needed(self) -> bool:
        """Whether it needs bytes: not if another request fills the handle."""
        return self.filling is None or self.filling.is_new

    def take(self, chunk: Chunk) -> None:
        """Takes the next bytes."""
        self._has_come = True
        self._sha256.update(chunk.data)
        if not self._is_gathered:
            self._write(chunk.offset, chunk.data)
            return
        if self._gathered is None:
            self._gathered = self._memory.take(self.asked.length)
        end = chunk.offset + len(chunk.data)
        target = np.frombuffer(self._gathered, np.uint8)[chunk.offset : end]
        np.copyto(target, np.frombuffer(chunk.data, np.uint8))

    def put(self, data: Buffer) -> None:
        """Takes bytes that are kept by the digest. Raises DigestMismatchError."""
        if len(data) != self.asked.length:
            raise DigestMismatchError(
                f"digest: expected a digest of {self.asked.length} bytes, found "
                f"{self.asked.digest.hex()}, of {len(data)} bytes"
            )
        self.is_found = True
        self._write(0, data)

    def verify(self) -> None:
        """Raises DigestMismatchError if the bytes do not have the digest."""
        digest, found = self.asked.digest, self._sha256.digest()
        if digest and self._has_come and found != digest:
            raise DigestMismatchError(
                f"digest: expected bytes with the SHA-256 {digest.hex()}, found {found.hex()}"
            )

    def data(self) -> Buffer | None:
        """All of its bytes, to be kept; None if they are not in the host's memory."""
        if self._gathered is not None or not self.asked.length:
            return self._gathered or b""
        filling = self.filling
        if filling is None or not filling.is_new or not self._memory.reads_handles:
            return None
        return filling.memory.read(0, self.asked.length)

    def succeed(self) -> None:
        """Its bytes are verified."""
        if self.filling is not None and self.filling.is_new:
            if self._gathered is not None:
                self.filling.memory.write(0, self._gathered)
            self.filling.succeed(self.identity)

    def forget(self) -> None:
        """Lets go of its bytes."""
        self._gathered = None

    @property
    def _is_gathered(self) -> bool:
        """Whether its bytes are wanted in the host's memory, to be kept."""
        in_handle = self.filling is not None and self._memory.reads_handles
        return bool(self.asked.digest) and not in_handle

    def _write(self, offset: int, data: Buffer) -> None:
        if self.filling is not None and self.filling.is_new:
            self.filling.memory.write(offset, data)


def _identity(digest: bytes) -> bytes | None:
    """The identity of an upload, from the SHA-256 of its bytes. No call has the same identity."""
    return b"bytes " + digest if digest else None

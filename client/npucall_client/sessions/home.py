"""A session on its server: its id, its lease, why it ended, and how it is opened again."""

from __future__ import annotations

import math
import os
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from npucall.errors import (
    CancelledError,
    HandleLostError,
    HandleMemoryError,
    MissingError,
    NpucallError,
    SessionExpiredError,
    SessionUnknownError,
    WrongServerError,
)
from npucall.memory import fresh
from npucall_client.sessions.refill import Proofs
from npucall_client.sessions.release import Collected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from npucall.places import HandlePart
    from npucall_client.calls.options import Progress
    from npucall_client.calls.tensors import Held
    from npucall_client.sending.senders import Event, Sender, Task
    from npucall_client.sending.session_transport import SessionTransport, Upload
    from npucall_client.sessions.remote import RemoteTensor

T = TypeVar("T")

_ASKED_FROM = 16 << 10
"""For a constant of so many bytes or more, only its digest is sent first."""
_RENEWALS_A_LEASE = 3
_CLOSE_SECONDS = 2.0
_LONGEST_PAUSE = 3600.0
_GONE = (HandleLostError, SessionExpiredError, SessionUnknownError)
"""The session has ended, and another one can be opened."""


class Home:
    """A session on its server. Safe to use from several threads.

    ``refill``: if it was lost, open it again, and send the arrays again that have not changed.
    """

    def __init__(  # noqa: PLR0913  # all that makes a session
        self,
        transport: SessionTransport,
        host: str,
        lease: float,
        budget: int,
        timeout: float,
        request_id: str = "",
        *,
        refill: bool,
        sender: Sender,
        remote: type[RemoteTensor],
    ) -> None:
        self.remote = remote
        """The class of its tensors."""
        self.host = host
        self._sender = sender
        self._transport = transport
        self._wanted = lease, budget
        self._timeout = timeout
        self._name = request_id
        self._proofs = Proofs() if refill else None
        self._collected = Collected()
        self._process = os.getpid()
        self._closed = False
        self._lost: NpucallError | None = None
        self._opening = sender.lock()
        self._wake = sender.event()
        self._task: Task | None = None
        self.filling = 0
        """Counts how often it was opened. Older handles are lost, unless they were filled again."""

    async def open(self) -> Self:
        """Opens it. Call this first."""
        await self._open(self._timeout)
        return self

    @property
    def id(self) -> str:
        return self._id

    @property
    def lease(self) -> float:
        """Seconds after the last call until it ends, if the client dies."""
        return self._lease

    @property
    def budget(self) -> int:
        """Bytes that its handles may hold."""
        return self._budget

    async def attempt(
        self, send: Callable[[float], Awaitable[T]], timeout: float, held: Sequence[Held] = ()
    ) -> T:
        """The result of ``send``, a call that uses its handles; ``send`` gets the seconds left.

        Calls ``send`` once more if releasing collected handles made room, or if the session was
        opened again. ``held``: the tensors that the call uses.
        """
        ends = time.monotonic() + timeout
        known = await self.ready(timeout, held)
        try:
            return await send(timeout)
        except HandleMemoryError:
            if not await self.flush(ends - time.monotonic()):
                raise
        except (*_GONE, WrongServerError) as error:
            await self._end(error, known)
            if not self._can_refill(error):
                raise
        await self.ready(max(0.0, ends - time.monotonic()), held)
        return await send(max(0.0, ends - time.monotonic()))

    async def ready(self, timeout: float, held: Sequence[Held] = ()) -> int:
        """Checks that it is open; opens it again if it was lost. Returns ``filling``.

        Raises the error that ended it, CancelledError once it is closed, and HandleLostError if one
        of ``held`` could not be filled again.
        """
        self._check()
        if self._lost is not None:
            await self._refill(timeout)
        if self.filling > 1:
            for each in held:
                each.place(None)
        if self._collected.is_much():
            self._wake.set()
        return self.filling

    def _check(self) -> None:
        if self._closed:
            raise CancelledError("the session is closed; client.session() opens another one")
        if self._process != os.getpid():
            raise CancelledError(
                "another process opened the session, and this one was forked from it; connect and "
                "open a session in this process"
            )
        lost = self._lost
        if lost is not None and not self._can_refill(lost):
            raise _again(lost) from lost

    async def upload(
        self, upload: Upload, timeout: float, request_id: str, progress: Progress | None
    ) -> None:
        """Fills a handle."""
        await self.attempt(
            lambda seconds: self._fill(upload, seconds, request_id, progress), timeout
        )
        if self._proofs is not None:
            self._proofs.keep(upload)

    async def download(
        self, held: Held, part: HandlePart, timeout: float | None, progress: Progress | None
    ) -> memoryview:
        """The bytes of a handle."""
        memory = memoryview(fresh(part.length))

        def send(seconds: float) -> Awaitable[None]:
            return self._transport.download(self, part, memory, seconds, self._name, progress)

        await self.attempt(send, self._timeout if timeout is None else timeout, [held])
        return memory

    def collect(self, handle: bytes, nbytes: int) -> None:
        """Its tensor was collected: releases the handle with the next batch. Never waits."""
        self._collected.add(handle, nbytes)

    async def flush(self, timeout: float | None = None) -> bool:
        """Releases collected handles; False if there were none."""
        handles = self._collected.take()
        if handles:
            await self._release(handles, self._timeout if timeout is None else max(0.0, timeout))
        return bool(handles)

    async def _release(self, handles: Sequence[bytes], timeout: float) -> None:
        """Releases handles; a session that has ended has none."""
        if self._proofs is not None:
            self._proofs.forget(handles)
        if self._closed or self._lost is not None or self._process != os.getpid():
            return
        try:
            await self._transport.release(self, handles, timeout)
        except (*_GONE, WrongServerError) as error:
            await self._end(error, self.filling)
        except NpucallError:
            for handle in handles:
                self._collected.add(handle, 0)  # with the next batch
            raise

    async def close(self) -> None:
        """Ends the session. If the server does not answer, it ends with its lease."""
        async with self._opening:
            if self._closed:
                return
            self._closed = True
        self._wake.set()
        if self._process != os.getpid():
            return
        if self._lost is None:
            with suppress(NpucallError):
                await self._transport.close(self, _CLOSE_SECONDS)
        if self._task is not None:
            await self._task.join(_CLOSE_SECONDS)

    async def renew(self) -> bool:
        """Renews the lease, and releases collected handles. False once there is nothing to renew.

        It goes on while the server does not answer: the server may be starting again.
        """
        if self._closed:
            return False
        if self._lost is not None:
            return self._proofs is not None
        known, seconds = self.filling, max(1.0, self._pause())
        try:
            if not await self.flush(seconds):
                await self._transport.renew(self, seconds)
        except (*_GONE, WrongServerError) as error:
            await self._end(error, known)
            return self._can_refill(error)
        except CancelledError:
            return False  # the client was closed
        except NpucallError:
            pass
        return True

    async def _end(self, error: NpucallError, known: int) -> None:
        """Marks the session as lost, unless it was opened again after ``known``."""
        async with self._opening:
            if self.filling == known and self._lost is None:
                self._lost = error

    def _can_refill(self, error: NpucallError) -> bool:
        return self._proofs is not None and isinstance(error, _GONE)

    async def _refill(self, timeout: float) -> None:
        ends = time.monotonic() + timeout
        async with self._opening:
            if self._lost is None or self._proofs is None:
                return
            self._proofs.forget(self._collected.take())
            await self._open(timeout)
            for upload in self._proofs.valid():
                await self._fill(upload, max(0.0, ends - time.monotonic()), "", None)
            self._lost = None

    async def _fill(
        self, upload: Upload, seconds: float, request_id: str, progress: Progress | None
    ) -> None:
        """Fills a handle. For a long constant, tries its digest first."""
        ends = time.monotonic() + seconds
        is_long = len(upload.data) >= _ASKED_FROM
        if upload.digest and is_long and await self._transport.remembers():
            with suppress(MissingError):
                named = replace(upload, by_digest=True)
                return await self._transport.upload(self, named, seconds, request_id, None)
        left = max(0.0, ends - time.monotonic())
        return await self._transport.upload(self, upload, left, request_id, progress)

    def proves(self, handle: bytes) -> bool:
        """Whether a handle was filled again when the session was opened again."""
        return self._proofs is not None and handle in self._proofs

    async def _open(self, timeout: float) -> None:
        granted = await self._transport.open(*self._wanted, timeout)
        self._id, self._lease, self._budget = granted
        self.filling += 1
        if self._task is None and self._lease < math.inf:
            self._task = _keep_renewing(weakref.ref(self), self._wake, self._sender)

    def _pause(self) -> float:
        return min(self._lease / _RENEWALS_A_LEASE, _LONGEST_PAUSE)


def _keep_renewing(home_of: weakref.ref[Home], wake: Event, sender: Sender) -> Task:
    """Renews a session in the background. A session that its user forgot ends with its lease."""

    async def renew() -> None:
        pause = 0.0
        while (home := home_of()) is not None and (not pause or await home.renew()):
            pause = home._pause()  # noqa: SLF001  # of the same module
            del home
            await wake.wait(pause)
            wake.clear()

    return sender.start(renew, "npucall-session")


def _again(error: NpucallError) -> NpucallError:
    """The same error, for later uses of the session."""
    again = type(error)(str(error))
    again.details = dict(error.details)
    return again

"""A session on its server: its id, its lease, why it ended, and how it is opened again."""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

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
from npucall_client.sending.request import Request
from npucall_client.sessions.refill import Proofs
from npucall_client.sessions.release import Collected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npucall.places import HandlePart
    from npucall_client.calls.options import Progress
    from npucall_client.calls.tensors import HeldTensor
    from npucall_client.sending.senders import Sender, Signal, Task
    from npucall_client.sending.session_transport import HandleUpload, Opened, SessionTransport
    from npucall_client.sessions.remote import RemoteTensor

_ASKED_FROM = 16 << 10
"""For a constant of so many bytes or more, only its digest is sent first."""
_RENEWALS_A_LEASE = 3
_CLOSE_SECONDS = 2.0
_LONGEST_PAUSE = 3600.0
_log = logging.getLogger("npucall_client")
_GONE = (HandleLostError, SessionExpiredError, SessionUnknownError, WrongServerError)
"""The session has ended, and another one can be opened."""


class SessionLink:
    """A session on its server. Safe to use from several threads.

    ``refill``: if it was lost, open it again, and send the arrays again that have not changed.
    ``asking``: makes a request of so many seconds, as its client would now.
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
        asking: Callable[[float], Request] = Request,
    ) -> None:
        self.remote = remote
        """The class of its tensors."""
        self._asking = asking
        self.host = host
        self._sender = sender
        self._transport = transport
        self._wanted = lease, budget
        self._timeout = timeout
        self._name = request_id
        self.refill = refill
        self._proofs = Proofs() if refill else None
        self._collected = Collected()
        self._process = os.getpid()
        self.closed = False
        self._lost: NpucallError | None = None
        self._opening = sender.lock()
        self._wake = sender.event()
        self._task: Task | None = None
        self.filling = 0
        """Counts how often it was opened. Older handles are lost, unless they were filled again."""

    async def open(self) -> Self:
        """Opens it. Call this first."""
        self._begin(await self._opened(self._timeout))
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

    async def mend(self, error: NpucallError, opened: int, timeout: float) -> bool:
        """Whether a call that failed with this error may be sent again once it is ready.

        ``opened``: what ``ready`` returned before. Releasing collected handles may make room.
        """
        if isinstance(error, HandleMemoryError):
            return await self.flush(timeout)
        lost = self._transport.lost(error)
        await self._end(lost, opened)
        if self._can_refill(lost) or lost is error:
            return self._can_refill(lost)
        raise lost from error

    async def ready(self, timeout: float, held: Sequence[HeldTensor] = ()) -> int:
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
        if self.closed:
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
        self, request: Request, upload: HandleUpload, progress: Progress | None
    ) -> None:
        """Fills a handle."""
        await self._fill(request._replace(home=self), upload, progress)
        if self._proofs is not None:
            self._proofs.keep(upload)

    async def download(
        self, held: HeldTensor, part: HandlePart, timeout: float | None, progress: Progress | None
    ) -> memoryview:
        """The bytes of a handle."""
        memory = memoryview(fresh(part.length))
        request = self._asking(self._timeout if timeout is None else timeout)
        asked = request._replace(request_id=self._name, home=self, held=(held,))
        await self._transport.download(asked, part, memory, progress)
        return memory

    def _own(self, timeout: float) -> Request:
        """A request of the session itself, for which it is not opened again."""
        return self._asking(timeout)._replace(session=self._id)

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
        if self.closed or self._lost is not None or self._process != os.getpid():
            return
        try:
            await self._transport.release(self._own(timeout), handles)
        except _GONE as error:
            await self._end(self._transport.lost(error), self.filling)
        except NpucallError:
            for handle in handles:
                self._collected.add(handle, 0)  # with the next batch
            raise

    async def close(self) -> None:
        """Ends the session. If the server does not answer, it ends with its lease."""
        async with self._opening:
            if self.closed:
                return
            self.closed = True
        self._wake.set()
        if self._process != os.getpid():
            return
        if self._lost is None:
            with suppress(NpucallError):
                await self._transport.close(self._own(_CLOSE_SECONDS))
        if self._task is not None:
            await self._task.join(_CLOSE_SECONDS)

    async def renew(self) -> bool:
        """Renews the lease, and releases collected handles. False once there is nothing to renew.

        It goes on while the server does not answer: the server may be starting again.
        """
        if self.closed:
            return False
        if self._lost is not None:
            return self._proofs is not None
        known, seconds = self.filling, max(1.0, self._pause())
        try:
            if not await self.flush(seconds):
                await self._transport.renew(self._own(seconds))
        except _GONE as error:
            lost = self._transport.lost(error)
            await self._end(lost, known)
            return self._can_refill(lost)
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
            granted = await self._opened(timeout)
            uploads = self._proofs.valid()
            why = self._lost.reason
            _log.debug(
                "a session on %s: %s; %d arrays are sent again", self.host, why, len(uploads)
            )
            for upload in uploads:
                request = self._asking(max(0.0, ends - time.monotonic()))
                await self._fill(request._replace(session=granted.id), upload, None)
            self._begin(granted)  # not before: a call of another thread may name its handles now
            self._lost = None

    async def _fill(
        self, request: Request, upload: HandleUpload, progress: Progress | None
    ) -> None:
        """Fills a handle. For a long constant, tries its digest first."""
        ends = time.monotonic() + request.timeout
        is_long = len(upload.data) >= _ASKED_FROM
        if upload.digest and is_long and await self._transport.remembers():
            with suppress(MissingError):
                named = replace(upload, by_digest=True)
                return await self._transport.upload(request, named, None)
        left = max(0.0, ends - time.monotonic())
        return await self._transport.upload(request._replace(timeout=left), upload, progress)

    def proves(self, handle: bytes) -> bool:
        """Whether a handle was filled again when the session was opened again."""
        return self._proofs is not None and handle in self._proofs

    async def _opened(self, timeout: float) -> Opened:
        """A new session on the server."""
        refillable = self._proofs is not None
        return await self._transport.open(
            self._asking(timeout), *self._wanted, refillable=refillable
        )

    def _begin(self, granted: Opened) -> None:
        self._id, self._lease, self._budget = granted
        self.filling += 1
        if self._task is None and self._lease < math.inf:
            self._task = _keep_renewing(weakref.ref(self), self._wake, self._sender)

    def _pause(self) -> float:
        return min(self._lease / _RENEWALS_A_LEASE, _LONGEST_PAUSE)


def _keep_renewing(home_of: weakref.ref[SessionLink], wake: Signal, sender: Sender) -> Task:
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

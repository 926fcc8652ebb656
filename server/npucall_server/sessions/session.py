"""One session: its lease, and its handles with what fills and what reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from npucall.dtypes import DType
from npucall.errors import NpucallError
from npucall.handles import Begun, Handle, Handles, HandleState, check_same, empty
from npucall.places import HandlePart
from npucall_server.access.callers import Waiting
from npucall_server.access.identity import Identity
from npucall_server.devices.base import Resident, ResidentPart
from npucall_server.sessions.failures import as_told, of_another
from npucall_server.sessions.handle_room import Allocation, SessionRoom
from npucall_server.sessions.monitor import Monitor


class _Content:
    """What a handle holds or will hold, while somebody needs it."""

    __slots__ = ("allocation", "error", "pins")

    def __init__(self) -> None:
        self.allocation: Allocation | None = None
        self.error: NpucallError | None = None
        """Why it could not be filled."""
        self.pins = 1
        """How many use it: the one that fills it, and all that read it."""


_Handle = Handle[_Content]


class OpenSession:
    """Handles with a lease. Safe to use from several threads. Holds no lock while it waits.

    ``clock`` is monotonic. ``owner``: who may use it.
    """

    def __init__(  # noqa: PLR0913  # all that a session has
        self,
        name: str,
        secret: bytes,
        owner: str,
        identity: Identity,
        lease: float,
        room: SessionRoom,
        monitor: Monitor,
        clock: Callable[[], float],
    ) -> None:
        self.id, self.secret, self.owner = name, secret, owner
        self.identity = identity
        """The caller that used it last."""
        self.lease = lease
        self.room, self._monitor, self._clock = room, monitor, clock
        self._handles: Handles[_Content] = Handles()
        self._uses = 0
        self._ends_at = clock() + lease
        self._ended: Callable[[], NpucallError] | None = None
        """The error for calls once it has ended."""

    # --- Its lease --------------------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Bytes that its handles may hold."""
        return self.room.limit

    @property
    def held(self) -> int:
        """Bytes that its handles hold, with released handles that a call still reads."""
        return self.room.used

    @property
    def is_due(self) -> bool:
        """Whether its lease has ended, and no call uses it."""
        return not self._uses and self._clock() >= self._ends_at

    @property
    def idle_seconds(self) -> float | None:
        """How long it has not been used; None while a call uses it."""
        return None if self._uses else self._clock() - (self._ends_at - self.lease)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keeps the lease while a call runs. Raises an error if the session has ended."""
        with self._monitor:
            self.check_open()
            self._uses += 1
        try:
            yield
        finally:
            with self._monitor:
                self._uses -= 1
                self._ends_at = self._clock() + self.lease

    def renew(self, identity: Identity) -> bool:
        """Starts the lease again; False if the session has ended."""
        with self._monitor:
            if self._ended is not None or self.is_due:
                return False
            self.identity = identity
            self._ends_at = self._clock() + self.lease
            return True

    def check_open(self) -> None:
        """Raises an error if the session has ended."""
        if self._ended is not None:
            raise self._ended()

    def end(self, why: Callable[[], NpucallError], *, only_idle: bool = False) -> bool:
        """Ends it and releases its handles. Waiting calls raise ``why``. False: it had ended.

        ``only_idle``: unless a call uses it.
        """
        with self._monitor:
            if self._ended is not None or (only_idle and self._uses):
                return False
            self._ended = why
            free = self._let_go([handle.id for handle in self._handles])
            self._monitor.notify()
        _give_back(free)
        self.room.give_back()
        return True

    # --- Its handles ------------------------------------------------------------------------------

    def read(self, part: HandlePart, name: str) -> Reading:
        """A part of a handle, for a storage of that name. It stays until the reading gives it back.

        Raises HandleEmptyError, HandleReleasedError, and TensorLayoutError if the part is not
        inside the handle.
        """
        with self._monitor:
            self.check_open()
            handle = self._handles.read(part, name)
            handle.value.pins += 1
        return Reading(self, handle, part, name)

    def fill(
        self, handle: bytes, size: int, identity: bytes | None, dtype: DType | None = None
    ) -> Filling:
        """Begins to fill a handle, or finds that the same request fills or has filled it.

        ``identity``: see ``Handles.begin``; ``dtype``: its elements' type, if known. Raises
        HandleExistsError, HandleReleasedError and HandleMemoryError.
        """
        with self._monitor:
            self.check_open()
            begun, found = self._handles.begin(handle, size, identity, _Content)
        filling = Filling(self, found, identity, is_new=begun is Begun.NEW)
        if filling.is_new:
            try:
                found.value.allocation = self.room.take(size, dtype)
            except Exception as error:
                filling.fail(error)
                raise
        return filling

    def release(self, handles: Sequence[bytes]) -> None:
        """Gives handles back. Each keeps its memory until the last reading or filling is done."""
        with self._monitor:
            if self._ended is not None:
                return
            free = self._let_go(handles)
        _give_back(free)

    def settle(self, handle: _Handle, identity: bytes | None, error: BaseException | None) -> None:
        """A filling calls this when it has filled the handle or failed.

        Only the first time counts.
        """
        with self._monitor:
            if error is None:
                ended = self._handles.fill(handle, identity)
            else:
                told = as_told(error)
                if ended := self._handles.fail(handle, str(told)):
                    handle.value.error = told
            free = self._unpin(handle) if ended else []
            self._monitor.notify()
        _give_back(free)

    def unpin(self, handle: _Handle) -> None:
        """A reading calls this when it gives back."""
        with self._monitor:
            free = self._unpin(handle)
        _give_back(free)

    def wait(self, handle: _Handle, caller: Waiting) -> None:
        """Waits until a handle is filled, or filling it failed, or the session has ended."""
        self._monitor.wait_until(
            lambda: handle.state is not HandleState.FILLING or self._ended is not None, caller
        )
        if handle.state is HandleState.FILLING and self._ended is not None:
            raise self._ended()

    def _let_go(self, handles: Sequence[bytes]) -> list[Allocation]:
        found = [self._handles.release(handle) for handle in handles]
        return [each for handle in found if handle for each in self._rest_of(handle)]

    def _unpin(self, handle: _Handle) -> list[Allocation]:
        handle.value.pins -= 1
        return self._rest_of(handle)

    def _rest_of(self, handle: _Handle) -> list[Allocation]:
        """Memory that is no longer needed, to be given back without the lock."""
        content = handle.value
        is_wanted = handle.state is HandleState.FILLED and not handle.is_released
        if content.pins or is_wanted or content.allocation is None:
            return []
        allocation, content.allocation = content.allocation, None
        return [allocation]


class Reading:
    """A part of a handle that a call reads: it stays, released or not, until that is done."""

    def __init__(self, session: OpenSession, handle: _Handle, part: HandlePart, name: str) -> None:
        self._session, self._handle = session, handle
        self._part, self._name = part, name
        self._given_back = False

    def wait(self, caller: Waiting) -> ResidentPart:
        """The bytes, once the handle is filled.

        Raises HandleEmptyError if filling failed, the error of an ended session, and DeadlineError
        and CancelledError of the caller.
        """
        handle = self._handle
        self._session.wait(handle, caller)
        if handle.state is not HandleState.FILLED or handle.value.allocation is None:
            raise empty(self._name, handle.id, handle.failure)
        return ResidentPart(handle.value.allocation.memory, self._part.offset, self._part.length)

    def give_back(self) -> None:
        """The call no longer reads it. A second time does nothing."""
        if not self._given_back:
            self._given_back = True
            self._session.unpin(self._handle)


class Filling:
    """A handle that is to be filled. A new filling fills all of ``memory`` and says how it ended.

    A filling that is not new only waits for the new one.
    """

    def __init__(
        self, session: OpenSession, handle: _Handle, identity: bytes | None, *, is_new: bool
    ) -> None:
        self._session, self._handle, self._identity = session, handle, identity
        self.is_new = is_new

    @property
    def memory(self) -> Resident:
        """The memory that a new filling fills."""
        allocation = self._handle.value.allocation
        assert allocation is not None  # noqa: S101  # it is new, and has not ended
        return allocation.memory

    def succeed(self, identity: bytes | None = None) -> None:
        """All bytes are there. ``identity``: if it was not known before."""
        self._session.settle(self._handle, identity, None)

    def fail(self, error: BaseException) -> None:
        """Unless the handle is filled, it is empty again, and waiting calls get the error."""
        self._session.settle(self._handle, None, error)

    def wait(self, caller: Waiting, identity: bytes | None = None) -> None:
        """Waits until it is filled by any request. ``identity``: if it was not known before.

        Raises the error of filling, HandleExistsError if it has another identity, the error of an
        ended session, and DeadlineError and CancelledError of the caller.
        """
        handle = self._handle
        self._session.wait(handle, caller)
        if handle.state is HandleState.EMPTY:
            raise of_another(handle.value.error, handle.failure)
        check_same(handle, identity or self._identity)


def _give_back(allocations: Sequence[Allocation]) -> None:
    for each in allocations:
        each.give_back()

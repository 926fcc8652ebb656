"""The handles of one session: which are being filled, hold bytes, or were released.

Pure: nothing here waits or locks, and the content of a handle belongs to the caller. Server and
``local:`` use the same table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Generic, TypeVar

from npucall.errors import (
    HandleEmptyError,
    HandleExistsError,
    HandleMemoryError,
    HandleReleasedError,
    TensorLayoutError,
)
from npucall.limits import MAX_HANDLES, MAX_NAME_BYTES, MAX_PAST_HANDLES
from npucall.places import HandlePart
from npucall.texts import cut, shown

T = TypeVar("T")


class HandleState(Enum):
    """What a handle is."""

    EMPTY = "empty"
    """Nothing fills it: it was never named, or filling it failed."""
    FILLING = "filling"
    """What fills it has begun."""
    FILLED = "filled"
    """It holds bytes, which stay as they are."""
    RELEASED = "released"
    """Its caller has given it back."""


class HandleEvent(Enum):
    """What happens to a handle."""

    BEGIN = "begin"
    FILL = "fill"
    FAIL = "fail"
    RELEASE = "release"


TRANSITIONS: Mapping[HandleState, Mapping[HandleEvent, HandleState]] = {
    HandleState.EMPTY: {
        HandleEvent.BEGIN: HandleState.FILLING,
        HandleEvent.RELEASE: HandleState.RELEASED,
    },
    HandleState.FILLING: {
        HandleEvent.FILL: HandleState.FILLED,
        HandleEvent.FAIL: HandleState.EMPTY,
        HandleEvent.RELEASE: HandleState.RELEASED,
    },
    HandleState.FILLED: {HandleEvent.RELEASE: HandleState.RELEASED},
    HandleState.RELEASED: {HandleEvent.RELEASE: HandleState.RELEASED},
}
"""The next state for each state and event. If a handle is released while it is being filled, the
filling goes on for those who already read it; after that it changes nothing."""


class Begun(Enum):
    """What happens to a caller that wants to fill a handle."""

    NEW = "new"
    """It fills it."""
    JOIN = "join"
    """The same content is being filled in now: wait for it."""
    SAME = "same"
    """It already has the same content."""


class Handle(Generic[T]):
    """One filling of a handle, and what it holds. It stays as it is for who has it."""

    __slots__ = ("failure", "id", "identity", "is_released", "size", "state", "value")

    def __init__(self, handle: bytes, size: int, identity: bytes | None, value: T) -> None:
        self.id = handle
        self.size = size
        self.identity = identity
        """What fills it; None as long as that is not known."""
        self.value = value
        """What the owner of the table keeps."""
        self.state = HandleState.FILLING
        """FILLING, FILLED, or EMPTY where that failed; a release does not change it."""
        self.failure = ""
        """Why it failed, as a sentence."""
        self.is_released = False


class Handles(Generic[T]):
    """The handles of a session, by their ids.

    At most ``MAX_HANDLES`` are filled at a time. It remembers the last ``MAX_PAST_HANDLES`` that
    were released or could not be filled; it treats older ones as if they had never existed.
    """

    def __init__(self) -> None:
        self._handles: dict[bytes, Handle[T]] = {}
        self._past: OrderedDict[bytes, str | None] = OrderedDict()
        """Why it could not be filled; None: it was released."""

    def __iter__(self) -> Iterator[Handle[T]]:
        """Those that are being filled, or are."""
        return iter(self._handles.values())

    def __len__(self) -> int:
        return len(self._handles)

    def state(self, handle: bytes) -> HandleState:
        """What a handle is."""
        found = self._handles.get(handle)
        if found is not None:
            return found.state
        return HandleState.EMPTY if self._past.get(handle, "") is not None else HandleState.RELEASED

    def begin(
        self, handle: bytes, size: int, identity: bytes | None, value: Callable[[], T]
    ) -> tuple[Begun, Handle[T]]:
        """Something wants to fill a handle with so many bytes. ``value``: makes a new one's.

        ``identity`` is the same for the same bytes, or the same call; None: it is known when all
        bytes are there, and ``check_same`` compares then. Raises HandleExistsError where something
        else fills it, or has, HandleReleasedError, and HandleMemoryError where there are too many.
        """
        found = self._handles.get(handle)
        if found is not None:
            if found.size != size:
                raise _exists(handle, f"{found.size} bytes", f"{size}")
            check_same(found, identity)
            return (Begun.JOIN if found.state is HandleState.FILLING else Begun.SAME), found
        if self.state(handle) is HandleState.RELEASED:
            raise _released("handle", handle)
        if len(self._handles) >= MAX_HANDLES:
            raise _too_many()
        self._past.pop(handle, None)
        new = self._handles[handle] = Handle(handle, size, identity, value())
        return Begun.NEW, new

    def fill(self, handle: Handle[T], identity: bytes | None = None) -> bool:
        """It has its bytes now. False: it had ended before, and nothing changes.

        ``identity``: of one that was not known.
        """
        if handle.state is not HandleState.FILLING:
            return False
        handle.state = HandleState.FILLED
        handle.identity = handle.identity or identity
        return True

    def fail(self, handle: Handle[T], why: str) -> bool:
        """It could not be filled, and is empty again. False: it had ended before."""
        if handle.state is not HandleState.FILLING:
            return False
        handle.state, handle.failure = HandleState.EMPTY, cut(shown(why), MAX_NAME_BYTES)
        if not handle.is_released:
            del self._handles[handle.id]
            self._remember(handle.id, handle.failure)
        return True

    def release(self, handle: bytes) -> Handle[T] | None:
        """Releases a handle in any state, and returns what it held or should hold."""
        found = self._handles.pop(handle, None)
        if found is not None:
            found.is_released = True
        self._remember(handle, None)
        return found

    def read(self, part: HandlePart, name: str) -> Handle[T]:
        """The handle that a storage is a part of. ``name`` is the storage's, for errors.

        It may still be being filled. Raises HandleEmptyError, HandleReleasedError and
        TensorLayoutError.
        """
        found = self._handles.get(part.id)
        if found is None:
            why = self._past.get(part.id, "")
            raise _released(name, part.id) if why is None else empty(name, part.id, why)
        end = part.offset + part.length
        if end > found.size:
            raise TensorLayoutError(
                f"{name}: expected a part of the {found.size} bytes of handle {part.id.hex()}, "
                f"found bytes {part.offset} to {end}",
                parameter=name,
            )
        return found

    def _remember(self, handle: bytes, why: str | None) -> None:
        self._past[handle] = why
        self._past.move_to_end(handle)
        while len(self._past) > MAX_PAST_HANDLES:
            self._past.popitem(last=False)


def check_same(handle: Handle[T], identity: bytes | None) -> None:
    """Raises HandleExistsError if other content fills the handle, or has filled it."""
    if None not in (identity, handle.identity) and identity != handle.identity:
        raise _exists(handle.id, "what fills it already", "something else")


def empty(name: str, handle: bytes, why: str = "") -> HandleEmptyError:
    """The error for reading an empty handle; ``why`` it could not be filled."""
    found = f"the call that should fill it failed: {why}" if why else "nothing has filled it yet"
    return HandleEmptyError(
        f"{name}: handle {handle.hex()} is empty; {found}",
        parameter=name,
        handle=handle.hex(),
    )


def _released(name: str, handle: bytes) -> HandleReleasedError:
    return HandleReleasedError(
        f"{name}: handle {handle.hex()} was released; fill another one, and release it only when "
        "no later call needs it",
        parameter=name,
        handle=handle.hex(),
    )


def _exists(handle: bytes, expected: str, found: str) -> HandleExistsError:
    return HandleExistsError(
        f"handle: expected {expected} for {handle.hex()}, found {found}; a handle can be filled "
        "only once, use another id",
        handle=handle.hex(),
    )


def _too_many() -> HandleMemoryError:
    return HandleMemoryError(
        f"handle: the session has {MAX_HANDLES} handles, as many as it may have; release some",
        limit=str(MAX_HANDLES),
        held=str(MAX_HANDLES),
        wanted="1",
    )

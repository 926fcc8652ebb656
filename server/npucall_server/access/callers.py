"""Who waits for a call: the caller of a unary method, or of one call of a stream.

These classes say who the caller is. Everything that counts, limits or logs by caller asks them.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from npucall.errors import CancelledError, NpucallError
from npucall.wire.status import REQUEST_ID
from npucall_server.access.identity import anybody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import grpc

    from npucall_server.access.identity import Identity


def went_away() -> CancelledError:
    """The error that ends a call when its caller no longer waits."""
    return CancelledError("the caller cancelled the call, or disconnected")


class Waiting(Protocol):
    """Whether somebody waits for a call, and how long."""

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; None or infinity without one."""

    def is_active(self) -> bool:
        """Whether it still waits."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it no longer waits; False if that is already so."""


class Caller(Waiting, Protocol):
    """What a call has to know about its caller."""

    @property
    def peer(self) -> str:
        """Its address, as gRPC tells it."""

    @property
    def identity(self) -> Identity:
        """Who it is."""

    @property
    def owner(self) -> str:
        """The owner that its calls and memory count for."""

    @property
    def metadata(self) -> Mapping[str, str | bytes]:
        """The metadata that it sent with the request, or with the stream."""

    @property
    def request_id(self) -> str:
        """Its own name for the call; empty if it has none."""

    def cancel(self) -> None:
        """Ends the call, or the stream, without an answer."""


class UnaryCaller:
    """The caller of a method with one request, or of a stream as a whole."""

    __slots__ = (
        "add_callback", "cancel", "identity", "is_active", "metadata", "peer", "time_remaining",
    )  # fmt: skip

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.peer = context.peer()
        self.identity: Identity = anybody(self.peer)
        """Anybody, until the guard has found out who it is."""
        self.metadata: Mapping[str, str | bytes] = dict(context.invocation_metadata())
        self.time_remaining = context.time_remaining
        self.is_active = context.is_active
        self.add_callback = context.add_callback
        self.cancel: Callable[[], None] = context.cancel

    @property
    def owner(self) -> str:
        """The owner of its identity."""
        return self.identity.owner

    @property
    def request_id(self) -> str:
        """The id in the metadata."""
        name = self.metadata.get(REQUEST_ID, "")
        return name if isinstance(name, str) else ""


class StreamCaller:
    """Who waits for one call of a stream: until it cancels the call, or the stream ends."""

    def __init__(self, stream: Caller, request_id: str, seconds: float | None) -> None:
        self.peer, self.metadata = stream.peer, stream.metadata
        self.identity = stream.identity
        self.request_id = request_id
        limits = (stream.time_remaining(), seconds)
        limit = min((limit for limit in limits if limit is not None), default=None)
        self._ends = None if limit is None else time.monotonic() + limit
        self._callbacks: list[Callable[[], None]] | None = []
        """None once it no longer waits."""
        self._lock = threading.Lock()

    @property
    def owner(self) -> str:
        """The owner of its identity."""
        return self.identity.owner

    def time_remaining(self) -> float | None:
        """Until the deadline of the call or of its stream, whichever comes first."""
        return None if self._ends is None else self._ends - time.monotonic()

    def is_active(self) -> bool:
        """Whether the call is not cancelled and its stream has not ended."""
        return self._callbacks is not None

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it cancels."""
        with self._lock:
            if self._callbacks is None:
                return False
            self._callbacks.append(callback)
            return True

    def cancel(self) -> None:
        """The caller no longer waits."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()


class YieldingCaller:
    """A caller that gives up its call as soon as others ask for what the call holds."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.gave_way = False
        self._callbacks: list[Callable[[], None]] = []

    def give_way(self) -> None:
        """Others ask for what the call holds."""
        self.gave_way = True
        for callback in tuple(self._callbacks):
            callback()

    def time_remaining(self) -> float | None:
        """As the caller says."""
        return self.caller.time_remaining()

    def is_active(self) -> bool:
        """Whether it still waits."""
        return not self.gave_way and self.caller.is_active()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it no longer waits."""
        self._callbacks.append(callback)
        return self.caller.add_callback(callback)


@contextmanager
def refusals_told(context: grpc.ServicerContext) -> Iterator[None]:
    """Lets a method that is not npucall's own answer with the status of an NpucallError."""
    try:
        yield
    except NpucallError as error:
        context.abort(error.code, str(error))

"""Senders: what waits and sends for the client. One does so in threads, one on an event loop.

The rules of a call's life are coroutines over a sender, written once. ``threads.ThreadSender``
blocks wherever a coroutine waits, so that it ends without ever being suspended: ``finished`` runs
it. ``loop.LoopSender`` suspends it, and asyncio runs it.

Its modules, from the top::

    threads  the sender that blocks
    loop     the sender on an event loop
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from npucall.errors import NpucallError

if TYPE_CHECKING:
    import threading
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Sequence,
    )

    Metadata: TypeAlias = "tuple[tuple[str, str], ...] | None"
    Hear: TypeAlias = "Callable[[Iterable[tuple[str, str | bytes]]], object]"
    """Gets what a server said of itself before its answer."""
    Messages: TypeAlias = "Iterator[bytes] | AsyncIterator[bytes]"
    Work: TypeAlias = "Callable[[], Coroutine[Any, Any, Any]]"

    N = TypeVar("N", bound=NpucallError)

T = TypeVar("T")

_log = logging.getLogger("npucall_client")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives over a sender that blocks: it is never suspended."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    except NpucallError as error:
        raise shortened(error)  # noqa: B904  # the same error
    work.close()
    raise RuntimeError("sender: expected one that blocks, found one that suspends its callers")


async def shortly(work: Awaitable[T]) -> T:
    """What a coroutine gives on an event loop. Its errors are shortened as ``finished`` does."""
    try:
        return await work
    except NpucallError as error:
        raise shortened(error)  # noqa: B904  # the same error


def shortened(error: N) -> N:
    """The error without the frames of this client, which say nothing to its users.

    The log ``npucall_client`` has them at the level DEBUG, and what gRPC said.
    """
    _log.debug("%s", error, exc_info=error)
    each: BaseException | None = error
    while isinstance(each, NpucallError):
        each.__traceback__ = None
        each = each.__cause__
    return error


class Files(NamedTuple):
    """What files of certificates say; None for those that are not set."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


class Event(Protocol):
    """Something that happens once, until it is cleared."""

    def set(self) -> None:
        """It has happened."""

    def clear(self) -> None:
        """It has not happened any more."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    async def wait(self, seconds: float | None = None) -> bool:
        """Waits for it; whether it has happened."""


class Condition(Protocol):
    """As ``threading.Condition``. All of it is called with the lock held."""

    def notify(self, count: int = 1) -> None:
        """So many that wait look again."""

    def notify_all(self) -> None:
        """All that wait look again."""

    async def wait_for(self, predicate: Callable[[], Any], seconds: float | None = None) -> bool:
        """Gives the lock away until the predicate holds; False where the time ended before."""

    async def wait(self, seconds: float | None = None) -> None:
        """Gives the lock away until somebody notifies, or the time has ended."""


class Lock(Protocol):
    """Held while something else is waited for, which no ordinary lock may be on an event loop."""

    async def acquire(self, seconds: float) -> bool:
        """Whether it is held now; False where somebody else kept it for so long."""

    def release(self) -> None:
        """Gives it back."""

    async def __aenter__(self) -> object:
        """Acquires it, however long that takes."""

    async def __aexit__(self, *_: object) -> None:
        """Gives it back."""


class Task(Protocol):
    """Something that goes on beside whoever started it."""

    async def join(self, seconds: float | None = None) -> bool:
        """Waits for its end, but where it is called from inside; whether it has come."""


class Workers(Protocol):
    """Work that goes on beside, of which only so much is done at a time."""

    def submit(self, work: Work) -> None:
        """Does it when there is room. Nothing may be raised in it."""

    async def close(self) -> None:
        """Waits until all of it is done."""


class Stream(Protocol):
    """A method of streams under way: the messages that come."""

    def __aiter__(self) -> Self:
        """Itself."""

    async def __anext__(self) -> bytes:
        """Raises grpc.RpcError where it breaks."""

    def cancel(self) -> None:
        """Ends it; does nothing to one that has ended."""


class Unary(Protocol):
    """A method with one request and one response."""

    async def __call__(
        self,
        request: bytes,
        seconds: float,
        metadata: Metadata = None,
        *,
        waits: bool = False,
        hear: Hear | None = None,
    ) -> bytes:
        """``waits``: for a connection, where there is none.

        Raises grpc.RpcError, and ValueError where the channel was closed.
        """


class Channel(Protocol):
    """A channel of gRPC."""

    def unary(self, path: str) -> Unary:
        """A method with one request and one response."""

    def stream(  # noqa: PLR0913  # all that makes one
        self,
        path: str,
        messages: Messages,
        seconds: float | None,
        metadata: Metadata,
        *,
        waits: bool,
        ended: Callable[[], object],
    ) -> Stream:
        """Opens a method of streams. ``ended`` is called once it has ended."""

    def is_connected(self) -> bool:
        """Whether the server has answered, and a connection is there."""

    async def close(self) -> None:
        """Cancels what is under way."""


class Sender(Protocol):
    """What waits and sends."""

    def event(self) -> Event:
        """One that has not happened."""

    def lock(self) -> Lock:
        """One that nobody holds."""

    def condition(self, lock: threading.Lock) -> Condition:
        """Of this lock, which is never held while something else is waited for."""

    def start(self, work: Work, name: str) -> Task:
        """Starts something that goes on beside."""

    def workers(self, most: int, name: str) -> Workers:
        """For work of which at most so much is done at a time."""

    async def beside(self, function: Callable[[], T]) -> T:
        """What a function answers that may block: it reads a file, asks a socket, computes."""

    def channel(
        self, target: str, options: Sequence[tuple[str, str | int]], files: Files | None
    ) -> Channel:
        """A channel; ``files``: of the certificates, where it is encrypted."""

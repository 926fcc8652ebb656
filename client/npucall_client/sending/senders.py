"""Senders wait and send for the client: one in threads, one on an event loop.

The rules of a call's life are coroutines over a sender, written once. ``threads.ThreadSender``
blocks wherever a coroutine waits, so that it ends without ever being suspended: ``finished`` runs
it. ``loop.LoopSender`` suspends it, and asyncio runs it.
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
        Iterator,
        Sequence,
    )

    from npucall.tensors import Buffer
    from npucall_client.sending.frames.frame_connection import FrameSocket
    from npucall_client.sending.frames.frame_places import FramesPlace

    Metadata: TypeAlias = "tuple[tuple[str, str], ...] | None"
    Message: TypeAlias = "bytes | tuple[Buffer, ...]"
    """Its bytes, or their parts."""
    Messages: TypeAlias = "Iterator[Message] | AsyncIterator[bytes]"
    Work: TypeAlias = "Callable[[], Coroutine[Any, Any, Any]]"

    N = TypeVar("N", bound=NpucallError)

__tracebackhide__ = True  # in a red test pytest shows the line that called

T = TypeVar("T")

_log = logging.getLogger("npucall_client")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine over a sender that blocks, so that it is never suspended."""
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
    """The result of a coroutine on an event loop. Shortens its errors as ``finished`` does."""
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


class Signal(Protocol):
    """Something that happens once, until it is cleared."""

    def set(self) -> None:
        """It has happened."""

    def clear(self) -> None:
        """Makes it as if it had not happened yet."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    async def wait(self, seconds: float | None = None) -> bool:
        """Waits for it; returns whether it has happened."""


class Condition(Protocol):
    """As ``threading.Condition``. All of it is called with the lock held."""

    def notify(self, count: int = 1) -> None:
        """Makes so many waiting tasks look again."""

    def notify_all(self) -> None:
        """Makes all waiting tasks look again."""

    async def wait_for(self, predicate: Callable[[], Any], seconds: float | None = None) -> bool:
        """Releases the lock until the predicate holds; False if the time ended before."""

    async def wait(self, seconds: float | None = None) -> None:
        """Releases the lock until it is notified, or until the time has ended."""


class Lock(Protocol):
    """A lock that may be held while waiting; on an event loop an ordinary lock must not be."""

    async def acquire(self, seconds: float) -> bool:
        """Takes the lock; False if another holder kept it for so long."""

    def release(self) -> None:
        """Gives it back."""

    async def __aenter__(self) -> object:
        """Acquires it, however long that takes."""

    async def __aexit__(self, *_: object) -> None:
        """Gives it back."""


class Task(Protocol):
    """Work that goes on in the background."""

    async def join(self, seconds: float | None = None) -> bool:
        """Waits for its end, unless called from inside the task; returns whether it has ended."""


class Workers(Protocol):
    """Work in the background, with a limit on how much goes on at a time."""

    def submit(self, work: Work) -> None:
        """Does it when there is room. Nothing may be raised in it."""

    async def close(self) -> None:
        """Waits until all of it is done."""


class MessageStream(Protocol):
    """A method of streams under way: the messages that come."""

    def __aiter__(self) -> Self:
        """Itself."""

    async def __anext__(self) -> bytes:
        """Raises grpc.RpcError if it breaks."""

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
    ) -> bytes:
        """``waits``: whether it waits for a connection if there is none.

        Raises grpc.RpcError, and ValueError if the channel was closed.
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
    ) -> MessageStream:
        """Opens a method of streams. ``ended`` is called once it has ended."""

    def is_connected(self) -> bool:
        """Whether the server has answered, and a connection is there."""

    async def close(self) -> None:
        """Cancels what is under way."""


class Sender(Protocol):
    """Waits and sends for a client."""

    def event(self) -> Signal:
        """One that has not happened."""

    def lock(self) -> Lock:
        """One that nobody holds."""

    def condition(self, lock: threading.Lock) -> Condition:
        """A condition of this lock, which is never held while waiting for something else."""

    def start(self, work: Work, name: str) -> Task:
        """Starts work in the background."""

    def workers(self, most: int, name: str) -> Workers:
        """For work of which at most so much is done at a time."""

    async def beside(self, function: Callable[[], T]) -> T:
        """The result of a function that may block: it reads a file, asks a socket, computes."""

    def channel(
        self, target: str, options: Sequence[tuple[str, str | int]], files: Files | None
    ) -> Channel:
        """A channel; ``files``: of the certificates, if it is encrypted."""

    async def frame_socket(self, place: FramesPlace, ends: float) -> FrameSocket:
        """A connection for frames; until ``ends``, on the clock of ``monotonic``, or OSError."""

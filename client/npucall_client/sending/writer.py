"""Sends the calls of a pipeline as messages of a stream; waiting calls share a message."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from npucall.errors import NpucallError
from npucall.exchange import Credential
from npucall.limits import FRAMES_PER_MESSAGE, KIB
from npucall.wire.frames import join_cancel, join_credential
from npucall.wire.stream_messages import join_frames
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.transfer import Incoming, outgoing

if TYPE_CHECKING:
    import threading
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from npucall.wire.messages import Response
    from npucall_client.sending.request import Request
    from npucall_client.sending.senders import Condition

    Done: TypeAlias = "Callable[[Response | Exception], object]"
    """A function that is told how a call ended."""

_MESSAGE_BYTES = 256 * KIB
"""Bytes of frames in one message, except for a single longer frame: joining copies them again."""
_BETWEEN_FRAMES = 6
"""Bytes that a message needs at most for each of its frames, in addition to the frame."""


class Authorized(Protocol):
    """Knows the credential of the caller."""

    async def authorization(self) -> str:
        """The caller's current credential; empty if there is none. Raises UnauthenticatedError."""

    def authorization_lasts(self) -> float | None:
        """Seconds until the client asks for another one; None if it never does."""


class SentCall:
    """A call of a pipeline, on its way to its answer."""

    def __init__(self, request: Request, done: Done) -> None:
        self.id = 0
        self.call = request.call
        self.attempts = Attempts(request)
        self.done = done
        self._incoming: Incoming | None = None
        self.stream: Any = None
        """The stream that has it, or had it last."""
        self.is_sent = False
        """Whether any part of it was sent on that stream."""
        self.due = math.inf
        """When it is sent again, on the clock of ``monotonic``."""
        self.waits = False
        """Whether it waits for an answer, or for that time."""

    def begin_anew(self) -> None:
        """Nothing of it was sent, and nothing of its answer has come."""
        self.is_sent = False
        self._incoming = None

    @property
    def incoming(self) -> Incoming:
        """Its answer, frame by frame, if it comes so."""
        if self._incoming is None:
            self._incoming = Incoming(self.call)
        return self._incoming


class OpenStream:
    """One stream."""

    def __init__(self) -> None:
        self.stream: Any = None
        self.authorization = ""
        """The authorization that the server got last."""
        self.over = False


class Writer:
    """Calls on their way out, in the order in which they come.

    ``is_open``: the calls without an answer, by id; ``lock`` guards them; ``work`` is its
    condition. ``most``: frames in a message.
    """

    def __init__(  # noqa: PLR0913  # what it shares with who reads the stream
        self,
        connection: Authorized,
        is_open: Mapping[int, SentCall],
        work: Condition,
        lock: threading.Lock,
        chunk_bytes: int,
        most: int,
    ) -> None:
        self._connection = connection
        self._is_open = is_open
        self._chunk_bytes = chunk_bytes
        self._most = max(1, min(most, FRAMES_PER_MESSAGE))
        self._most_bytes = min(_MESSAGE_BYTES, chunk_bytes)  # which any message has room for
        self._work, self._lock = work, lock
        self._unsent: deque[SentCall] = deque()
        self._cancelled: deque[int] = deque()
        self._closing = False

    # --- To be called with the lock ---------------------------------------------------------------

    def add(self, call: SentCall) -> None:
        """Sends a call."""
        self._unsent.append(call)
        self._work.notify_all()

    def cancel(self, call_id: int) -> None:
        """Tells the server that a call is over."""
        self._cancelled.append(call_id)
        self._work.notify_all()

    def close(self) -> None:
        """No more calls will come; the stream ends when all calls have ended."""
        self._closing = True
        self._work.notify_all()

    def forget(self) -> None:
        """Sends nothing more: the stream is over."""
        self._unsent.clear()
        self._cancelled.clear()

    def take(self) -> tuple[deque[int], deque[SentCall]]:
        """What is to be sent: ids of cancelled calls, and calls."""
        ready = self._cancelled, self._unsent
        self._cancelled, self._unsent = deque(), deque()
        return ready

    def wake(self) -> None:
        """Looks again whether there is something to do."""
        self._work.notify_all()

    # --- As gRPC sends ----------------------------------------------------------------------------

    async def messages(self, opened: OpenStream) -> AsyncIterator[bytes]:
        """The messages to send on a stream, until it is over or no more calls will come."""
        while (ready := await self._ready(opened)) is not None:
            frames = self._frames(opened, await self._renewal(opened), *ready)
            for message in _in_messages(frames, self._most, self._most_bytes):
                yield message
                del message
            del ready, frames  # do not keep the arrays until more calls come

    async def _ready(self, opened: OpenStream) -> tuple[deque[int], deque[SentCall]] | None:
        """Waits for something to send: ids of cancelled calls, and calls. None: it is over."""
        with self._lock:
            has_come = await self._work.wait_for(
                lambda: opened.over or self._cancelled or self._unsent or self._is_done(),
                self._connection.authorization_lasts(),
            )
            if opened.over or (has_come and not (self._cancelled or self._unsent)):
                return None
            return self.take()

    def _is_done(self) -> bool:
        return self._closing and not self._is_open

    def _frames(
        self,
        opened: OpenStream,
        renewal: Sequence[bytes],
        cancelled: deque[int],
        calls: deque[SentCall],
    ) -> Iterator[bytes]:
        yield from renewal
        yield from map(join_cancel, cancelled)
        while calls and not opened.over:
            yield from self._call_frames(opened, calls.popleft())

    async def _renewal(self, opened: OpenStream) -> Sequence[bytes]:
        """The frame that gives the server another credential, if there is one."""
        try:
            now = await self._connection.authorization()
        except NpucallError:
            return ()  # the server ends the stream; the next one to open raises this
        if not now or now == opened.authorization:
            return ()
        opened.authorization = now
        return (join_credential(Credential(now)),)

    def _call_frames(self, opened: OpenStream, call: SentCall) -> Iterator[bytes]:
        left = call.attempts.ends - time.monotonic()
        if call.id not in self._is_open or left <= 0:
            return
        timeout_ns = max(1, int(left * 1e9))
        call.is_sent = True
        name = call.attempts.request.request_id
        for frame in outgoing(call.id, call.call, name, self._chunk_bytes, timeout_ns):
            yield frame
            if opened.over or call.id not in self._is_open:
                return  # it was cancelled, or has its answer


def _in_messages(frames: Iterable[bytes], most: int, most_bytes: int) -> Iterator[bytes]:
    """Messages of at most so many frames and bytes, each made no later than its last frame.

    One frame may be longer.
    """
    parts: list[bytes] = []
    size = 0
    for frame in frames:
        if parts and size + len(frame) > most_bytes:
            yield join_frames(parts)
            parts, size = [], 0
        parts.append(frame)
        size += _BETWEEN_FRAMES + len(frame)
        if len(parts) == most or size >= most_bytes:
            yield join_frames(parts)
            parts, size = [], 0
    if parts:
        yield join_frames(parts)

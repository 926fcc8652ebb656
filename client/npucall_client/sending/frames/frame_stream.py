"""A connection of frames that is one stream."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self

from npucall.wire.headers import ALIVE, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_client.sending.frames.frame_connection import CallConnection
    from npucall_client.sending.senders import Message, Messages, Sender


class FrameStream:
    """See ``senders.MessageStream``; a task sends.

    ``ended`` is called at its end, ``close`` once nobody uses the connection any more; ``told``
    makes the caller's error of one of the connection.
    """

    def __init__(  # noqa: PLR0913  # all that makes one
        self,
        connection: CallConnection,
        sender: Sender,
        messages: Messages,
        metadata: bytes,
        ended: Callable[[], object],
        close: Callable[[], object],
        told: Callable[[Exception], Exception],
    ) -> None:
        self._connection, self._messages, self._metadata = connection, messages, metadata
        self._ended, self._close, self._told = ended, close, told
        self._left = 2
        """Of its two halves those that are not over: who reads, who sends."""
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._is_over = self._is_reading = False
        sender.start(self._send, "npucall-stream")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._is_over:
            raise StopAsyncIteration
        self._is_reading = True
        try:
            while (found := await self._connection.next())[0] == ALIVE:
                await self._say_alive()
            kind, call_id, message = found
            if kind == STREAM and message:
                self._is_reading = False
                return message
        except (OSError, EOFError) as error:
            self._end()
            raise self._told(error) from None
        except BaseException:
            self._end()
            raise
        self._end()
        if kind == STREAM:
            raise StopAsyncIteration
        raise self._connection.error_in(kind, call_id, message)

    def cancel(self) -> None:
        """See ``senders.MessageStream``."""
        self._connection.socket.cut()
        if not self._is_reading:
            self._end()

    async def _send(self) -> None:
        """Sends until there is no more, or until it is over."""
        try:
            if isinstance(self._messages, AsyncIterator):
                async for message in self._messages:
                    await self._one(message)
            else:
                for each in self._messages:
                    await self._one(each)
            await self._one(b"")
        except OSError:
            pass  # who reads hears of it
        finally:
            self._leave()

    async def _one(self, message: Message) -> None:
        metadata, self._metadata = self._metadata, b""
        parts = (message,) if isinstance(message, bytes) else message
        with self._sending:
            await self._connection.send(STREAM, parts, metadata)

    async def _say_alive(self) -> None:
        """Unless a frame is just being sent: the server hears of that."""
        if self._sending.acquire(blocking=False):
            try:
                await self._connection.say_alive()
            finally:
                self._sending.release()

    def _end(self) -> None:
        """Nobody reads any more."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if not was_over:
            self._connection.socket.cut()
            self._ended()
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._close()

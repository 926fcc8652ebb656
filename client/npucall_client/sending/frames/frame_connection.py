"""One connection of frames, from the server's hello to its end. It does no I/O by itself."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Protocol

from npucall.errors import InternalError, ServerUnreachableError
from npucall.memory import fresh
from npucall.wire import headers
from npucall.wire.headers import HEADER_BYTES, fields_at, pack
from npucall.wire.status import from_bytes
from npucall_client.sending.frames.frame_region import FrameRegion
from npucall_client.shared.side_socket import mapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.tensors import Buffer
    from npucall_client.sending.senders import Files

_BUFFER_BYTES = 64 * 2**10
_ONLY = 1
"""The number of a call that has a connection alone."""
ALIVE_FRAME = pack(headers.ALIVE, 0)
_MOST_MS = 2**32 - 1
_RANDOM = int.from_bytes(os.urandom(7), "little") | 1 << 40
"""Never 0, whatever the number of the process."""


class FrameSocket(Protocol):
    """Moves bytes for a connection. A sender opens it."""

    is_trusted: bool
    """Whether it may see a credential."""

    def until(self, ends: float, left: float) -> None:
        """What follows has to be done by then, in so many seconds; else it raises TimeoutError."""

    async def receive_into(self, memory: memoryview) -> int:
        """The next bytes, as many as there are; none if the peer has gone."""

    async def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Sends all of the parts, which have so many bytes."""

    def send_now(self, data: bytes) -> Buffer:
        """Sends what takes no waiting; returns what ``send_left`` has to send before all else."""

    async def send_left(self, data: Buffer) -> None:
        """Sends all of what ``send_now`` left."""

    async def receive_files(self, size: int) -> tuple[bytes, list[int]]:
        """So many bytes, at most, and the file descriptors that come beside the first one."""

    def let_another_read(self) -> None:
        """From now on one task reads while another one sends: the first one notices silence."""

    def takes_more(self) -> bool:
        """Whether a few bytes can be sent without waiting."""

    def is_quiet(self) -> bool:
        """Whether nothing has come, not even the end."""

    def cut(self) -> None:
        """Nothing more comes or goes: whoever waits hears of it."""

    def close(self) -> None:
        """Gives the descriptor back. In a forked process the connection stays as it is."""


class CallConnection:
    """One call at a time, or one stream. ``files``: of the certificates with which it was made."""

    def __init__(self, socket: FrameSocket, authorization: str, files: Files | None) -> None:
        self.socket, self.authorization, self.files = socket, authorization, files
        self.used = time.monotonic()
        """When its last call ended."""
        self.is_open = True
        """Whether further calls may follow."""
        self.has_sent = False
        """Whether the kernel has taken all of its current call."""
        self.max_message_bytes = 0
        self.is_near = False
        """Whether the server can share memory with it."""
        self.region: FrameRegion | None = None
        """Memory that the server shares with this connection."""
        self.shared_bytes = 0
        """All of it, with what was too small."""
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._begin = self._end = 0

    async def enter(self, instance: str) -> None:
        """Until the server takes calls.

        Raises the error with which it refuses, and ServerUnreachableError if it is another process
        than ``instance``, which then learns nothing.
        """
        hello = headers.hello_in(bytes(await self._expect(headers.HELLO)))
        server, self.max_message_bytes = hello
        if server != instance:
            raise ServerUnreachableError(
                f"frames: expected the server {instance}, found {server}, to which they lead now"
            )
        if self.authorization and not self.socket.is_trusted:
            raise ServerUnreachableError("frames: expected a connection that may see a credential")
        await self.send(
            headers.CREDENTIAL, [headers.join_credential(self.authorization, _process())]
        )
        await self._expect(headers.WELCOME)

    async def call(
        self, kind: int, message: Sequence[Buffer], metadata: bytes, ends: float
    ) -> bytes:
        """The answer to a call. Raises the error that the server answers; OSError, EOFError."""
        left, socket, beside = ends - time.monotonic(), self.socket, len(metadata)
        socket.until(ends, left)
        size = beside + sum(map(len, message))
        head = pack(kind, size, _ONLY, beside, milliseconds(left))
        self.has_sent = False
        await socket.send((head, metadata, *message), HEADER_BYTES + size)
        self.has_sent = True
        while True:
            kind, call_id, answer = await self.next()
            if kind == headers.RESPONSE and call_id == _ONLY:
                return answer
            if kind != headers.ALIVE:
                raise self.error_in(kind, call_id, answer)
            await self.say_alive()

    async def share(self, size: int, ends: float) -> FrameRegion:
        """Memory of so many bytes, used instead of what was shared before.

        Raises the error with which the server refuses; OSError, EOFError.
        """
        self.region = None
        self.socket.until(ends, ends - time.monotonic())
        message = headers.join_memory_request(size)
        head = pack(headers.MEMORY, len(message), _ONLY)
        await self.socket.send((head, message), HEADER_BYTES + len(message))
        first, files = await self.socket.receive_files(HEADER_BYTES)
        while first == ALIVE_FRAME:
            await self.say_alive()
            first, files = await self.socket.receive_files(HEADER_BYTES)
        try:
            self._buffer[: len(first)] = first
            self._begin, self._end = 0, len(first)
            if not first:
                raise EOFError
            kind, call_id, answer = await self.next()
            if kind != headers.MEMORY:
                raise self.error_in(kind, call_id, answer)
            name = headers.memory_in(bytes(answer))
            self.region = FrameRegion(name, mapped(files, size))
            self.shared_bytes += size
        finally:
            for file in files:
                os.close(file)
        return self.region

    async def send(self, kind: int, message: Sequence[Buffer] = (), metadata: bytes = b"") -> None:
        """Sends one frame of the connection itself."""
        size = len(metadata) + sum(map(len, message))
        head = pack(kind, size, 0, len(metadata))
        await self.socket.send((head, metadata, *message), HEADER_BYTES + size)

    async def say_alive(self) -> None:
        """In answer to the server, which hears of it as well from bytes that have no room here."""
        if self.socket.takes_more():
            await self.socket.send((ALIVE_FRAME,), HEADER_BYTES)

    async def next(self) -> tuple[int, int, bytes]:
        """The next frame: its kind, its call, its message in memory of its own, read as bytes are.

        Raises EOFError.
        """
        if self._begin == self._end:  # as between two calls
            self._begin = 0
            self._end = await self.socket.receive_into(self._buffer)
        if self._end - self._begin < HEADER_BYTES:
            await self._fill(HEADER_BYTES)
        length, call_id, kind, _, metadata, _ = fields_at(self._buffer, self._begin)
        begin = self._begin + HEADER_BYTES
        self._begin = end = begin + length
        if end > self._end:
            self._begin = begin
            if length > _BUFFER_BYTES - HEADER_BYTES:
                return kind, call_id, await self._large(length, metadata)
            await self._fill(length)
            begin = self._begin
            self._begin = end = begin + length
        message = bytearray(self._buffer[begin + metadata : end])
        return kind, call_id, message  # type: ignore[return-value]

    def error_in(self, kind: int, call_id: int, message: bytes) -> Exception:
        """The error in a frame; after one that is not of a call there are no more calls."""
        if not call_id or kind != headers.ERROR:
            self.is_open = False
        if kind == headers.ERROR:
            return from_bytes(bytes(message))
        return InternalError(f"frames: expected an answer, found a frame of kind {kind}")

    async def _expect(self, kind: int) -> bytes:
        found, call_id, message = await self.next()
        if found != kind:
            raise self.error_in(found, call_id, message)
        return message

    async def _large(self, length: int, metadata: int) -> bytes:
        """A message that the buffer has no room for, past it into its own memory."""
        memory = memoryview(fresh(length))
        have = self._end - self._begin
        memory[:have] = self._buffer[self._begin : self._end]
        self._begin = self._end = 0
        while have < length:
            have += await self._some(memory[have:])
        return memory[metadata:]  # type: ignore[return-value]

    async def _fill(self, size: int) -> None:
        """Until so many bytes are there."""
        have = self._end - self._begin
        self._buffer[:have] = bytes(self._buffer[self._begin : self._end])
        self._begin, self._end = 0, have
        while self._end < size:
            self._end += await self._some(self._buffer[self._end :])

    async def _some(self, memory: memoryview) -> int:
        count = await self.socket.receive_into(memory)
        if not count:
            raise EOFError
        return count


def milliseconds(seconds: float) -> int:
    """The time that a call has left, as its header says it: at least 1, for 0 is no limit."""
    return min(max(math.ceil(seconds * 1e3), 1), _MOST_MS)


def _process() -> int:
    """A number of this process: all of its connections are of one caller."""
    return _RANDOM ^ os.getpid()

"""A connection of frames for asyncio: its event loop waits."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from npucall.wire import keepalive
from npucall_client.sending.frames.frame_places import OwnSocket, may_see_credential
from npucall_client.sending.frames.thread_socket import (
    JOINED_BYTES,
    MOST_FILES,
    OWN_FILES,
    SilenceError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import TypeVar

    from npucall.tensors import Buffer
    from npucall_client.sending.frames.frame_places import FramesPlace

    T = TypeVar("T")

_MOST_UNREAD = 4 * 2**10
"""To look at, to see whether more came."""


class LoopSocket:
    """See ``frame_connection.FrameSocket``. The time counts as a timer of the loop."""

    def __init__(self, connection: socket.socket, ends: float, user: int) -> None:
        self._loop, self._socket, self._ends = asyncio.get_running_loop(), connection, ends
        self._error: OSError | None = None
        """Why nobody waits any more."""
        self._another_reads = False
        self._timers: dict[bool, asyncio.TimerHandle] = {}
        """For what comes, and for what is sent."""
        self.is_trusted = may_see_credential(connection, user)

    @classmethod
    async def opened(cls, place: FramesPlace, ends: float) -> LoopSocket:
        """A connection there. Raises OSError."""
        loop = asyncio.get_running_loop()
        where: list[Any] = [(getattr(socket, "AF_UNIX", 0), place.path)]
        async with asyncio.timeout(max(ends - time.monotonic(), 0.0)):
            if not place.path:
                kind = socket.SOCK_STREAM
                found = await loop.getaddrinfo(place.host, place.port, type=kind)
                where = [(family, address) for family, *_, address in found]
            connection = OwnSocket(where[0][0])
            try:
                connection.settimeout(0)
                if not place.path:
                    keepalive.for_calls(connection)
                await loop.sock_connect(connection, where[0][1])
                return cls(connection, ends, place.user)
            except BaseException:
                connection.close()
                raise

    def until(self, ends: float, left: float) -> None:
        del left
        self._ends = ends

    async def receive_into(self, memory: memoryview) -> int:
        return await self._in_time(self._loop.sock_recv_into(self._socket, memory))

    async def send(self, parts: Sequence[Buffer], size: int) -> None:
        if size <= JOINED_BYTES:
            work = self._loop.sock_sendall(self._socket, b"".join(parts))
            await self._in_time(work, sends=True)
            return
        for part in parts:
            await self._in_time(self._loop.sock_sendall(self._socket, part), sends=True)

    def send_now(self, data: bytes) -> Buffer:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        return memoryview(data)[sent:]

    async def send_left(self, data: Buffer) -> None:
        await self.send((data,), len(data))

    async def receive_files(self, size: int) -> tuple[bytes, list[int]]:
        """See ``FrameSocket``."""
        came = asyncio.Event()
        self._loop.add_reader(self._socket, came.set)
        try:
            await self._in_time(came.wait())
        finally:
            self._loop.remove_reader(self._socket)
        data, files, _, _ = socket.recv_fds(self._socket, size, MOST_FILES, OWN_FILES)
        return data, files

    def let_another_read(self) -> None:
        self._another_reads = True

    def takes_more(self) -> bool:
        return keepalive.takes_more(self._socket)

    def is_quiet(self) -> bool:
        return self._unread() is None

    def cut(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _unread(self) -> int | None:
        """Bytes that wait, up to some; 0: it has ended; None: none."""
        try:
            return len(self._socket.recv(_MOST_UNREAD, socket.MSG_PEEK))
        except BlockingIOError:
            return None
        except OSError:
            return 0

    async def _in_time(self, work: Awaitable[T], *, sends: bool = False) -> T:
        """Its result. Raises TimeoutError after the end of the time, SilenceError before it."""
        self._wait(sends, 0, None)
        try:
            result = await work
        except OSError:
            if self._error is None:
                raise
        finally:
            self._timers[sends].cancel()
        if self._error is not None:
            raise self._error
        return result

    def _wait(self, sends: bool, looks: int, unread: int | None) -> None:  # noqa: FBT001
        seconds = min(max(self._ends - time.monotonic(), 0.0), keepalive.ALIVE_SECONDS)
        self._timers[sends] = self._loop.call_later(seconds, self._look, sends, looks, unread)

    def _look(self, sends: bool, looks: int, before: int | None) -> None:  # noqa: FBT001
        """Counts looks that found nothing new. Nobody reads what comes while all of it is sent."""
        unread = self._unread() if sends else None
        looks = looks + 1 if unread == before else 0
        if time.monotonic() >= self._ends:
            self._error = TimeoutError()
        elif looks * keepalive.ALIVE_SECONDS >= keepalive.SILENCE_SECONDS and not (
            sends and self._another_reads
        ):
            self._error = SilenceError()
        else:
            self._wait(sends, looks, unread)
            return
        self.cut()

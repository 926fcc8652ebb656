"""A connection of frames for asyncio: its event loop waits."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from npucall import keepalive
from npucall_client.sending.frames.frame_places import OwnSocket, may_see_credential
from npucall_client.sending.frames.thread_socket import MOST_FILES, OWN_FILES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import TypeVar

    from npucall.tensors import Buffer
    from npucall_client.sending.frames.frame_places import FramesPlace

    T = TypeVar("T")

_JOINED_BYTES = 64 * 2**10
"""To copy so little is quicker than to send it part by part."""


class LoopSocket:
    """See ``frame_connection.FrameSocket``. The time counts as a timer of the loop."""

    def __init__(self, connection: socket.socket, ends: float) -> None:
        self._loop, self._socket, self._ends = asyncio.get_running_loop(), connection, ends
        self._is_late = False
        self.is_trusted = may_see_credential(connection)

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
                return cls(connection, ends)
            except BaseException:
                connection.close()
                raise

    def until(self, ends: float, left: float) -> None:
        del left
        self._ends = ends

    async def receive_into(self, memory: memoryview) -> int:
        return await self._in_time(self._loop.sock_recv_into(self._socket, memory))

    async def send(self, parts: Sequence[Buffer], size: int) -> None:
        if size <= _JOINED_BYTES:
            await self._in_time(self._loop.sock_sendall(self._socket, b"".join(parts)))
            return
        for part in parts:
            await self._in_time(self._loop.sock_sendall(self._socket, part))

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

    def is_quiet(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def cut(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    async def _in_time(self, work: Awaitable[T]) -> T:
        """Its result, by the end of the time. Raises TimeoutError after that."""
        timer = self._loop.call_later(max(self._ends - time.monotonic(), 0.0), self._end)
        try:
            result = await work
        finally:
            timer.cancel()
        if self._is_late:
            raise TimeoutError
        return result

    def _end(self) -> None:
        self._is_late = True
        self.cut()

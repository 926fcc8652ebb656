"""A connection of frames for callers that block: the thread that calls sends and receives."""

from __future__ import annotations

import math
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from npucall.wire import keepalive
from npucall.wire.moments import Moment
from npucall_client.sending.frames.frame_places import OwnSocket, may_see_credential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.tensors import Buffer
    from npucall_client.sending.frames.frame_places import FramesPlace

JOINED_BYTES = 64 * 2**10
"""To copy so little is quicker than to send it part by part."""
_MOST_PARTS = 512
"""The kernel takes 1,024 at a time."""
_LONGEST_WAIT = 5.0
"""Seconds in which the kernel returns to look at the clock."""
_LEAST_WAIT = 1e-3
"""0 would mean for ever."""
_TIMEVAL = struct.Struct("@ll")
"""C's ``struct timeval``."""
MOST_FILES = 8
"""Descriptors for which an answer has room; one is right."""
OWN_FILES = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_AT_ONCE = getattr(socket, "MSG_DONTWAIT", 0)


class SilenceError(OSError):
    """Nothing comes, or goes: the other process stands still, or is no longer reached."""

    def __init__(self) -> None:
        super().__init__(f"the server gave no sign of life for {keepalive.SILENCE_SECONDS:g} s")


class ThreadSocket:
    """Sends and receives until ``ends``, on the clock of ``monotonic``: then TimeoutError."""

    __slots__ = ("_ends", "_moment", "_patience", "_socket", "_waits", "is_trusted")

    def __init__(self, connection: socket.socket, ends: float, user: int = 0) -> None:
        self._socket, self._ends, self._waits = connection, ends, math.inf
        self._moment = Moment() if _AT_ONCE else None
        self._patience = keepalive.SILENCE_SECONDS
        """Seconds for which nothing may go."""
        self.is_trusted = may_see_credential(connection, user)
        """Whether it may see a credential."""
        self._look()

    @classmethod
    def opened(cls, place: FramesPlace, ends: float) -> ThreadSocket:
        """A connection there. Raises OSError."""
        connection = _connected(place, ends)
        try:
            return cls(connection, ends, place.user)
        except BaseException:
            connection.close()
            raise

    def until(self, ends: float, left: float) -> None:
        """What follows has to be done by then, in so many seconds."""
        self._ends = ends
        if left < self._waits:
            self._look()

    async def receive_into(self, memory: memoryview) -> int:
        """The next bytes, as many as there are; none if the peer has gone."""
        if self._moment is not None and (ends := self._moment.begin()):
            while time.perf_counter() < ends:
                try:
                    count = self._socket.recv_into(memory, 0, _AT_ONCE)
                except BlockingIOError:
                    continue
                self._moment.end(in_vain=False)
                return count
            self._moment.end(in_vain=True)
        waited = 0.0
        while True:
            try:
                return self._socket.recv_into(memory)
            except BlockingIOError:
                waited = self._waited(waited, keepalive.SILENCE_SECONDS)

    async def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Sends all of the parts, which have so many bytes."""
        if size > JOINED_BYTES:
            self._send_all(parts)
            return
        whole = b"".join(parts)
        try:
            sent = self._socket.send(whole)
        except BlockingIOError:
            sent = 0
        if sent != size:
            self._send_all([memoryview(whole)[sent:]])

    def send_now(self, data: bytes) -> Buffer:
        """See ``FrameSocket``."""
        try:
            sent = self._socket.send(data, _AT_ONCE)
        except BlockingIOError:
            return data
        return memoryview(data)[sent:] if sent != len(data) else b""

    async def send_left(self, data: Buffer) -> None:
        """See ``FrameSocket``."""
        self._send_all((data,))

    async def receive_files(self, size: int) -> tuple[bytes, list[int]]:
        """See ``FrameSocket``."""
        waited = 0.0
        while True:
            try:
                data, files, _, _ = socket.recv_fds(self._socket, size, MOST_FILES, OWN_FILES)
            except BlockingIOError:
                waited = self._waited(waited, keepalive.SILENCE_SECONDS)
            else:
                return data, files

    def let_another_read(self) -> None:
        """See ``FrameSocket``."""
        self._patience, self._moment = math.inf, None

    def takes_more(self) -> bool:
        """See ``FrameSocket``."""
        return keepalive.takes_more(self._socket)

    def is_quiet(self) -> bool:
        """Whether nothing has come, not even the end."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | _AT_ONCE)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def cut(self) -> None:
        """Nothing more comes or goes: whoever waits hears of it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives the descriptor back. In a forked process the connection stays as it is."""
        self._socket.close()

    def _send_all(self, parts: Sequence[Buffer]) -> None:
        rest = [memoryview(part) for part in parts if len(part)]
        waited = 0.0
        while rest:
            sent = self._some(rest)
            waited = 0.0 if sent else self._waited(waited, self._patience)
            done = 0
            while done < len(rest) and sent >= len(rest[done]):
                sent -= len(rest[done])
                done += 1
            del rest[:done]
            if sent:
                rest[0] = rest[0][sent:]

    def _some(self, rest: Sequence[memoryview]) -> int:
        try:
            return self._socket.sendmsg(rest[:_MOST_PARTS])
        except BlockingIOError:
            return 0

    def _waited(self, seconds: float, most: float) -> float:
        """How long nothing has moved, after the kernel waited once more. Raises SilenceError."""
        # Not by the clock: this process itself may have been stopped.
        seconds += self._waits
        self._look()
        if seconds >= most:
            raise SilenceError
        return seconds

    def _look(self) -> None:
        """How long the kernel may wait next. Raises TimeoutError if the time is over."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        waits = min(max(left, _LEAST_WAIT), _LONGEST_WAIT)
        if waits != self._waits:
            self._waits = waits
            _wait_at_most(self._socket, waits)


def _connected(place: FramesPlace, ends: float) -> socket.socket:
    """A connection to a place, which blocks. Raises OSError."""
    left = max(ends - time.monotonic(), _LEAST_WAIT)
    if place.path:
        connection = OwnSocket(socket.AF_UNIX)
    else:
        made = socket.create_connection((place.host, place.port), left)
        connection = OwnSocket(made.family, made.type, made.proto, made.detach())
    try:
        if place.path:
            _wait_at_most(connection, left)  # Python's own timeout would fail at once
            connection.connect(place.path)
        else:
            keepalive.for_calls(connection)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _wait_at_most(connection: socket.socket, seconds: float) -> None:
    """A connection for which a call of the kernel waits so long, then raises BlockingIOError."""
    wait = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)

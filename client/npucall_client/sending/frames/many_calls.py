"""A connection of frames with many calls in flight: what is sent on it, and what comes."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall.wire.headers import (
    ALIVE,
    CANCEL,
    CREDENTIAL,
    ERROR,
    EXECUTE,
    RESPONSE,
    join_credential,
    pack,
)
from npucall.wire.status import from_bytes
from npucall_client.calls.answers import response_to
from npucall_client.sending.frames.frame_connection import ALIVE_FRAME, milliseconds
from npucall_client.sending.frames.thread_socket import JOINED_BYTES
from npucall_client.sending.transfer import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.tensors import Buffer
    from npucall.wire.messages import Response
    from npucall_client.sending.frames.frame_connection import CallConnection
    from npucall_client.sending.link import Link
    from npucall_client.sending.writer import SentCall

MOST_CALLS = 2**32 - 1
"""The largest number of a call."""


class ManyCalls:
    """Who sends a call writes its frame; one task reads the answers, as calls end.

    What the kernel does not take at once a task sends, so nobody waits who only wants to send.
    """

    def __init__(self, link: Link, connection: CallConnection) -> None:
        self._link, self._connection = link, connection
        self._socket = connection.socket
        self.authorization = connection.authorization
        """The authorization that the server got last."""
        self._lock = threading.Lock()
        self._waiting: deque[Sequence[Buffer]] = deque()
        """Frames that a task sends, which does so while this is true:"""
        self._is_sending = False
        self._socket.until(math.inf, math.inf)
        self._socket.let_another_read()

    async def send(self, call: SentCall) -> None:
        """Sends a call, unless its time is over."""
        attempts = call.attempts
        left = attempts.ends - time.monotonic()
        if left <= 0:
            return
        await self._renew()
        attempts.sent, call.is_sent = self.authorization, True
        beside, message = self._link.beside.framed(attempts), parts_of(call.call)
        size = len(beside) + sum(map(len, message))
        head = pack(EXECUTE, size, call.id, len(beside), milliseconds(left))
        self._send((head, beside, *message), size)

    def forget(self, call_id: int) -> None:
        """Nobody waits for a call any more."""
        self._send((pack(CANCEL, 0, call_id),))

    async def next_answer(self) -> tuple[int, int, bytes]:
        """The next answer: of which kind, to which call, and its message.

        Raises what ends the connection: the server's error, OSError, EOFError.
        """
        while True:
            kind, call_id, message = found = await self._connection.next()
            if kind == ALIVE:
                self._say_alive()
            elif not call_id or kind not in (RESPONSE, ERROR):
                raise self._connection.error_in(kind, call_id, message)
            else:
                return found

    def cancel(self) -> None:
        """Ends the connection, and with it all of its calls."""
        self._socket.cut()

    async def _renew(self) -> None:
        """Gives the server another credential, if there is one."""
        try:
            now = self._link.credential.at_hand()
            if now is None:
                now = await self._link.authorization()
        except NpucallError:
            return  # the server refuses the call, which raises this then
        if now and now != self.authorization:
            self.authorization = now
            message = join_credential(now)
            self._send((pack(CREDENTIAL, len(message)), message))

    def _say_alive(self) -> None:
        """Unless a frame is just being sent: the server hears of that."""
        if not self._is_sending and self._socket.takes_more():
            self._send((ALIVE_FRAME,))

    def _send(self, frame: Sequence[Buffer], size: int = 0) -> None:
        with self._lock:
            if self._is_sending:
                self._waiting.append(frame)
                return
            left: Buffer = b""
            if size <= JOINED_BYTES:  # whoever has it sends it, if that takes no waiting
                try:
                    left = self._socket.send_now(b"".join(frame))
                except OSError:
                    return  # who reads hears of it
                if not left:
                    return
            else:
                self._waiting.append(frame)
            self._is_sending = True
        self._link.sender.start(partial(self._send_waiting, left), "npucall-frames")

    async def _send_waiting(self, left: Buffer) -> None:
        try:
            await self._socket.send_left(left)
            while True:
                with self._lock:
                    if not self._waiting:
                        self._is_sending = False
                        return
                    frame = self._waiting.popleft()
                await self._socket.send(frame, sum(map(len, frame)))
                del frame  # do not keep the arrays
        except OSError:
            pass  # who reads hears of it, and nothing more is sent


def answer_in(call: SentCall, kind: int, message: bytes) -> Response | NpucallError:
    """How a call ends."""
    if kind == ERROR:
        return from_bytes(bytes(message))
    try:
        return response_to(call.call, message)
    except NpucallError as error:
        return error

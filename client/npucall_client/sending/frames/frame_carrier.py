"""The frames of a link: whether its calls travel so, and its connections. Safe to use from threads.

A connection has one call at a time, whose caller sends and receives itself.
"""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from npucall.errors import NpucallError, UnauthenticatedError
from npucall.wire.headers import EXECUTE, PROGRAM
from npucall_client.calls.options import closed
from npucall_client.sending.failures import Origin, broken, lateness
from npucall_client.sending.frames.frame_memory import CallMemory
from npucall_client.sending.frames.frame_opener import FrameOpener
from npucall_client.sending.frames.frame_places import Entrance, places_of
from npucall_client.sending.frames.frame_stream import FrameStream
from npucall_client.sending.frames.thread_socket import SilenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npucall.tensors import Buffer
    from npucall.v1 import operator_service_pb2 as pb
    from npucall_client.sending.attempts import Attempts
    from npucall_client.sending.channels import RenewedChannels
    from npucall_client.sending.frames.frame_connection import CallConnection
    from npucall_client.sending.senders import Messages, Sender
    from npucall_client.settings import ClientSettings

KINDS = {"Execute": EXECUTE, "ExecuteProgram": PROGRAM}
"""The methods whose calls can be frames."""
STREAM = "ExecuteStream"
"""The method whose streams can be connections."""
_MOST_CONNECTIONS = 64
"""To a server; calls beyond them travel over gRPC."""
_NEAR_SECONDS, _FAR_SECONDS = 2.0, 10.0
"""Time to open a connection: while a call waits for it, or in the background."""
_SHORT_SECONDS = 1.0
"""A call that has less left says nothing about the place."""
_FRESH_SECONDS = 0.05
"""A connection that had a call so shortly before is taken without a look at it."""

_log = logging.getLogger("npucall_client")
_carriers: weakref.WeakSet[FrameCarrier] = weakref.WeakSet()


class FrameCarrier:
    """``doubt`` is called if the server is no longer where it was."""

    def __init__(
        self,
        settings: ClientSettings,
        sender: Sender,
        connections: RenewedChannels,
        doubt: Callable[[], object],
    ) -> None:
        self._settings, self._sender, self._channels = settings, sender, connections
        self._opener = FrameOpener(settings, sender, connections)
        self._doubt = doubt
        self._instance = self._left = ""
        """The process that takes calls there, and the last one that stood still."""
        self.is_offered = False
        """Whether a call may travel so."""
        self._most_bytes = 0
        """Of a call, as the server said on the last connection; 0: there was none."""
        self._entrances: tuple[Entrance, ...] = ()
        self._idle: list[CallConnection] = []
        """The one that was used last comes first."""
        self._is_closed = False
        self.memory = CallMemory(self, settings)
        _carriers.add(self)

    @property
    def shared_bytes(self) -> int:
        """Of memory that the server shares with the connections."""
        return sum(each.shared_bytes for each in self._opener.every.copy())

    def learn(self, info: pb.GetServerInfoResponse) -> None:
        """Takes where the server says that it takes calls."""
        places = places_of(info, self._settings, self._channels.way)
        known = tuple(each.place for each in self._entrances)
        if (places, info.server.instance) != (known, self._instance):
            self._instance = info.server.instance
            self._entrances = tuple(map(Entrance, places))
            self.is_offered, self._most_bytes = bool(places), 0
            if not places:
                _log.debug("frames: calls go over gRPC to %s", self._settings.target)
            self._end_idle()

    async def answer(
        self, kind: int, message: Sequence[Buffer], metadata: bytes, attempts: Attempts
    ) -> bytes | None:
        """The answer to a call; None if it has to travel over gRPC.

        Raises the error that the server answers, or that of a connection that breaks.
        """
        while (connection := await self.taken(attempts)) is not None:
            was_used = connection.has_sent
            try:
                answer = await connection.call(kind, message, metadata, attempts.ends)
            except NpucallError:
                self.give_back(connection)
                raise
            except (OSError, EOFError) as error:
                self.end(connection)
                if was_used and not connection.has_sent and isinstance(error, ConnectionError):
                    continue  # it was closed while it was idle
                raise self.told(error, attempts.request.timeout) from None
            except BaseException:
                self.end(connection)
                raise
            self.give_back(connection)
            return answer
        return None

    @contextmanager
    def using(self, connection: CallConnection, timeout: float) -> Iterator[None]:
        """Uses a connection, which is free or closed after that."""
        try:
            yield
        except NpucallError:
            self.give_back(connection)
            raise
        except (OSError, EOFError) as error:
            self.end(connection)
            raise self.told(error, timeout) from None
        except BaseException:
            self.end(connection)
            raise
        self.give_back(connection)

    def stream(  # noqa: PLR0913  # all that makes one
        self,
        connection: CallConnection,
        messages: Messages,
        metadata: bytes,
        seconds: float | None,
        timeout: float,
        ended: Callable[[], object],
    ) -> FrameStream:
        """Makes a connection that was taken a stream."""
        left = math.inf if seconds is None else seconds
        connection.socket.until(time.monotonic() + left, left)
        connection.socket.let_another_read()
        return FrameStream(
            connection,
            self._sender,
            messages,
            metadata,
            ended,
            partial(self.end, connection),
            partial(self.told, timeout=timeout),
        )

    def told(self, error: Exception, timeout: float) -> Exception:
        """What the caller hears of a connection that broke, as over gRPC."""
        target = self._settings.target
        if isinstance(error, SilenceError):
            self._leave()
        if isinstance(error, TimeoutError) and error.errno is None:  # else it is the kernel's
            return lateness(Origin(target, lambda: True, is_closed=False), timeout)
        return closed() if self._is_closed else broken(target, str(error) or "Socket closed")

    async def reached(self, attempts: Attempts) -> bool:
        """Whether calls travel in frames; waits until that is known."""
        ends = min(attempts.ends, time.monotonic() + _FAR_SECONDS)
        for entrance in self._entrances:
            if not entrance.is_reached:
                if (opened := await self._opened(entrance, attempts.sent, ends)) is None:
                    continue
                self.give_back(opened)
            return True
        return False

    async def most_bytes(self, attempts: Attempts) -> int:
        """Of a message that the server takes in frames; 0 if these do not reach it."""
        if self.is_offered and not self._most_bytes:
            await self.reached(attempts)
        return self._most_bytes

    async def taken(self, attempts: Attempts) -> CallConnection | None:
        """A connection that nobody else uses; None if there is none to be had."""
        now = time.monotonic()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if (
                connection.authorization == attempts.sent
                and (connection.files is None or connection.files is self._channels.files())
                and (now - connection.used < _FRESH_SECONDS or connection.socket.is_quiet())
            ):
                return connection
            self.end(connection)
        for entrance in self._entrances:
            if now < entrance.rests_until or len(self._opener.every) >= _MOST_CONNECTIONS:
                continue
            if entrance.is_reached or entrance.place.path:
                ends = min(attempts.ends, now + _NEAR_SECONDS)
                if (opened := await self._opened(entrance, attempts.sent, ends)) is not None:
                    return opened
            elif not entrance.is_tried:
                entrance.is_tried = True
                self._sender.start(partial(self._try, entrance, attempts.sent), "npucall-frames")
        return None

    def give_back(self, connection: CallConnection) -> None:
        """A call has ended, and with it the connection, perhaps."""
        if connection.is_open:
            connection.used = time.monotonic()
            self._idle.append(connection)
            if self._is_closed:  # by another thread, which did not find this one
                self._end_idle()
        else:
            self.end(connection)

    def end(self, connection: CallConnection) -> None:
        """Ends a connection that nobody uses; a call that runs there ends too."""
        self._opener.end(connection)

    def close(self) -> None:
        """Ends all connections; calls under way hear of it."""
        self._is_closed, self.is_offered, self._entrances = True, False, ()
        self._end_idle()
        self._opener.close()

    def forget(self) -> None:
        """In a forked process: the connections are those of the other one."""
        self._idle = []
        self._opener.forget()
        self._entrances = tuple(Entrance(each.place) for each in self._entrances)

    def _leave(self) -> None:
        """The server stands still: its other connections are no better, those of gRPC neither."""
        self._end_idle()
        if self._instance != self._left:
            self._left = self._instance
            self._channels.leave()

    def _end_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self.end(self._idle.pop())

    async def _try(self, entrance: Entrance, authorization: str) -> None:
        """Opens a connection in the background: then further ones are worth waiting for."""
        ends = time.monotonic() + _FAR_SECONDS
        opened = await self._opened(entrance, authorization, ends)
        entrance.is_tried = False
        if opened is not None:
            self.give_back(opened)

    async def _opened(
        self, entrance: Entrance, authorization: str, ends: float
    ) -> CallConnection | None:
        """A new connection; None if it does not come about."""
        place, is_short = entrance.place, ends - time.monotonic() < _SHORT_SECONDS
        try:
            connection = await self._opener.entered(place, authorization, self._instance, ends)
        except (OSError, EOFError, ValueError, NpucallError) as error:
            _log.debug("frames: calls do not go to %s now: %s", place, error or type(error))
            if isinstance(error, UnauthenticatedError) or is_short:
                return None  # gRPC says the same of a credential; the call had little time
            was_reached = entrance.is_reached
            entrance.failed()
            if was_reached:
                self._doubt()
            return None
        self._most_bytes = connection.max_message_bytes
        if not entrance.is_reached:
            _log.debug("frames: calls go to %s", place)
        entrance.reached()
        return connection


def _after_fork() -> None:
    for carrier in list(_carriers):
        carrier.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""The link to a server: channels, credentials, repeats, and gRPC's errors made the contract's.

It sends bytes and receives bytes; it does not know what a call is.
"""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from npucall.errors import (
    NpucallError,
    UnauthenticatedError,
)
from npucall.wire.status import (
    AUTHORIZATION,
    INSTANCE,
    REQUEST_ID,
    RESERVATION,
    SESSION,
    TRACEPARENT,
)
from npucall_client.calls.options import closed
from npucall_client.sending import tracing
from npucall_client.sending.channels import Connections
from npucall_client.sending.credentials import credential_of
from npucall_client.sending.failures import Origin, failure, lateness
from npucall_client.sending.following import Following
from npucall_client.sending.losses import is_break, told
from npucall_client.sending.probe import has_ended
from npucall_client.sending.retry import Attempts, repeated
from npucall_client.sending.service import MANY_FRAMES, instance_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from npucall_client.calls.tensors import Home
    from npucall_client.sending.large_call import StreamOpener
    from npucall_client.sending.losses import Losses
    from npucall_client.sending.senders import Messages, Sender, Stream
    from npucall_client.settings import ClientSettings

T = TypeVar("T")


def _nothing() -> None:
    """Does nothing: only its timeout ends the attempts at a call."""


class Link:
    """Sends to the server that the settings name: for a reservation, a session, or for neither.

    ``once``: one attempt at each call, which does not wait for a server that is starting; the pool
    makes the other attempts. The link itself waits only for the caller's own limit (a quota).
    Raises ValueError for invalid credentials.
    """

    def __init__(self, settings: ClientSettings, sender: Sender, *, once: bool = False) -> None:
        self.sender = sender
        self.target = settings.target
        self._once = once
        self._waits_for_room = settings.wait
        self._seen = Seen()
        self._losses: Losses | None = None
        self._goes_on: Callable[[], object] = _nothing
        self._credential = credential_of(settings)
        self.connections = Connections(settings, sender)
        self._closed = sender.event()
        self._key = ""
        self._home: Home | None = None
        self._spans = tracing.spans()

    async def close(self) -> None:
        """Closes the channels; calls under way are cancelled."""
        self._closed.set()
        await self.connections.close()

    def under(self, key: str) -> Self:
        """The same connection, for calls under a reservation."""
        other = copy.copy(self)
        other._key = key  # noqa: SLF001  # of its own kind
        return other

    def waiting(self, wait: bool) -> Self:  # noqa: FBT001  # it is what the setting is called
        """The same connection, for calls that wait, or do not wait, for a server that is full."""
        other = copy.copy(self)
        other._waits_for_room = wait  # noqa: SLF001  # of its own kind
        return other

    def at(self, home: Home | None) -> Self:
        """The same connection, for calls of a session."""
        other = copy.copy(self)
        other._home = home  # noqa: SLF001  # of its own kind
        return other

    def carrying(self, losses: Losses) -> Self:
        """The same connection, for a call of which an attempt was lost: it tells the server so.

        If the connection breaks again, the error says whether the call had begun (``losses.told``).
        """
        other = copy.copy(self)
        other._losses = losses  # noqa: SLF001  # of its own kind
        return other

    @property
    def instance(self) -> str:
        """The instance of the process that answered last, as far as the link knows it."""
        return self._seen.instance

    async def has_ended(self, instance: str) -> bool:
        """Whether that process is gone: the address refuses, or another process answers there."""
        return await has_ended(self, instance)

    async def look(self, seconds: float, authorization: str) -> bytes:
        """What the server is now; does not wait for a server that does not answer yet."""
        metadata = self._metadata(authorization)
        channels = self.connections.take()
        try:
            with self.errors(seconds):
                answer = await channels.method("GetServerInfo")(b"", seconds, metadata)
        finally:
            self.connections.give_back(channels)
        self._seen.instance = instance_of(answer)
        return answer

    def repeating(self, goes_on: Callable[[], object]) -> Self:
        """The same connection, for calls that no other server can answer: the link repeats them.

        ``goes_on`` is called between two attempts; it raises an error to end them.
        """
        other = copy.copy(self)
        other._once, other._goes_on = False, goes_on  # noqa: SLF001  # of its own kind
        return other

    def open_stream(  # noqa: PLR0913  # all that goes with it
        self,
        messages: Messages,
        timeout: float | None,
        authorization: str,
        method: str = "ExecuteStream",
        request_id: str = "",
        ended: Callable[[], object] = _nothing,
    ) -> Stream:
        """Opens a method of streams; returns the messages that come. Calls ``ended`` at its end."""

        def over() -> None:
            self.connections.give_back(channels)
            ended()

        metadata = (*(self._metadata(authorization, request_id) or ()), MANY_FRAMES)
        channels = self.connections.take()
        try:
            return channels.stream(
                method,
                messages,
                timeout,
                metadata,
                waits=self._waits,
                ended=over,
            )
        except BaseException:
            self.connections.give_back(channels)
            raise

    async def authorization(self) -> str:
        """The caller's current credential; empty if there is none. Raises UnauthenticatedError."""
        known = self._credential.at_hand()
        if known is not None:
            return known
        return await self.sender.beside(self._credential.authorization)

    def authorization_lasts(self) -> float | None:
        """Seconds until the client asks for another one; None if it never does."""
        return self._credential.seconds_left()

    async def has_another(self, error: NpucallError, sent: str) -> bool:
        """Whether there is an authorization other than ``sent``, which the server refused."""
        if not isinstance(error, UnauthenticatedError):
            return False
        refused = error
        return await self.sender.beside(lambda: self._credential.another(refused, sent))

    async def on_stream(
        self,
        method: str,
        exchange: Callable[[StreamOpener, float], Awaitable[T]],
        timeout: float,
        request_id: str = "",
        name: str = "",
    ) -> T:
        """The result of an exchange on a stream of its own; starts again if the stream breaks."""

        async def send(link: Self, seconds: float, authorization: str) -> T:
            def open_stream(messages: Iterator[bytes], timeout: float) -> Stream:
                return link.open_stream(messages, timeout, authorization, method, request_id)

            with link.errors(timeout):
                return await exchange(open_stream, seconds)

        return await self.repeated(send, timeout, name or method, request_id)

    async def send(
        self, method: str, request: bytes, timeout: float, request_id: str = "", name: str = ""
    ) -> bytes:
        """Calls a method of one request and one response; repeats it as it repeats calls.

        ``name``: of the call, for errors; if not given, the method's.
        """

        def send(link: Self, seconds: float, authorization: str) -> Awaitable[bytes]:
            return link.send_once(method, request, seconds, timeout, authorization, request_id)

        return await self.repeated(send, timeout, name or method, request_id)

    def _metadata(
        self, authorization: str, request_id: str = ""
    ) -> tuple[tuple[str, str], ...] | None:
        """The metadata of a call, or of a stream.

        Plain metadata, since gRPC's own call credentials cost a call 360 us [src:grpc-credentials].
        """
        pairs: tuple[tuple[str, str], ...] = (
            (AUTHORIZATION, authorization), (REQUEST_ID, request_id), (RESERVATION, self._key),
            (SESSION, self._home.id if self._home is not None else ""),
            (TRACEPARENT, self._spans.traceparent() if self._spans is not None else ""),
        )  # fmt: skip
        if self._losses is not None:
            pairs += self._losses.metadata
        return tuple(pair for pair in pairs if pair[1]) or None

    async def repeated(
        self,
        send: Callable[[Self, float, str], Awaitable[T]],
        timeout: float,
        name: str,
        request_id: str = "",
    ) -> T:
        """The result of ``send``, tried again while that may help.

        ``send`` gets the link, the seconds left, and the authorization. Raises PoisonedCallError
        for a call that makes its servers end; ``name`` is its name.
        """
        authorized = self.authorized(send)
        if self._once:
            return await self.tried(lambda seconds: authorized(self, seconds), timeout)
        following = Following(self, authorized, self._losses, name, request_id)
        return await self.tried(following, timeout)

    async def tried(self, attempt: Callable[[float], Awaitable[T]], timeout: float) -> T:
        """The result of an attempt, made again while that may help."""
        return await repeated(attempt, timeout, self.pause, self.attempts)

    def attempts(self, ends: float) -> Attempts:
        """The attempts after the first one that a call may make until ``ends``."""
        return Attempts(ends, waits=self._waits_for_room, alone=not self._once)

    @property
    def _waits(self) -> bool:
        """Whether a call waits for a connection."""
        return not self._once and self._goes_on is _nothing

    def authorized(
        self, send: Callable[[Self, float, str], Awaitable[T]]
    ) -> Callable[[Self, float], Awaitable[T]]:
        """An attempt, made twice if the server refuses the credential and there is another one."""

        async def attempt(link: Self, seconds: float) -> T:
            ends = time.monotonic() + seconds
            sent = await self.authorization()
            try:
                return await send(link, seconds, sent)
            except UnauthenticatedError as error:
                if not await self.has_another(error, sent):
                    raise
            another = await self.authorization()
            return await send(link, max(0.0, ends - time.monotonic()), another)

        return attempt

    async def send_once(  # noqa: PLR0913  # all that goes with it
        self,
        method: str,
        request: bytes,
        seconds: float,
        timeout: float,
        authorization: str,
        request_id: str = "",
    ) -> bytes:
        """Makes one attempt; ``timeout`` is that of all attempts, for errors.

        It waits until the channel is ready, so that a restart of the server costs time, but no
        attempts.
        """
        metadata = self._metadata(authorization, request_id)
        channels = self.connections.take()
        try:
            with self.errors(timeout):
                send = channels.method(method)
                hear = None if self._losses is None else self._seen.hear
                return await send(request, seconds, metadata, waits=self._waits, hear=hear)
        finally:
            self.connections.give_back(channels)

    def errors(self, timeout: float) -> InOurErrors:
        """A context that turns gRPC's errors into the contract's."""
        return InOurErrors(self, timeout)

    def check_open(self) -> None:
        """Raises CancelledError once the client is closed."""
        if self._closed.is_set():
            raise closed()

    async def rest(self, seconds: float) -> None:
        """Waits. Raises CancelledError once the client is closed."""
        if await self._closed.wait(seconds):
            raise closed()

    async def pause(self, seconds: float) -> None:
        """Waits between two attempts. Raises CancelledError once the client is closed."""
        await self.rest(seconds)
        self._goes_on()

    def failure(self, error: Any, timeout: float) -> NpucallError:
        """The contract's error for gRPC's error."""
        trailers = error.trailing_metadata()
        known = failure(self._origin(), error.code(), error.details(), trailers, timeout)
        if self._losses is not None and is_break(known):
            initial = error.initial_metadata() or ()
            self._seen.hear(initial)
            told(known, initial)
        return known

    def lateness(self, timeout: float) -> NpucallError:
        """The error of a call that got no answer in time."""
        return lateness(self._origin(), timeout)

    def _origin(self) -> Origin:
        is_closed = self._closed.is_set()
        is_connected = not is_closed and self.connections.is_connected()
        return Origin(self.target, is_connected, is_closed, self.connections.way.told)


class Seen:
    """Which process answered last; all copies of a link share it."""

    __slots__ = ("instance",)

    def __init__(self) -> None:
        self.instance = ""

    def hear(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Takes what a server said about itself before its answer, if it did."""
        for key, value in metadata:
            if key == INSTANCE:
                self.instance = str(value)


class InOurErrors:
    """Turns gRPC's errors into the contract's. Raises CancelledError if the client is closed.

    It is a class, since a generator takes four times as long, and every call needs it.
    """

    __slots__ = ("_link", "_timeout")

    def __init__(self, link: Link, timeout: float) -> None:
        self._link, self._timeout = link, timeout

    def __enter__(self) -> None:
        self._link.check_open()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, grpc.RpcError):
            # gRPC's error is its __context__; printed, it would take forty lines.
            raise self._link.failure(error, self._timeout) from None
        if isinstance(error, ValueError):  # gRPC's error for a channel that was just closed
            self._link.check_open()

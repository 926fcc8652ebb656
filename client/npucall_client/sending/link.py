"""The link to one server: channels, credentials, shared memory, and gRPC's errors made ours.

It makes one attempt at a time; ``attempts`` says what follows.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from npucall.errors import NpucallError, ServerUnreachableError, UnauthenticatedError
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.calls.options import closed
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.beside import Beside
from npucall_client.sending.channels import RenewedChannels
from npucall_client.sending.credentials import credential_of, none
from npucall_client.sending.failures import Origin, failure, lateness
from npucall_client.sending.frames.frame_carrier import KINDS, STREAM, FrameCarrier
from npucall_client.sending.paths import MANY_FRAMES
from npucall_client.sending.request import Request
from npucall_client.sending.server_limits import ServerLimits
from npucall_client.sending.transfer import place_nothing_in_chunks
from npucall_client.shared.memory import SharedMemories

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from npucall.tensors import Buffer
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.frames.frame_connection import CallConnection
    from npucall_client.sending.large_call import StreamOpener
    from npucall_client.sending.senders import Messages, MessageStream, Sender
    from npucall_client.settings import ClientSettings

T = TypeVar("T")

_log = logging.getLogger("npucall_client")

_NOBODY = ("Connection refused", "No such file")
"""gRPC's texts if no process listens."""
_REFUSED = "RST_STREAM with error code 7"
"""gRPC's text for a stream that the server has refused."""
_END_SECONDS = 2.0
"""Time in which a process answers that has not ended."""
_BETWEEN_LOOKS = 0.05


def _nothing() -> None:
    pass


class Link:
    """Sends to the server that the settings name.

    ``waits``: whether an attempt waits for a server that is starting; False for a member of a pool,
    which asks another one. ``trusted``: whether it may have the caller's credential.
    Raises ValueError for invalid credentials.
    """

    def __init__(
        self, settings: ClientSettings, sender: Sender, *, waits: bool = True, trusted: bool = True
    ) -> None:
        self.sender = sender
        self.target = settings.target
        self.waits = waits
        self.instance: str | None = ""
        """The process that answered last; None if that one has ended."""
        self.info = pb.GetServerInfoResponse()
        self.limits = ServerLimits(self.info.limits, settings.stream_from)
        self.memories = SharedMemories()
        self.credential = credential_of(settings) if trusted else none()
        self.connections = RenewedChannels(settings, sender)
        self.frames = FrameCarrier(settings, sender, self.connections, self._doubt)
        self.beside = Beside(settings.target, waits=waits)
        self._stream_from = settings.stream_from
        self._closed = sender.event()

    @property
    def only(self) -> Self:
        """It is a place by itself; see ``attempts.Where``."""
        return self

    async def take(self, attempts: Attempts) -> Self:
        """Itself."""
        del attempts
        return self

    def give_back(self, attempts: Attempts, error: BaseException | None) -> None:
        """Does nothing."""

    def elsewhere(self, attempts: Attempts, error: NpucallError) -> None:
        """None: there is no other server."""

    async def wait(self, seconds: float) -> None:
        """A pause. Raises CancelledError once the client is closed."""
        if await self._closed.wait(seconds):
            raise closed()

    async def close(self) -> None:
        """Closes the connection and the memory; calls under way are cancelled."""
        self._closed.set()
        self.frames.close()
        await self.connections.close()
        self.memories.close()

    def check_open(self) -> None:
        """Raises CancelledError once the client is closed."""
        if self._closed.is_set():
            raise closed()

    # --- Attempts ---------------------------------------------------------------------------------

    async def send_once(
        self,
        method: str,
        message: bytes | Sequence[Buffer],
        attempts: Attempts,
        *,
        waits: bool | None = None,
    ) -> bytes:
        """Makes one attempt at a method of one request, or its parts, and one response.

        It waits until the channel is ready, so that a restart of the server costs time, but no
        attempts.
        """
        who = self.credential.at_hand()
        attempts.sent = await self.authorization() if who is None else who
        if self.frames.is_offered and method in KINDS:
            parts = (message,) if isinstance(message, bytes) else message
            beside = self.beside.framed(attempts)
            answer = await self.frames.answer(KINDS[method], parts, beside, attempts)
            if answer is not None:
                return answer
        connections = self.connections
        channels = connections.take()
        try:
            return await channels.methods[method](
                message if isinstance(message, bytes) else b"".join(message),
                max(0.0, attempts.ends - time.monotonic()),
                self.beside.metadata(attempts),
                waits=self.waits if waits is None else waits,
            )
        except (grpc.RpcError, ValueError) as error:
            # gRPC's error is its __context__; printed, it would take forty lines.
            raise self.failure(error, attempts.request.timeout) from None
        finally:
            connections.give_back(channels)

    async def placed(self, call: BoundCall, attempts: Attempts) -> Response | None:
        """One attempt at a large call by memory of a connection; None if it has to travel."""
        attempts.sent = await self.authorization()
        return await self.frames.memory.answer(call, self.beside.framed(attempts), attempts)

    async def server_info(
        self, attempts: Attempts, *, waits: bool | None = None
    ) -> pb.GetServerInfoResponse:
        """What the server is now."""
        data = await self.send_once("GetServerInfo", b"", attempts, waits=waits)
        return pb.GetServerInfoResponse.FromString(data)

    async def look(self, attempts: Attempts) -> pb.GetServerInfoResponse:
        """What the server is now; does not wait for a server that does not answer yet."""
        info = await self.server_info(attempts, waits=False)
        self.instance = info.server.instance
        return info

    async def ask(self, attempts: Attempts) -> pb.GetServerInfoResponse:
        """What the server is now; the client uses its limits from then on."""
        return self.learn(await self.server_info(attempts))

    def learn(self, info: pb.GetServerInfoResponse) -> pb.GetServerInfoResponse:
        """Takes what the server said it is."""
        server = info.server
        if server.instance != self.info.server.instance:
            said = self.target, server.device, server.soc, info.version, server.instance
            _log.debug("%s is %s as %s, npucall %s, instance %s", *said)
        self.info = info
        self.instance = server.instance
        self.limits = ServerLimits(info.limits, self._stream_from)
        self.frames.learn(info)
        return info

    def _doubt(self) -> None:
        """Asks again what the server is, before the next call."""
        self.instance = None

    def open_stream(  # noqa: PLR0913  # all that makes one
        self,
        method: str,
        messages: Messages,
        attempts: Attempts,
        *,
        seconds: float | None,
        ended: Callable[[], object] = _nothing,
        connection: CallConnection | None = None,
    ) -> MessageStream:
        """Opens a method of streams; returns the messages that come. Calls ``ended`` at its end.

        ``attempts.sent`` is its credential; ``connection``: of frames, if it travels in them.
        """
        if connection is not None:
            beside, timeout = self.beside.framed(attempts), attempts.request.timeout
            return self.frames.stream(connection, messages, beside, seconds, timeout, ended)

        def over() -> None:
            self.connections.give_back(channels)
            ended()

        metadata = (*(self.beside.metadata(attempts) or ()), MANY_FRAMES)
        channels = self.connections.take()
        try:
            return channels.stream(
                method, messages, seconds, metadata, waits=self.waits, ended=over
            )
        except BaseException:
            self.connections.give_back(channels)
            raise

    async def exchange(
        self,
        method: str,
        attempts: Attempts,
        exchange: Callable[[StreamOpener], Awaitable[T]],
    ) -> T:
        """Makes one attempt at an exchange on a stream of its own."""
        with self.errors(attempts.request.timeout):
            attempts.sent = await self.authorization()
            connection = await self.frames.taken(attempts) if method == STREAM else None
            return await exchange(
                lambda messages: self.open_stream(
                    method, messages, attempts, seconds=attempts.left, connection=connection
                )
            )

    # --- What follows from a failed attempt -------------------------------------------------------

    async def authorization(self) -> str:
        """The caller's current credential; empty if there is none. Raises UnauthenticatedError."""
        known = self.credential.at_hand()
        if known is not None:
            return known
        return await self.sender.beside(self.credential.authorization)

    def authorization_lasts(self) -> float | None:
        """Seconds until the client asks for another one; None if it never does."""
        return self.credential.seconds_left()

    async def has_another(self, error: UnauthenticatedError, sent: str) -> bool:
        """Whether there is an authorization other than ``sent``, which the server refused."""
        return await self.sender.beside(lambda: self.credential.another(error, sent))

    async def has_ended(self, instance: str | None) -> bool:
        """Whether that process is gone: the address refuses, or another process answers there.

        A process that does not answer within two seconds counts as not ended.
        """
        ends = time.monotonic() + _END_SECONDS
        while (left := ends - time.monotonic()) > 0:
            try:
                await self.look(Attempts(Request(left)))
            except ServerUnreachableError as error:
                if is_nobody(error):
                    self.instance = None
                    return True
            except NpucallError:
                return False
            else:
                return self.instance != instance
            await self.wait(_BETWEEN_LOOKS)
        return False

    def place(self, call: BoundCall) -> None:
        """Leaves arrays in shared memory there, if the server can take them so."""
        self.memories.place(call)
        if not self.limits.chunks_beside_places:
            place_nothing_in_chunks(call, self.limits.chunk_bytes)

    def shares(self, call: BoundCall) -> bool:
        """Whether any array of a call lies in memory that this server shares."""
        self.memories.place(call)
        return call.placement is not None

    def withdraw(self, request: Request) -> bool:
        """Makes all arrays of a call travel; False if they did."""
        return self.memories.withdraw(request.call)

    @contextmanager
    def errors(self, timeout: float) -> Iterator[None]:
        """Makes gRPC's errors ours. Raises CancelledError if the client is closed."""
        self.check_open()
        try:
            yield
        except (grpc.RpcError, ValueError) as error:
            raise self.failure(error, timeout) from None

    def failure(self, error: Any, timeout: float) -> Exception:
        """The contract's error for gRPC's error."""
        if isinstance(error, ValueError):  # gRPC's error for a channel that was just closed
            return closed() if self._closed.is_set() else error
        error.__traceback__ = None  # the error is also the call, which its frames would keep
        if _REFUSED in (error.details() or ""):
            self.connections.refused()
        trailers = error.trailing_metadata()
        return failure(self._origin(), error.code(), error.details(), trailers, timeout)

    def lateness(self, timeout: float) -> NpucallError:
        """The error of a call that got no answer in time."""
        return lateness(self._origin(), timeout)

    def _origin(self) -> Origin:
        is_closed = self._closed.is_set()
        return Origin(
            self.target,
            lambda: not is_closed and self.connections.is_connected(),
            is_closed,
            self.connections.way.told,
        )


def is_nobody(error: ServerUnreachableError) -> bool:
    """Whether no process listens there."""
    return any(text in str(error) for text in _NOBODY)

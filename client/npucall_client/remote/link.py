"""The link to a server: channels, credentials, repeats, and gRPC's errors made the contract's.

Knows no call: bytes go, and bytes come.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from npucall.errors import NpucallError, ServerUnreachableError, UnauthenticatedError
from npucall.wire.status import (
    AUTHORIZATION,
    INSTANCE,
    REQUEST_ID,
    RESERVATION,
    SESSION,
    TRACEPARENT,
)
from npucall_client import tracing
from npucall_client.calling import closed
from npucall_client.remote.channels import Connections
from npucall_client.remote.credentials import credential_of
from npucall_client.remote.failures import Sender, failure, lateness
from npucall_client.remote.following import Following
from npucall_client.remote.losses import is_break, told
from npucall_client.remote.retry import Attempts, repeated
from npucall_client.remote.service import MANY_FRAMES, instance_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from npucall_client.held import Home
    from npucall_client.remote.large_call import StreamOpener
    from npucall_client.remote.losses import Losses
    from npucall_client.settings import ClientSettings

T = TypeVar("T")

_LAST_TRY_SECONDS = 1.0
"""To hear why there is no connection."""
_NOBODY = "Connection refused"
_NO_SOCKET = "No such file"
_LOOK_SECONDS = 2.0
_BETWEEN_LOOKS = 0.05


def _nothing() -> None:
    """Nothing ends the attempts at a call but its timeout."""


class Link:
    """Sends to the server that the settings name: for a reservation, a session, or for neither.

    ``once``: one attempt at each call, that does not wait for a server which is starting; somebody
    else has others. Raises ValueError for credentials that cannot be.
    """

    def __init__(self, settings: ClientSettings, *, once: bool = False) -> None:
        self.target = settings.target
        self._once = once
        self._seen = Seen()
        self._losses: Losses | None = None
        self._goes_on: Callable[[], object] = _nothing
        self._credential = credential_of(settings)
        self._connections = Connections(settings)
        self._closed = threading.Event()
        self._key = ""
        self._home: Home | None = None
        self._spans = tracing.spans()

    def close(self) -> None:
        """Closes the channels; calls under way are cancelled."""
        self._closed.set()
        self._connections.close()

    def under(self, key: str) -> Self:
        """The same connection, for calls under a reservation."""
        other = copy.copy(self)
        other._key = key  # noqa: SLF001  # of its own kind
        return other

    def at(self, home: Home | None) -> Self:
        """The same connection, for calls of a session."""
        other = copy.copy(self)
        other._home = home  # noqa: SLF001  # of its own kind
        return other

    def carrying(self, losses: Losses) -> Self:
        """The same connection, for a call of which something was lost: it tells the server so.

        What breaks then says whether the call had begun (``losses.told``).
        """
        other = copy.copy(self)
        other._losses = losses  # noqa: SLF001  # of its own kind
        return other

    @property
    def instance(self) -> str:
        """Of the process that answered last, as far as it was looked at."""
        return self._seen.instance

    def has_ended(self, instance: str) -> bool:
        """Whether that process is gone: the address refuses, or another one answers there.

        One that does not answer within two seconds counts as not ended.
        """
        ends = time.monotonic() + _LOOK_SECONDS
        while (left := ends - time.monotonic()) > 0:
            try:
                self._look(left)
            except ServerUnreachableError as error:
                if _NOBODY in str(error) or _NO_SOCKET in str(error):
                    return True
            except NpucallError:
                return False
            else:
                return self.instance != instance
            self._closed.wait(_BETWEEN_LOOKS)
            self.check_open()
        return False

    def _look(self, seconds: float) -> None:
        """Asks who answers, without waiting for somebody who does."""
        metadata = self._metadata(self._credential.authorization())
        channels = self._connections.take()
        try:
            with self.errors(seconds):
                answer = channels.method("GetServerInfo")(b"", timeout=seconds, metadata=metadata)
        finally:
            self._connections.give_back(channels)
        self._seen.instance = instance_of(answer)

    def repeating(self, goes_on: Callable[[], object]) -> Self:
        """The same connection, for calls that nobody else can answer: they are repeated here.

        ``goes_on`` is called between two attempts, and raises what ends them.
        """
        other = copy.copy(self)
        other._once, other._goes_on = False, goes_on  # noqa: SLF001  # of its own kind
        return other

    def open_stream(
        self,
        messages: Iterator[bytes],
        timeout: float | None,
        authorization: str,
        method: str = "ExecuteStream",
        request_id: str = "",
    ) -> Any:
        """Opens a method of streams: gRPC's call, which iterates over the messages that come."""
        metadata = (*(self._metadata(authorization, request_id) or ()), MANY_FRAMES)
        channels = self._connections.take()
        try:
            stream = channels.stream(method)(
                messages, timeout=timeout, metadata=metadata, wait_for_ready=self._waits
            )
        except BaseException:
            self._connections.give_back(channels)
            raise
        if not stream.add_callback(lambda: self._connections.give_back(channels)):
            self._connections.give_back(channels)  # it has ended already
        return stream

    def authorization(self) -> str:
        """What says now who calls; empty where nothing does. Raises UnauthenticatedError."""
        return self._credential.authorization()

    def authorization_lasts(self) -> float | None:
        """Seconds until there is another one; None where there never is."""
        return self._credential.seconds_left()

    def has_another(self, error: NpucallError, sent: str) -> bool:
        """Whether there is another authorization than that which the server refused."""
        return isinstance(error, UnauthenticatedError) and self._credential.another(error, sent)

    def on_stream(
        self,
        method: str,
        exchange: Callable[[StreamOpener, float], T],
        timeout: float,
        request_id: str = "",
        name: str = "",
    ) -> T:
        """What an exchange over a stream of its own gives; begun anew where it breaks."""

        def send(link: Self, seconds: float, authorization: str) -> T:
            def open_stream(messages: Iterator[bytes], timeout: float) -> Any:
                return link.open_stream(messages, timeout, authorization, method, request_id)

            with link.errors(timeout):
                return exchange(open_stream, seconds)

        return self.repeated(send, timeout, name or method, request_id)

    def send(
        self, method: str, request: bytes, timeout: float, request_id: str = "", name: str = ""
    ) -> bytes:
        """A method of one request and one response, repeated as calls are.

        ``name`` is the call's, for errors; else the method's.
        """

        def send(link: Self, seconds: float, authorization: str) -> bytes:
            return link.send_once(method, request, seconds, timeout, authorization, request_id)

        return self.repeated(send, timeout, name or method, request_id)

    def _metadata(
        self, authorization: str, request_id: str = ""
    ) -> tuple[tuple[str, str], ...] | None:
        """What goes with a call, or with a stream.

        As plain metadata: gRPC's own call credentials cost a call 360 us.
        """
        pairs: tuple[tuple[str, str], ...] = (
            (AUTHORIZATION, authorization), (REQUEST_ID, request_id), (RESERVATION, self._key),
            (SESSION, self._home.id if self._home is not None else ""),
            (TRACEPARENT, self._spans.traceparent() if self._spans is not None else ""),
        )  # fmt: skip
        if self._losses is not None:
            pairs += self._losses.metadata
        return tuple(pair for pair in pairs if pair[1]) or None

    def repeated(
        self, send: Callable[[Self, float, str], T], timeout: float, name: str, request_id: str = ""
    ) -> T:
        """What one of the attempts gives.

        ``send`` gets the link, the seconds left, and the authorization. Raises PoisonedCallError
        for a call that ends its servers; ``name`` is its name.
        """
        if self._once:
            return self._authorized(send)(self, timeout)
        following = Following(self, self._authorized(send), self._losses, name, request_id)
        return self.tried(following, timeout)

    def tried(self, attempt: Callable[[float], T], timeout: float) -> T:
        """What an attempt gives: the only one, or one of several."""
        if self._once:
            return attempt(timeout)
        return repeated(attempt, timeout, self.pause)

    def attempts(self, ends: float) -> Attempts:
        """Those behind the first one that a call has until ``ends``."""
        return Attempts(-math.inf if self._once else ends)

    @property
    def _waits(self) -> bool:
        """Whether a call waits for a connection."""
        return not self._once and self._goes_on is _nothing

    def _authorized(self, send: Callable[[Self, float, str], T]) -> Callable[[Self, float], T]:
        """An attempt; once more where the server wants another credential, and there is one."""

        def attempt(link: Self, seconds: float) -> T:
            ends = time.monotonic() + seconds
            sent = self._credential.authorization()
            try:
                return send(link, seconds, sent)
            except UnauthenticatedError as error:
                if not self._credential.another(error, sent):
                    raise
            return send(link, max(0.0, ends - time.monotonic()), self._credential.authorization())

        return attempt

    def why_unreachable(self) -> str:
        """What gRPC says of a connection that somebody refuses, such as for its certificate."""
        channels = self._connections.take()
        try:
            channels.method("GetServerInfo")(b"", timeout=_LAST_TRY_SECONDS)
        except grpc.RpcError as error:
            refused: Any = error
            if refused.code() is grpc.StatusCode.UNAVAILABLE:
                said = str(refused.details())
                nobody = _NOBODY in said and self._connections.way.is_straight
                return "" if nobody else said
        finally:
            self._connections.give_back(channels)
        return ""

    def send_once(  # noqa: PLR0913  # all that goes with it
        self,
        method: str,
        request: bytes,
        seconds: float,
        timeout: float,
        authorization: str,
        request_id: str = "",
    ) -> bytes:
        """One attempt; ``timeout`` is that of all, for errors.

        Waiting for a channel that is ready makes a restart of the server cost time, not attempts.
        """
        metadata = self._metadata(authorization, request_id)
        channels = self._connections.take()
        try:
            with self.errors(timeout):
                send = channels.method(method)
                if self._losses is None:
                    return send(
                        request, timeout=seconds, metadata=metadata, wait_for_ready=self._waits
                    )
                answer, call = send.with_call(
                    request, timeout=seconds, metadata=metadata, wait_for_ready=self._waits
                )
                self._seen.hear(call.initial_metadata())
                return answer
        finally:
            self._connections.give_back(channels)

    def errors(self, timeout: float) -> InOurErrors:
        """A context that has gRPC's errors become the contract's."""
        return InOurErrors(self, timeout)

    def check_open(self) -> None:
        """Raises CancelledError once the client is closed."""
        if self._closed.is_set():
            raise closed()

    def pause(self, seconds: float) -> None:
        """Waits between two attempts. Raises CancelledError once the client is closed."""
        if self._closed.wait(seconds):
            raise closed()
        self._goes_on()

    def failure(self, error: Any, timeout: float) -> NpucallError:
        """What gRPC's error means."""
        trailers = error.trailing_metadata()
        known = failure(self._sender(), error.code(), error.details(), trailers, timeout)
        if self._losses is not None and is_break(known):
            initial = error.initial_metadata() or ()
            self._seen.hear(initial)
            told(known, initial)
        return known

    def lateness(self, timeout: float) -> NpucallError:
        """What a call that got no answer in time raises."""
        return lateness(self._sender(), timeout)

    def _sender(self) -> Sender:
        is_closed = self._closed.is_set()
        is_connected = not is_closed and self._connections.is_connected()
        return Sender(self.target, is_connected, is_closed, self._connections.way.told)


class Seen:
    """Which process answered last: known to all copies of a link."""

    __slots__ = ("instance",)

    def __init__(self) -> None:
        self.instance = ""

    def hear(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Takes what a server said of itself before its answer, if it did."""
        for key, value in metadata:
            if key == INSTANCE:
                self.instance = str(value)


class InOurErrors:
    """Has gRPC's errors become the contract's. What is closed is not used.

    A class, since a generator takes four times as long, and every call needs it.
    """

    __slots__ = ("_link", "_timeout")

    def __init__(self, link: Link, timeout: float) -> None:
        self._link, self._timeout = link, timeout

    def __enter__(self) -> None:
        self._link.check_open()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, grpc.RpcError):
            raise self._link.failure(error, self._timeout) from error
        if isinstance(error, ValueError):  # gRPC's, of a channel that was closed this moment
            self._link.check_open()

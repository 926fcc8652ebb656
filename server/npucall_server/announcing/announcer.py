"""Tells directories once a second that a server is there. The server never waits for it.

npucall has its own directories because an engine notices a lost host too late
[src:pool-liveness].
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from npucall.membership import BEAT_SECONDS
from npucall.wire import keepalive
from npucall.wire.rpcs import ANNOUNCE
from npucall.wire.status import AUTHORIZATION, TRAILER, from_status
from npucall_server.announcing.member import Beats
from npucall_server.settings.addresses import Address, Security
from npucall_server.settings.announcing import AnnounceSettings
from npucall_server.telemetry.log import Log

_AGAIN_SECONDS = 1.0
"""Time between the end of a stream and the next attempt."""
_LAST_BEAT_SECONDS = 1.0
"""How long a server that ends waits until the directories have heard of it."""
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.use_local_subchannel_pool", 1),  # each attempt connects at once
    ("grpc.min_reconnect_backoff_ms", 5000),  # what one attempt to connect may take
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # a pool has its own network
    *keepalive.CLIENT,
]


class Announcer:
    """Announces a server to its directories. Each directory has its own thread."""

    def __init__(self, settings: AnnounceSettings, beats: Beats, log: Log) -> None:
        self._links = [_Link(address, settings, beats, log) for address in settings.directories]
        self._beats = beats

    def start(self) -> None:
        """Starts to announce the server."""
        for link in self._links:
            link.start()

    def tell(self) -> None:
        """Something has changed: sends the next beat at once."""
        for link in self._links:
            link.hurry()

    def stop(self) -> None:
        """Says that the server is gone.

        Waits at most a second for directories that do not answer.
        """
        self._beats.end()
        for link in self._links:
            link.end()
        until = time.monotonic() + _LAST_BEAT_SECONDS
        for link in self._links:
            link.join(max(0.0, until - time.monotonic()))


class _Link(threading.Thread):
    """The link to one directory.

    Logs once when the directory is lost, and once when it is found again.
    """

    def __init__(
        self, directory: Address, settings: AnnounceSettings, beats: Beats, log: Log
    ) -> None:
        super().__init__(name="npucall-announce", daemon=True)
        self._directory, self._settings = directory, settings
        self._beats, self._log = beats, log
        self._hurry, self._ended = threading.Event(), threading.Event()
        self._is_heard: bool | None = None
        """Whether the directory answers; None before the first attempt."""

    def hurry(self) -> None:
        """Sends the next beat at once."""
        self._hurry.set()

    def end(self) -> None:
        """Sends a last beat if the directory listens."""
        self._ended.set()
        self._hurry.set()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._announce()
            except grpc.RpcError as error:
                self._lose(_why(error))
            except (OSError, ValueError) as error:
                self._lose(str(error))
            else:
                self._lose("it ended the stream")
            self._ended.wait(_AGAIN_SECONDS)

    def _announce(self) -> None:
        """One stream, until it ends."""
        with _channel(self._directory, self._settings) as channel:
            method: Any = channel.stream_stream(ANNOUNCE.path)  # type: ignore[call-arg]
            for answer in method(self._requests(), metadata=_metadata(self._settings)):
                self._beats.hear(answer)
                self._find()

    def _requests(self) -> Iterator[bytes]:
        """The beats of a stream, up to the last one when the server ends."""
        while True:
            self._hurry.clear()
            ended = self._ended.is_set()
            yield self._beats.next()
            if ended:
                return
            self._hurry.wait(BEAT_SECONDS)

    def _find(self) -> None:
        if not self._is_heard:
            self._say("announced")
        self._is_heard = True

    def _lose(self, why: str) -> None:
        if self._is_heard is not False and not self._ended.is_set():
            self._say("directory lost", message=why)
        self._is_heard = False

    def _say(self, event: str, **told: str) -> None:
        self._log.event(event, directory=self._directory.where, address=self._beats.address, **told)


def _channel(directory: Address, settings: AnnounceSettings) -> grpc.Channel:
    """A connection with the current certificates. Raises OSError."""
    where, security = directory.where, directory.security
    if security is Security.PLAIN:
        return grpc.insecure_channel(where, _OPTIONS)
    ca, certificate, key = settings.announce_ca, settings.tls_certificate, settings.tls_key
    if security is Security.TLS:
        certificate = key = None
    files = [None if path is None else path.read_bytes() for path in (ca, key, certificate)]
    return grpc.secure_channel(where, grpc.ssl_channel_credentials(*files), _OPTIONS)


def _metadata(settings: AnnounceSettings) -> Sequence[tuple[str, str]]:
    """The credential of the server that announces itself. Raises OSError."""
    path = settings.announce_token_file
    if path is None:
        return ()
    return ((AUTHORIZATION, f"Bearer {path.read_text('utf-8').strip()}"),)


def _why(error: Any) -> str:
    """The reason, as gRPC or the directory gives it."""
    trailers = error.trailing_metadata() or ()
    details = next((value for key, value in trailers if key == TRAILER), None)
    return str(from_status(error.code(), error.details() or "", details))

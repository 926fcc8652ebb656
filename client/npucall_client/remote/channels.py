"""gRPC's channels to a server, for calls and for streams; new ones when certificates change."""

from __future__ import annotations

import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from npucall_client.remote.service import OPTIONS, STREAM_OPTIONS, path_of
from npucall_client.remote.ways import way_to

if TYPE_CHECKING:
    from npucall_client.remote.ways import Way
    from npucall_client.settings import ClientSettings

_LOOK_SECONDS = 1.0
"""Between two looks at the files of certificates."""


class Channels:
    """Two channels, of which streams have one: small calls do not wait behind large ones."""

    def __init__(self, way: Way, credentials: grpc.ChannelCredentials | None) -> None:
        def channel(options: list[tuple[str, int]]) -> grpc.Channel:
            every: list[tuple[str, str | int]] = [*options, *way.options]
            if credentials is None:
                return grpc.insecure_channel(way.target, every)
            return grpc.secure_channel(way.target, credentials, every)

        self._calls, self._streams = channel(OPTIONS), channel(STREAM_OPTIONS)
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self.users = 0
        """Calls and streams under way, counted by who owns this."""

    def method(self, name: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        """A method with one request and one response."""
        method = self._methods.get(name)
        if method is None:
            method = self._calls.unary_unary(path_of(name))  # type: ignore[call-arg]
            self._methods[name] = method
        return method

    def stream(self, name: str) -> Any:
        """A method of frames."""
        return self._streams.stream_stream(path_of(name))  # type: ignore[call-arg]

    def close(self) -> None:
        """Cancels what is under way."""
        self._streams.close()
        self._calls.close()

    def is_connected(self) -> bool:
        """Whether the server has answered, and a connection is there."""
        # What gRPC has for it in public answers later, in a thread that breaks when the channel is
        # closed meanwhile.
        ready = grpc.ChannelConnectivity.READY.value[0]
        channels: list[Any] = [self._calls, self._streams]
        cores = [channel._channel for channel in channels]  # noqa: SLF001
        return ready in [core.check_connectivity_state(False) for core in cores]  # noqa: FBT003  # do not connect


class Connections:
    """The channels that new calls take. Safe to use from several threads.

    Where a file of the certificates has changed, new calls take new channels, and those under way
    end on the old ones. Raises ValueError for files that are no certificates, and for a proxy that
    cannot be.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.way = way_to(settings)
        self._files = _Files.of(settings) if settings.encrypts else None
        self._contents = None if self._files is None else self._files.read()
        self._current = self._opened()
        self._retired: list[Channels] = []
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._lock = threading.Lock()

    def take(self) -> Channels:
        """The channels for a call, which gives them back when it ends."""
        with self._lock:
            if self._files is not None and time.monotonic() >= self._next_look:
                self._look(self._files)
            self._current.users += 1
            return self._current

    def give_back(self, channels: Channels) -> None:
        """A call has ended."""
        with self._lock:
            channels.users -= 1

    def close(self) -> None:
        """Cancels all calls."""
        with self._lock:
            every = [self._current, *self._retired]
        for channels in every:
            channels.close()

    def is_connected(self) -> bool:
        """Whether a connection for new calls is there."""
        return self._current.is_connected()

    def _look(self, files: _Files) -> None:
        self._next_look = time.monotonic() + _LOOK_SECONDS
        idle = [channels for channels in self._retired if not channels.users]
        self._retired = [channels for channels in self._retired if channels.users]
        for channels in idle:
            channels.close()
        try:
            if files.contents() == self._contents:
                return
            self._contents = files.read()
        except ValueError:
            return  # half of a new pair: what was good before counts on
        self._retired.append(self._current)
        self._current = self._opened()

    def _opened(self) -> Channels:
        if self._contents is None:
            return Channels(self.way, None)
        ca, certificate, key = self._contents
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        return Channels(self.way, credentials)


class _Contents(NamedTuple):
    """What the files say; None for those that are not set."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


class _Files(NamedTuple):
    """The files of the settings."""

    ca: Path | None
    certificate: Path | None
    key: Path | None

    @classmethod
    def of(cls, settings: ClientSettings) -> _Files:
        """Raises ValueError for a certificate without a key."""
        if bool(settings.certificate) != bool(settings.key):
            found, missing = "certificate", "key"
            if settings.key:
                found, missing = missing, found
            raise ValueError(
                f"{missing}: expected a file beside {found}, found none; set it "
                f"(NPUCALL_{missing.upper()})"
            )
        files = (settings.ca, settings.certificate, settings.key)
        return cls(*(Path(file) if file else None for file in files))

    def read(self) -> _Contents:
        """Raises ValueError where a file cannot be read, and for a key of another certificate."""
        before = self.contents()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except OSError as error:
            raise ValueError(f"ca: expected certificates in {self.ca}, found: {error}") from error
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            raise ValueError(
                f"certificate: expected one in {self.certificate} and its key, not encrypted, in "
                f"{self.key}, found: {error}"
            ) from error
        if self.contents() != before:
            raise ValueError("certificate: expected files at rest, found that they change")
        return before

    def contents(self) -> _Contents:
        """What they say, whether or not it is any good. Raises ValueError for a missing one."""
        contents = []
        for name, file in self._asdict().items():
            try:
                contents.append(None if file is None else file.read_bytes())
            except OSError as error:
                raise ValueError(f"{name}: expected a file, found: {error}") from error
        return _Contents(*contents)

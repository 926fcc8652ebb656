"""gRPC's channels to a server, for calls and for streams; new ones when certificates change."""

from __future__ import annotations

import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from npucall_client.sending.paths import OPTIONS, STREAM_OPTIONS, path_of
from npucall_client.sending.proxy import way_to
from npucall_client.sending.senders import Files

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_client.sending.proxy import Way
    from npucall_client.sending.senders import (
        Channel,
        Messages,
        MessageStream,
        Metadata,
        Sender,
        Unary,
    )
    from npucall_client.settings import ClientSettings

_LOOK_SECONDS = 1.0
"""Time between two looks at the files of certificates, and at connections that are left."""
_MOST_REFUSALS = 3
"""After so many streams that a server refused, calls take another connection."""


class _Methods(dict[str, "Unary"]):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __missing__(self, name: str) -> Unary:
        method = self[name] = self._channel.unary(path_of(name))
        return method


class Channels:
    """Two channels: one for streams, one for the rest, so that small calls need not wait."""

    def __init__(
        self, sender: Sender, way: Way, files: Files | None, *, again: bool = False
    ) -> None:
        """``again``: not over a connection that this process has already."""
        self._calls, self._streams = (
            sender.channel(way.target, [*options, *way.options], files)
            for options in (STREAM_OPTIONS if again else OPTIONS, STREAM_OPTIONS)
        )
        self.methods = _Methods(self._calls)
        """Methods with one request and one response, by name."""
        self.users = 0
        """Calls and streams under way; the owner of this object counts them."""
        self.refusals = 0

    def stream(  # noqa: PLR0913  # all that makes one
        self,
        name: str,
        messages: Messages,
        seconds: float | None,
        metadata: Metadata,
        *,
        waits: bool,
        ended: Callable[[], object],
    ) -> MessageStream:
        """Opens a method of frames; ``ended`` is called once it has ended."""
        path = path_of(name)
        return self._streams.stream(path, messages, seconds, metadata, waits=waits, ended=ended)

    async def close(self) -> None:
        """Cancels what is under way."""
        await self._streams.close()
        await self._calls.close()

    def is_connected(self) -> bool:
        """Whether the server has answered, and a connection is there."""
        return self._calls.is_connected() or self._streams.is_connected()


class RenewedChannels:
    """The channels that new calls take. Safe to use from several threads.

    When a file of the certificates has changed, or the server has refused streams again and again,
    new calls take new channels, and those under way end on the old ones. Raises ValueError for
    files that are no certificates, and for an invalid proxy.
    """

    def __init__(self, settings: ClientSettings, sender: Sender) -> None:
        self._sender = sender
        self.way = way_to(settings)
        self._files = _Files.of(settings) if settings.encrypts else None
        self._contents = None if self._files is None else self._files.read()
        self._current = self._opened()
        self._retired: list[Channels] = []
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._lock = threading.Lock()

    def files(self) -> Files | None:
        """What the files of certificates say, which new connections take; None without TLS."""
        if (self._files or self._retired) and time.monotonic() >= self._next_look:
            with self._lock:
                self._look()
        return self._contents

    def take(self) -> Channels:
        """The channels for a call, which gives them back when it ends."""
        self.files()
        with self._lock:
            self._current.users += 1
            return self._current

    def give_back(self, channels: Channels) -> None:
        """A call has ended."""
        with self._lock:
            channels.users -= 1

    def refused(self) -> None:
        """The server has refused a stream. It may count streams there that ended long ago."""
        with self._lock:
            self._current.refusals += 1
            if self._current.refusals >= _MOST_REFUSALS:
                self._replace(again=True)

    def leave(self) -> None:
        """The server stands still: new calls take another connection, which may lead elsewhere."""
        with self._lock:
            self._replace(again=True)

    async def close(self) -> None:
        """Cancels all calls."""
        with self._lock:
            every = [self._current, *self._retired]
        for channels in every:
            await channels.close()

    def is_connected(self) -> bool:
        """Whether a connection for new calls is there."""
        return self._current.is_connected()

    def _look(self) -> None:
        self._next_look = time.monotonic() + _LOOK_SECONDS
        idle = [channels for channels in self._retired if not channels.users]
        self._retired = [channels for channels in self._retired if channels.users]
        for channels in idle:
            self._sender.start(channels.close, "npucall-channels")
        if self._files is None:
            return
        try:
            if self._files.contents() == self._contents:
                return
            self._contents = self._files.read()
        except ValueError:
            return  # half of a new pair: the old one still counts
        self._replace()

    def _replace(self, *, again: bool = False) -> None:
        self._retired.append(self._current)
        self._current = self._opened(again=again)

    def _opened(self, *, again: bool = False) -> Channels:
        return Channels(self._sender, self.way, self._contents, again=again)


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
                f"{missing}: expected a file, since {found} is set, found none; set {missing} "
                f"(NPUCALL_{missing.upper()})"
            )
        files = (settings.ca, settings.certificate, settings.key)
        return cls(*(Path(file) if file else None for file in files))

    def read(self) -> Files:
        """Raises ValueError if a file cannot be read, and for a key of another certificate."""
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
                f"certificate: expected a certificate in {self.certificate} and its key, not "
                f"encrypted, in {self.key}, found: {error}"
            ) from error
        if self.contents() != before:
            raise ValueError("certificate: the files changed while the client read them; try again")
        return before

    def contents(self) -> Files:
        """Their contents, valid or not. Raises ValueError for a missing one."""
        contents = []
        for name, file in self._asdict().items():
            try:
                contents.append(None if file is None else file.read_bytes())
            except OSError as error:
                raise ValueError(
                    f"{name}: expected a file that can be read, found: {error}"
                ) from error
        return Files(*contents)

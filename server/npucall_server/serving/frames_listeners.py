"""Where frames come in (``frames.proto``): a Unix socket, a port."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from npucall.errors import NpucallError
from npucall_server.access.tenants_guard import TenantsGuard
from npucall_server.carriers.connections import name_of
from npucall_server.carriers.frames.frame_service import FrameService
from npucall_server.carriers.frames.tls_socket import TlsSocket
from npucall_server.services.operators import OperatorService
from npucall_server.serving import binding
from npucall_server.serving.tls import Certificates
from npucall_server.settings.addresses import Address, Security
from npucall_server.settings.server import ServerSettings
from npucall_server.shared import unix_sockets
from npucall_server.telemetry.log import Log

_BACKLOG = 512
_SILENCE_MS = 30_000
"""A peer whose system does not answer for so long has gone."""


class FramesListener:
    """Accepts connections in a thread, from ``start`` to ``close``. ``where``: as logs say it."""

    def __init__(self, listener: socket.socket, where: str) -> None:
        self._listener, self.where = listener, where
        self._thread = threading.Thread(target=self._accept, name="npucall-accept", daemon=True)

    def start(self) -> None:
        """Accepts connections from now on."""
        self._thread.start()

    def close(self) -> None:
        """Accepts no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # such as no descriptor left: it would be ready again at once
                time.sleep(unix_sockets.PAUSE_SECONDS)
                continue
            try:
                self._open(connection)
            except OSError:  # it has gone again
                connection.close()

    def _open(self, connection: socket.socket) -> None:
        raise NotImplementedError


class FramesSocket(FramesListener):
    """Listens on a path. Raises OSError if the path cannot be used.

    ``users`` may connect in addition to the server's own user. With a ``guard`` everybody may
    connect, and shows who it is.
    """

    def __init__(
        self,
        path: Path,
        users: Iterable[int],
        service: FrameService,
        guard: TenantsGuard | None = None,
    ) -> None:
        self._service, self._guard = service, guard
        self._place = unix_sockets.UnixListener(
            path, socket.SOCK_STREAM, users, everybody=guard is not None
        )
        super().__init__(self._place.socket, f"unix:{path}")

    def close(self) -> None:
        """Accepts no more, and removes the file, unless another one has replaced it."""
        self._place.remove()
        super().close()

    def _open(self, connection: socket.socket) -> None:
        process, user = unix_sockets.who_connected(connection)
        if not self._place.lets_in(user):
            connection.close()
            time.sleep(unix_sockets.REFUSED_SECONDS)
            return
        holders = tuple(self._place.holders(process, user))
        of_user = partial(self._credential_of, user)
        self._service.open(connection, f"unix:{process}", of_user, holders)

    def _credential_of(self, user: int) -> str:
        """The credential of a user of this host; empty if it belongs to no tenant."""
        if self._guard is None:
            return ""
        try:
            return self._guard.credential_of(user)[0]
        except NpucallError:
            return ""


class FramesPort(FramesListener):
    """Listens at an address. Raises OSError if it cannot be bound."""

    def __init__(
        self, address: Address, certificates: Certificates | None, service: FrameService
    ) -> None:
        self._security, self._certificates, self._service = (
            address.security, certificates, service,
        )  # fmt: skip
        host, _, port = address.where.rpartition(":")
        bare = host.strip("[]")
        family = socket.AF_INET6 if ":" in bare else socket.AF_INET
        both = bare == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            (bare, int(port)), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
        self.port: int = listener.getsockname()[1]
        super().__init__(listener, str(replace(address, where=f"{host}:{self.port}")))

    def _open(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        channel: socket.socket | TlsSocket = connection
        if self._certificates is not None and self._security is not Security.PLAIN:
            channel = TlsSocket(connection, self._certificates.context(self._security))
        self._service.open(channel, name_of(connection))


def frames_listeners_of(
    settings: ServerSettings,
    log: Log,
    service: FrameService,
    info: OperatorService,
    guard: TenantsGuard | None,
) -> list[FramesListener]:
    """Binds what the settings name, and has ``info`` tell it. Raises BindError."""
    made: list[FramesListener] = []
    if (path := _path(settings, log, service.instance)) is not None:
        binding.check_path("frames_socket", path)
        with binding.naming("frames_socket", str(path)):
            made.append(FramesSocket(path, settings.shared_memory_users, service, guard))
        info.frames_socket, info.frames_user = str(path), os.geteuid()
    if (address := settings.frames_address) is not None:
        certificates = binding.certificates_of(settings, log)
        with binding.naming("frames_listen", str(address)):
            port = FramesPort(address, certificates, service)
        for message in binding.warnings([address], settings):
            log.event("warning", message=message)
        info.frames_port = settings.frames_advertise or port.port
        made.append(port)
    return made


def _path(settings: ServerSettings, log: Log, instance: str) -> Path | None:
    """Of the Unix socket; None: there is none."""
    given = settings.frames_socket
    if isinstance(given, Path):
        return given.absolute()
    if not settings.has_frames_socket:
        return None
    everybody = bool(settings.tenants or settings.shared_memory_users)
    try:
        path = unix_sockets.own_folder(socket.SOCK_STREAM, everybody=everybody) / f"{instance}.sock"
        binding.check_path("frames_socket", path)
    except (OSError, binding.SettingsError) as error:
        message = f"frames_socket: clients on this host use gRPC: {error}"
        log.event("warning", message=message)
        return None
    return path

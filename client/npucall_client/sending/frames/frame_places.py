"""Where a server takes calls in frames, as the client sees it. No I/O but to read certificates."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from npucall_client.sending.proxy import host_of

if TYPE_CHECKING:
    from npucall.v1 import operator_service_pb2 as pb
    from npucall_client.sending.proxy import Way
    from npucall_client.sending.senders import Files
    from npucall_client.settings import ClientSettings

_HAS_MESSAGES = hasattr(socket.socket, "sendmsg")
_HAS_PATHS = hasattr(socket, "AF_UNIX")
_SHORTEST_REST, _LONGEST_REST = 1.0, 600.0
"""Seconds until a place that could not be reached is tried again; twice as long each time."""
_ROOT = 0
_CREDENTIALS = struct.Struct("iII")
"""C's ``struct ucred``: process, user, group."""


class OwnSocket(socket.socket):
    """Closes when its client is gone that nobody closed, without a warning, as gRPC's do."""

    def __del__(self) -> None:
        self.close()


class FramesPlace(NamedTuple):
    """A path, or a port of a host."""

    path: str = ""
    host: str = ""
    port: int = 0
    name: str = ""
    """In the server's certificate; empty: no TLS."""
    user: int = 0
    """Whose process is at the path, as the server says, which the client trusts over gRPC."""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"


class Entrance:
    """A place, and what is known of it."""

    def __init__(self, place: FramesPlace) -> None:
        self.place = place
        self.is_reached = self.is_tried = False
        """Whether a connection came about; whether one is being opened in the background."""
        self.rests_until = 0.0
        self._rest = _SHORTEST_REST

    def reached(self) -> None:
        """A connection has come about."""
        self.is_reached, self._rest = True, _SHORTEST_REST

    def failed(self) -> None:
        """None has: it rests."""
        self.is_reached = False
        self.rests_until = time.monotonic() + self._rest
        self._rest = min(2 * self._rest, _LONGEST_REST)


def places_of(
    info: pb.GetServerInfoResponse, settings: ClientSettings, way: Way
) -> tuple[FramesPlace, ...]:
    """Where the client may try, the best first; none if calls have to travel over gRPC."""
    if settings.carrier == "grpc" or not way.is_straight or not _HAS_MESSAGES:
        return ()
    places = []
    if info.frames_socket and _HAS_PATHS:
        places.append(FramesPlace(info.frames_socket, user=info.frames_user))
    host = host_of(settings.target)
    if info.frames_port and host and info.frames_tls == settings.encrypts:
        name = (settings.server_name or host) if settings.encrypts else ""
        places.append(FramesPlace("", host, info.frames_port, name))
    return tuple(places)


def context_of(files: Files, settings: ClientSettings) -> ssl.SSLContext:
    """TLS that verifies the server, by what ``files`` say. Raises OSError and ValueError."""
    context = ssl.create_default_context(cadata=files.ca.decode() if files.ca else None)
    if files.certificate is not None:
        context.load_cert_chain(settings.certificate, settings.key, password="")
    return context


def may_see_credential(connection: socket.socket, user: int) -> bool:
    """Whether it comes from a process of root, of the user of this one, or of the server's."""
    if connection.family != getattr(socket, "AF_UNIX", None) or not hasattr(socket, "SO_PEERCRED"):
        return False
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(told)[1] in (_ROOT, os.geteuid(), user)

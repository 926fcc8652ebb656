"""The side socket: hands out shared memory to processes on this host (``shared_memory.proto``)."""

from __future__ import annotations

import math
import os
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from npucall.errors import (
    CredentialExpiredError,
    CredentialInvalidError,
    MessageError,
    NpucallError,
)
from npucall.limits import MAX_REGIONS
from npucall.v1 import shared_memory_pb2 as pb
from npucall.wire.headers import MOST_REQUEST_BYTES, memory_request
from npucall.wire.status import to_status
from npucall_server.access.identity import Identity
from npucall_server.access.tenants_guard import TenantsGuard
from npucall_server.shared import unix_sockets
from npucall_server.shared.regions import Regions
from npucall_server.telemetry.log import Log

REQUEST_SECONDS = 10.0
"""How long a connection may take to send its request."""
MOST_CONNECTIONS = 2 * MAX_REGIONS
"""The most connections at a time. More are closed."""
MOST_SILENT = MOST_CONNECTIONS // 4
"""The most connections of one user that have not sent their request."""
_SAID_SECONDS = 60.0
"""In this time, only one refused connection gets a line in the log."""


class SideSocket:
    """Listens on a path, and has one thread for all connections. Each holds one region at most.

    ``users`` may connect in addition to the server's own user. With a ``guard`` everybody may
    connect, and every request is from a tenant's caller. Raises OSError if the path cannot be used.
    """

    def __init__(
        self,
        path: Path,
        users: Iterable[int],
        regions: Regions,
        log: Log,
        guard: TenantsGuard | None = None,
    ) -> None:
        self._regions, self._log, self._guard = regions, log, guard
        self._place = unix_sockets.UnixListener(
            path, socket.SOCK_SEQPACKET, users, everybody=guard is not None
        )
        self._listener = self._place.socket
        self._listener.settimeout(0)
        self.remove = self._place.remove
        """Removes the file, unless another file has replaced it."""
        self._holdings: set[_Holding] = set()
        self._silent_until, self._unsaid = -math.inf, 0
        self._stopping = threading.Event()
        self._wake, woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(woken, selectors.EVENT_READ)
        self._woken = woken
        self._thread = threading.Thread(target=self._serve, name="npucall-side", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends every holding and removes the file."""
        self.remove()
        self._stopping.set()
        self._wake.send(b"\0")
        self._thread.join()
        for holding in list(self._holdings):
            self._end(holding)
        self._selector.close()
        for each in self._listener, self._wake, self._woken:
            each.close()

    def look(self) -> None:
        """Ends the memory of revoked callers. Has to be called every second.

        Memory of a caller whose credential has expired stays: his calls cannot reach it.
        """
        for holding in tuple(self._holdings):
            if self._guard is not None and holding.identity is not None:
                try:
                    self._guard.check(holding.identity)
                except CredentialInvalidError:
                    holding.expires = 0.0
                    self._wake.send(b"\0")
                except CredentialExpiredError:
                    pass

    def _serve(self) -> None:
        while not self._stopping.is_set():
            ready = {key.fileobj for key, _ in self._selector.select(self._patience())}
            now = time.monotonic()
            for holding in [each for each in self._holdings if each.expires <= now]:
                if holding.connection not in ready:
                    self._end(holding)
            if self._woken in ready:
                self._woken.recv(MOST_REQUEST_BYTES)
            if self._listener in ready:
                self._accept()
            for holding in [each for each in self._holdings if each.connection in ready]:
                self._hear(holding)

    def _patience(self) -> float | None:
        """Seconds until the next holding expires."""
        first = min((holding.expires for holding in self._holdings), default=math.inf)
        return None if first == math.inf else max(first - time.monotonic(), 0)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # such as no descriptor left: it would be ready again at once
            self._stopping.wait(unix_sockets.PAUSE_SECONDS)
            return
        process, user = unix_sockets.who_connected(connection)
        if not self._place.lets_in(user):
            self._note_refused(user, process)
        elif self._has_place(user):
            connection.settimeout(0)
            self._selector.register(connection, selectors.EVENT_READ)
            self._holdings.add(_Holding(connection, user, process))
            return
        connection.close()
        self._stopping.wait(unix_sockets.REFUSED_SECONDS)

    def _has_place(self, user: int) -> bool:
        """Whether to accept a connection of that user, so that no user keeps others out."""
        silent = [each.user for each in self._holdings if each.memory is None]
        return len(self._holdings) < MOST_CONNECTIONS and silent.count(user) < MOST_SILENT

    def _note_refused(self, user: int, process: int) -> None:
        now = time.monotonic()
        if now < self._silent_until:
            self._unsaid += 1
            return
        self._log.event(
            "shared memory refused", user=user, process=process, others_before=self._unsaid
        )
        self._silent_until, self._unsaid = now + _SAID_SECONDS, 0

    def _hear(self, holding: _Holding) -> None:
        """Reads what the client sent, or notices that it went away."""
        if holding.memory is not None:  # nothing else may come
            self._end(holding)
            return
        try:
            self._give(holding)
        except NpucallError as error:
            self._refuse(holding, error)
        except OSError:  # the client has gone, or does not receive
            self._end(holding)
        except Exception:  # noqa: BLE001  # a bug shall not end the thread
            self._log.event("bug", traceback=traceback.format_exc())
            self._end(holding)

    def _give(self, holding: _Holding) -> None:
        # There is no room for descriptors, so the kernel drops those that come (unix(7)).
        request = memory_request(holding.connection.recv(MOST_REQUEST_BYTES + 1))
        if request.credential:
            self._give_credential(holding)
            return
        holding.identity = whose = self._whose(holding, request.authorization)
        holders = self._holders(holding)
        holding.memory, descriptor = self._regions.create(request.bytes, holders, whose)
        try:
            answer = pb.SharedMemoryResponse(id=holding.memory).SerializeToString()
            socket.send_fds(holding.connection, [answer], [descriptor])
        finally:
            os.close(descriptor)
        holding.expires = math.inf

    def _give_credential(self, holding: _Holding) -> None:
        """Gives the client a credential for its calls. Then the connection ends."""
        if self._guard is None:
            raise MessageError("credential: this server has no tenants, and gives no credentials")
        authorization, seconds = self._guard.credential_of(holding.user)
        given = pb.LocalCredential(authorization=authorization, expires_seconds=seconds)
        holding.connection.send(pb.SharedMemoryResponse(local_credential=given).SerializeToString())
        self._end(holding)

    def _whose(self, holding: _Holding, authorization: str) -> Identity | None:
        """The caller of a request. Raises UnauthenticatedError if it is not known."""
        if self._guard is None:
            return None
        if authorization:
            return self._guard.identify_by(authorization)
        return self._guard.identify_user(holding.user)

    def _holders(self, holding: _Holding) -> list[str]:
        """The holders, each with at most half: the process, and one of several users or callers."""
        holders = self._place.holders(holding.process, holding.user)
        if holding.identity is not None:
            holders.append(f"one caller {holding.identity.person}")
        return holders

    def _refuse(self, holding: _Holding, error: NpucallError) -> None:
        status = to_status(error).SerializeToString()
        with suppress(OSError):
            holding.connection.send(pb.SharedMemoryResponse(error=status).SerializeToString())
        self._end(holding)

    def _end(self, holding: _Holding) -> None:
        self._holdings.discard(holding)
        self._selector.unregister(holding.connection)
        holding.connection.close()
        if holding.memory is not None:
            self._regions.give_back(holding.memory)


class _Holding:
    """A connection, until its request comes, and then while it holds memory."""

    def __init__(self, connection: socket.socket, user: int, process: int) -> None:
        self.connection = connection
        self.user, self.process = user, process
        self.identity: Identity | None = None
        """The owner of the memory, if the server has tenants."""
        self.expires = time.monotonic() + REQUEST_SECONDS
        self.memory: bytes | None = None

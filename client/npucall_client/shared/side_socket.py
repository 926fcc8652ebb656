"""The side socket on which a server hands out memory, and credentials. Linux only."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import sys
import threading
from contextlib import suppress

import numpy as np
from google.protobuf.message import DecodeError

from npucall.dtypes import AnyArray
from npucall.errors import DeadlineError, InternalError, SharedMemoryError
from npucall.limits import MAX_SIDE_ANSWER_BYTES, REGION_ID_BYTES
from npucall.v1 import shared_memory_pb2 as pb
from npucall.wire.status import from_bytes

_MOST_FILES = 8
"""Descriptors for which an answer has room; one is right."""

_LEAST_SECONDS = 1e-3
"""To wait for an answer: 0 would mean for ever."""


class Region:
    """Memory that a server sees too, for as long as the connection that it came on is open."""

    def __init__(
        self, connection: socket.socket, region_id: bytes, memory: AnyArray, descriptor: int
    ) -> None:
        self.id = region_id
        self.descriptor = descriptor
        """Of its file, until it ends."""
        self.memory = memory
        """Its bytes; they stay while any array uses them, also after the region has ended."""
        self.start = int(memory.ctypes.data)
        self._connection = connection
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether the server still sees it, as far as the client knows."""
        return self._is_open

    def end(self) -> bool:
        """Closes the connection; False if it was closed before."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open and os.getpid() == self._process:
            # A process forked from this one holds the connection too, and must not keep it open.
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            os.close(self.descriptor)
        self._connection.close()
        return was_open


def ask(path: str, nbytes: int, timeout: float, authorization: str = "") -> Region:
    """Asks the server that listens at ``path`` for so many bytes, zeros at first.

    ``authorization``: who asks, as the metadata of calls; empty: the user of this process.
    Raises the error that it answers; SharedMemoryError if there is no socket, or if this user may
    not reach it; DeadlineError if no answer comes within ``timeout`` seconds; InternalError for an
    answer that breaks the contract.
    """
    request = pb.SharedMemoryRequest(bytes=nbytes, authorization=authorization)
    connection, response, files = _asked(path, request, timeout)
    try:
        return Region(connection, _region_id(response), mapped(files, nbytes), files[0])
    except BaseException:
        for file in files:
            os.close(file)
        connection.close()
        raise


def ask_credential(path: str, timeout: float) -> tuple[str, float]:
    """Asks for a credential of this process's user: the metadata of calls, and its seconds.

    Raises as ``ask`` does.
    """
    connection, response, files = _asked(path, pb.SharedMemoryRequest(credential=True), timeout)
    connection.close()
    for file in files:
        os.close(file)
    if response.WhichOneof("outcome") != "local_credential":
        raise InternalError("shared memory: expected a credential, found another answer")
    return response.local_credential.authorization, response.local_credential.expires_seconds


def _asked(
    path: str, request: pb.SharedMemoryRequest, timeout: float
) -> tuple[socket.socket, pb.SharedMemoryResponse, list[int]]:
    """A connection, the answer that is no error, and the descriptors that came with it."""
    if sys.platform != "linux":
        raise SharedMemoryError(
            f"shared memory: expected Linux, found {sys.platform}; use ordinary arrays"
        )
    # As an option of the socket the time counts for a connection that waits to be accepted, too;
    # Python's own timeout would fail there at once.
    timeout = max(timeout, _LEAST_SECONDS)
    wait = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        _connect(connection, path, timeout)
        data, files = _exchange(connection, path, request, timeout)
        try:
            return connection, _response(data), files
        except BaseException:
            for file in files:
                os.close(file)
            raise
    except BaseException:
        connection.close()
        raise


def _connect(connection: socket.socket, path: str, timeout: float) -> None:
    try:
        connection.connect(path)
    except BlockingIOError:
        raise _late(path, timeout) from None
    except OSError as error:
        raise SharedMemoryError(
            f"the client cannot reach the server's socket {path} for shared memory: {error}; the "
            "server is on another host or in another container: mount the socket here and set "
            "NPUCALL_SHARED_MEMORY_SOCKET to its path"
        ) from error


def _exchange(
    connection: socket.socket, path: str, request: pb.SharedMemoryRequest, timeout: float
) -> tuple[bytes, list[int]]:
    """The server's answer, and the descriptors that came with it."""
    data, files = b"", list[int]()
    try:
        connection.send(request.SerializeToString())
        flags = socket.MSG_CMSG_CLOEXEC
        data, files, _, _ = socket.recv_fds(connection, MAX_SIDE_ANSWER_BYTES, _MOST_FILES, flags)
    except BlockingIOError:
        raise _late(path, timeout) from None
    except (BrokenPipeError, ConnectionResetError):
        pass  # as an answer that is empty: it was closed
    if not data:
        raise SharedMemoryError(
            f"the server closed its socket {path} for shared memory without an answer; it answers "
            f"only its own user and those of its setting shared_memory_users (you are user "
            f"{os.getuid()})"
        )
    return data, files


def _late(path: str, timeout: float) -> DeadlineError:
    return DeadlineError(
        f"the server's socket {path} for shared memory gave no answer in {timeout:g} s"
    )


def _response(data: bytes) -> pb.SharedMemoryResponse:
    """What the server says, if it is no error."""
    try:
        response = pb.SharedMemoryResponse.FromString(data)
    except DecodeError:
        raise InternalError("shared memory: expected a response, found other bytes") from None
    if response.WhichOneof("outcome") == "error":
        raise from_bytes(response.error)
    return response


def _region_id(response: pb.SharedMemoryResponse) -> bytes:
    if len(response.id) != REGION_ID_BYTES:
        raise InternalError(
            f"shared memory: expected an id of {REGION_ID_BYTES} bytes, found {len(response.id)}"
        )
    return response.id


def mapped(files: list[int], nbytes: int) -> AnyArray:
    """The memory behind the one descriptor. Refuses what could be cut off under this process."""
    import fcntl  # noqa: PLC0415  # exists on Unix only

    if len(files) != 1:
        raise InternalError(f"shared memory: expected one file descriptor, found {len(files)}")
    size = os.fstat(files[0]).st_size
    if size != nbytes:
        raise InternalError(f"shared memory: expected a file of {nbytes} bytes, found {size}")
    try:
        seals = fcntl.fcntl(files[0], fcntl.F_GET_SEALS)
    except OSError:  # no memory file: it has none
        seals = 0
    if not seals & fcntl.F_SEAL_SHRINK:
        raise InternalError("shared memory: expected a file sealed against truncation, found none")
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE  # its pages are there: no fault for each of them
    try:
        mapping = mmap.mmap(files[0], nbytes, flags)
    except OSError as error:
        raise SharedMemoryError(f"the client cannot map the shared memory: {error}") from error
    return np.frombuffer(mapping, np.uint8)

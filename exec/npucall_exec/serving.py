"""The socket to which programs connect: one connection for each of their threads."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from npucall.errors import NpucallError
from npucall.tensors import TensorSpec, view
from npucall_exec import frames
from npucall_exec.calls import status_of

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray
    from npucall_client.shared.memory import SharedMemory
    from npucall_exec.calls import ProgramCalls
    from npucall_exec.findings import Findings

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CREDENTIALS = struct.Struct("iII")


class Memory:
    """The memory of the device of one process."""

    def __init__(self, descriptor: int, data: memoryview, end: Callable[[], object]) -> None:
        self.descriptor, self.size = descriptor, len(data)
        self._bytes = data
        self.close = end
        """Gives it back; its pages go when nothing refers to them any more."""

    @classmethod
    def of_pages(cls, size: int) -> Self:
        """Memory of this host, whose pages exist once they are used."""
        descriptor = os.memfd_create("npucall", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        data = memoryview(mmap.mmap(descriptor, size))
        return cls(descriptor, data, partial(os.close, descriptor))

    @classmethod
    def of_server(cls, memory: SharedMemory) -> Self:
        """Memory that the server sees too, so that tensors do not travel."""
        data = memory.empty(memory.nbytes, np.uint8).data
        return cls(memory.descriptor, data, memory.close)

    def array(self, spec: TensorSpec, offset: int) -> AnyArray:
        """The elements of a tensor there. Raises ValueError beyond the end."""
        if offset == frames.NOWHERE or not spec.elements:
            return np.empty(spec.shape, spec.dtype.numpy)
        if offset + spec.storage_bytes > self.size:
            raise ValueError(f"tensor: expected memory of the device, found byte {offset}")
        return view(spec, self._bytes[offset : offset + spec.storage_bytes])


class Programs:
    """Serves the processes of one command; each has a device of its own."""

    def __init__(
        self,
        calls: ProgramCalls,
        findings: Findings,
        memory: int,
        share: Callable[[int], SharedMemory] | None = None,
        *,
        strict: bool,
    ) -> None:
        self._calls, self._findings, self._share = calls, findings, share
        self._memory_bytes, self._strict = memory, strict
        self._lock = threading.Lock()
        self._memories: dict[int, Memory] = {}

    def serve(self, connection: socket.socket) -> None:
        """Answers one connection until it ends."""
        with connection, suppress(OSError):  # the process has ended
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            process, user, _ = _CREDENTIALS.unpack(told)
            hello = frames.HELLO, frames.PROTOCOL
            if user != os.geteuid() or frames.receive(connection) != hello:
                return
            memory, is_first = self._memory_of(process)
            try:
                self._answer_all(connection, memory, is_first=is_first)
            finally:
                if is_first:
                    del self._memories[process]
                    memory.close()

    def _answer_all(self, connection: socket.socket, memory: Memory, *, is_first: bool) -> None:
        sizes = f"{self._memory_bytes} {memory.size}"
        text = f"{sizes} {int(self._strict)} {self._calls.soc}"
        descriptors = [memory.descriptor] if is_first else []
        frames.answer(connection, text, descriptors=descriptors)
        while (frame := frames.receive(connection)) is not None:
            self._take(connection, memory, *frame)

    def _memory_of(self, process: int) -> tuple[Memory, bool]:
        with self._lock:
            if process in self._memories:
                return self._memories[process], False
            memory = self._memories[process] = self._memory()
            self._findings.processes += 1
            return memory, True

    def _memory(self) -> Memory:
        if self._share is not None:
            try:
                return Memory.of_server(self._share(self._memory_bytes))
            except NpucallError as error:  # it has no more; then tensors travel
                self._findings.note(str(error))
        return Memory.of_pages(2 * self._memory_bytes)

    def _take(self, connection: socket.socket, memory: Memory, kind: int, payload: bytes) -> None:
        if kind == frames.FOUND:
            self._findings.add(payload.decode(errors="replace"))
        elif kind == frames.PLAN:
            self._plan(connection, payload)
        elif kind == frames.LAUNCH:
            self._launch(connection, memory, payload)
        else:
            raise OSError(f"frame: expected a kind of 2 to 4, found {kind}")

    def _plan(self, connection: socket.socket, payload: bytes) -> None:
        try:
            planned = self._calls.planned(payload.decode())
        except Exception as error:  # noqa: BLE001  # whatever it is, the program must hear of it
            self._refuse(connection, error, launched=False)
            return
        frames.answer(connection, launches=planned.launches, workspace=planned.workspace)

    def _launch(self, connection: socket.socket, memory: Memory, payload: bytes) -> None:
        try:
            saturates, offsets, text = frames.launch_in(payload)
            places = iter(offsets)
            self._calls.run(
                self._calls.planned(text),
                lambda spec: memory.array(spec, next(places, frames.NOWHERE)),
                saturates=saturates,
            )
            self._findings.launched()
        except Exception as error:  # noqa: BLE001
            self._refuse(connection, error, launched=True)
            return
        frames.answer(connection)

    def _refuse(self, connection: socket.socket, error: Exception, *, launched: bool) -> None:
        status = status_of(error, launched=launched)
        self._findings.refuse(status, str(error))
        frames.answer(connection, str(error), status=status)


class ProgramListener:
    """A socket where programs are served, as a context manager: no file, so none is left."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self.name = f"npucall-exec-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(128)
        self._lock = threading.Lock()
        self._served: dict[threading.Thread, socket.socket] = {}
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> str:
        self._accepting.start()
        return self.name

    def __exit__(self, *_: object) -> None:
        """Serves what has come already, and nothing more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._socket.close()
        with self._lock:
            served = dict(self._served)
        for connection in served.values():
            with suppress(OSError):  # its program has ended
                connection.shutdown(socket.SHUT_RD)
        for thread in served:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # it was shut down
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._served[thread] = connection
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._programs.serve(connection)
        finally:
            with self._lock:
                del self._served[threading.current_thread()]

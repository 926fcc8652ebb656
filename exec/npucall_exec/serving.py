"""The socket to which programs connect: one connection for each of their threads."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_exec import frames
from npucall_exec.calls import status_of
from npucall_exec.device_memory import Memory
from npucall_exec.launched import ByteRange, Launch
from npucall_exec.residence import Residence

if TYPE_CHECKING:
    from npucall_client.client import Client
    from npucall_exec.calls import ProgramCalls
    from npucall_exec.findings import Findings

_CREDENTIALS = struct.Struct("iII")


@dataclass
class _Process:
    """The device of a process."""

    memory: Memory
    residence: Residence | None
    """None where nothing stays elsewhere: then launches run when they come."""

    def close(self) -> None:
        if self.residence is not None:
            self.residence.close()
        self.memory.close()


@dataclass
class _Connection:
    """A thread of a process, and what it launched since it last waited."""

    socket: socket.socket
    process: _Process
    launches: list[Launch] = field(default_factory=list)
    failure: Exception | None = None


class Programs:
    """Serves the processes of one command; each has a device of its own."""

    def __init__(  # noqa: PLR0913  # all that a device has
        self,
        client: Client,
        calls: ProgramCalls,
        findings: Findings,
        memory: int,
        *,
        shared: bool = False,
        strict: bool,
    ) -> None:
        self._client, self._calls, self._findings = client, calls, findings
        self._memory_bytes, self._shared, self._strict = memory, shared, strict
        self._lock = threading.Lock()
        self._processes: dict[int, _Process] = {}

    def serve(self, connection: socket.socket) -> None:
        """Answers one connection until it ends."""
        with connection, suppress(OSError):  # the process has ended
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            number, user, _ = _CREDENTIALS.unpack(told)
            with connection.makefile("rb") as received:
                hello = frames.HELLO, frames.PROTOCOL
                if user != os.geteuid() or frames.receive(received) != hello:
                    return
                process, is_first = self._process_of(number)
                try:
                    self._welcome(connection, process, is_first=is_first)
                    peer = _Connection(connection, process)
                    while (frame := frames.receive(received)) is not None:
                        self._take(peer, *frame)
                finally:
                    if is_first:
                        del self._processes[number]
                        process.close()

    def _welcome(self, connection: socket.socket, process: _Process, *, is_first: bool) -> None:
        elsewhere = process.residence is not None
        sizes = f"{self._memory_bytes} {process.memory.size}"
        text = f"{sizes} {int(self._strict)} {int(elsewhere)} {self._calls.soc}"
        descriptors = [process.memory.descriptor] if is_first else []
        frames.answer(connection, text, descriptors=descriptors)

    def _process_of(self, number: int) -> tuple[_Process, bool]:
        with self._lock:
            if number in self._processes:
                return self._processes[number], False
            process = self._processes[number] = self._process()
            self._findings.processes += 1
            return process, True

    def _process(self) -> _Process:
        if self._shared:
            try:
                return _Process(Memory.of_server(self._client.shared(self._memory_bytes)), None)
            except NpucallError as error:  # it has no more; then tensors travel
                self._findings.note(str(error))
        memory = Memory.of_pages(2 * self._memory_bytes)
        steps = self._calls.steps
        stays = Residence(self._client, self._calls, memory, steps) if steps else None
        return _Process(memory, stays)

    def _take(self, peer: _Connection, kind: int, payload: bytes) -> None:
        if kind == frames.FOUND:
            self._findings.add(payload.decode(errors="replace"))
        elif kind == frames.PLAN:
            self._plan(peer, payload)
        elif kind == frames.LAUNCH:
            self._launch(peer, payload)
        elif kind == frames.WAIT:
            self._wait(peer)
        elif kind == frames.REACH:
            self._reach(peer, payload)
        else:
            raise OSError(f"frame: expected a kind of 2 to 6, found {kind}")

    def _plan(self, peer: _Connection, payload: bytes) -> None:
        try:
            planned = self._calls.planned(payload.decode())
        except Exception as error:  # noqa: BLE001  # whatever it is, the program must hear of it
            self._refuse(peer, error, launched=False)
            return
        frames.answer(peer.socket, launches=planned.launches, workspace=planned.workspace)

    def _launch(self, peer: _Connection, payload: bytes) -> None:
        """Runs a launch, or leaves it until somebody waits; so failures come then."""
        try:
            saturates, offsets, text = frames.launch_in(payload)
            launch = Launch(self._calls.planned(text), offsets, saturates)
            if peer.process.residence is None:
                launch.run(self._calls, peer.process.memory)
            else:
                peer.launches.append(launch)
            self._findings.launched()
        except Exception as error:  # noqa: BLE001
            peer.failure = peer.failure or error

    def _wait(self, peer: _Connection) -> None:
        launches, peer.launches = peer.launches, []
        failure, peer.failure = peer.failure, None
        try:
            if peer.process.residence is not None:
                peer.process.residence.run(launches)
        except Exception as error:  # noqa: BLE001
            failure = failure or error
        if failure is not None:
            self._refuse(peer, failure, launched=True)
        else:
            frames.answer(peer.socket)

    def _reach(self, peer: _Connection, payload: bytes) -> None:
        try:
            begin, end, writes = frames.reach_in(payload)
            if peer.process.residence is not None:
                peer.process.residence.reach(ByteRange(begin, end), writes=writes)
        except Exception as error:  # noqa: BLE001
            self._refuse(peer, error, launched=True)
            return
        frames.answer(peer.socket)

    def _refuse(self, peer: _Connection, error: Exception, *, launched: bool) -> None:
        status = status_of(error, launched=launched)
        self._findings.refuse(status, str(error))
        frames.answer(peer.socket, str(error), status=status)


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
